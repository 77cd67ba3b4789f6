//! What the key ring tells of itself to whoever follows its model; nothing of it exists in production.
//!
//! Events are `spec.kms.keys.*`, each at the moment its step was taken; every detail begins with the kid.

use std::fmt;

use ron_core::Env;

use super::Planned;
use crate::{
    audit::record::KeyChange,
    keys::{Key, Kid, VersionedKid, key::State},
};

/// A key at the start: as it was stored, and as the log tells it.
pub fn opened(env: &Env, stored: &Key, told: &Key) {
    let (kid, stored, told) = (stored.kid(), Shape(stored), Shape(told));
    let detail = format_args!("{kid} {stored} {told}");
    env.probe("spec.kms.keys.opened", 0, detail);
}

/// A version is about to be used, by what the index says this moment.
pub fn used(env: &Env, id: &VersionedKid) {
    let (kid, version) = (id.kid(), u64::from(id.version()));
    env.probe("spec.kms.keys.sign", version, format_args!("{kid}"));
}

/// A change under way.
pub struct Change<'a> {
    env: &'a Env,
    kid: Kid,
    /// Begun by this very change: the key is followed once it is seen.
    creates: bool,
}

impl<'a> Change<'a> {
    pub fn begin(env: &'a Env, planned: &Planned) -> Change<'a> {
        let first = planned.changes.first();
        let creates = matches!(first, Some((_, KeyChange::Created { .. })));
        let kid = planned.key.kid().clone();
        if let Some((version, change)) = first.filter(|_| !creates) {
            let detail = format_args!("{kid} {}{}", Word(change), Versions(planned));
            env.probe("spec.kms.keys.begin", u64::from(*version), detail);
        }
        Change { env, kid, creates }
    }

    pub fn tell(&self, event: &'static str) {
        if !self.creates {
            self.env.probe(event, 0, format_args!("{}", self.kid));
        }
    }

    pub fn published(&self) {
        let event = match self.creates {
            true => "spec.kms.keys.created",
            false => "spec.kms.keys.published",
        };
        self.env.probe(event, 0, format_args!("{}", self.kid));
    }
}

struct Versions<'a>(&'a Planned);

impl fmt::Display for Versions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut versions = self.0.changes.iter();
        versions.try_for_each(|(version, _)| write!(f, " {version}"))
    }
}

struct Word<'a>(&'a KeyChange);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            KeyChange::Created { .. } => "created",
            KeyChange::Imported { .. } | KeyChange::Rotated { .. } => "rotated",
            KeyChange::Disabled => "disabled",
            KeyChange::Enabled => "enabled",
            KeyChange::DestroyScheduled { .. } => "destroy_scheduled",
            KeyChange::DestroyCancelled => "destroy_cancelled",
            KeyChange::Destroyed => "destroyed",
            KeyChange::MinVersion { .. } => "min_version",
        })
    }
}

/// The states of a key's versions, a letter each, and its minimum: `EED/2`.
pub struct Shape<'a>(pub &'a Key);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for version in self.0.versions().values() {
            f.write_str(match version.state {
                State::Enabled => "E",
                State::Disabled => "D",
                State::Scheduled { .. } => "S",
                State::Destroyed { .. } => "X",
            })?;
        }
        write!(f, "/{}", self.0.policy().min_version)
    }
}
