//! A key's metadata and the life of its versions: the one place that says what may be used.
//!
//! The head only grows, a destroyed version stays destroyed, and a version that is disabled, on its way to
//! destruction, destroyed or below the minimum signs nothing. What was signed before a version was disabled
//! or retired still verifies; once its destruction is scheduled or done, it does not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Algorithm, Kid, Use, VersionedKid};
use crate::history::Told;

/// The format of stored metadata.
pub const KEY_FORMAT: u32 = 1;
/// A key with so many versions is replaced by another key.
pub const MAX_VERSIONS: usize = 1024;
/// Shortest and longest time between asking for destruction and its happening.
pub const MIN_WAIT_MS: u64 = 24 * 3600 * 1000;
pub const MAX_WAIT_MS: u64 = 90 * MIN_WAIT_MS;

/// Wall time, milliseconds since 1970.
pub type WallMs = u64;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    format: u32,
    kid: Kid,
    tenant: String,
    purpose: String,
    algorithm: Algorithm,
    policy: Policy,
    /// Never empty; numbers are contiguous, the last is the head.
    versions: BTreeMap<u32, Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Versions below this neither sign nor wrap.
    pub min_version: u32,
    /// The head is due for rotation when it is this old.
    pub rotate_after_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub created_ms: WallMs,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum State {
    Enabled,
    Disabled,
    /// Unused from now on; its bytes go at `at_ms`, until when it can be cancelled.
    Scheduled {
        at_ms: WallMs,
    },
    Destroyed {
        at_ms: WallMs,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the key has no version {0}")]
    NoSuchVersion(u32),
    #[error("version {0} is disabled: enable it or use another")]
    Disabled(u32),
    #[error(
        "version {version} is scheduled for destruction at {at_ms} ms: cancel that or use another"
    )]
    Scheduled { version: u32, at_ms: WallMs },
    #[error("version {0} is destroyed")]
    Destroyed(u32),
    #[error("version {version} is below the minimum {minimum}")]
    BelowMinimum { version: u32, minimum: u32 },
    #[error("the key is for {0} only")]
    WrongUse(Use),
    #[error("min_version {asked} is not allowed: {from} to the head {head} are")]
    MinimumOutOfRange { asked: u32, from: u32, head: u32 },
    #[error("a waiting period of {MIN_WAIT_MS} to {MAX_WAIT_MS} ms is allowed")]
    WaitOutOfRange,
    #[error("version {0} is not scheduled for destruction")]
    NotScheduled(u32),
    #[error("a key has at most {MAX_VERSIONS} versions: create another key")]
    TooManyVersions,
    #[error("rotate_after_ms must be above 0")]
    RotateAfterZero,
}

impl Key {
    /// With its first version, enabled.
    pub fn create(
        kid: Kid,
        tenant: String,
        purpose: String,
        algorithm: Algorithm,
        policy: Policy,
        now: WallMs,
    ) -> Result<Key, Refusal> {
        let first = Version {
            created_ms: now,
            state: State::Enabled,
        };
        let mut key = Key {
            format: KEY_FORMAT,
            kid,
            tenant,
            purpose,
            algorithm,
            policy: Policy {
                min_version: 1,
                rotate_after_ms: None,
            },
            versions: BTreeMap::from([(1, first)]),
        };
        key.set_policy(policy)?;
        Ok(key)
    }

    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    pub fn purpose(&self) -> &str {
        &self.purpose
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn versions(&self) -> &BTreeMap<u32, Version> {
        &self.versions
    }

    /// The newest version, whatever its state: the head never falls back.
    pub fn head(&self) -> u32 {
        self.versions.last_key_value().map_or(0, |(n, _)| *n)
    }

    pub fn id(&self, version: u32) -> Option<VersionedKid> {
        self.kid.version(version)
    }

    /// The metadata as read back is what this program can have written.
    pub fn is_sound(&self) -> bool {
        let contiguous = self.versions.keys().copied().eq(1..=self.head());
        let minimum = (1..=self.head()).contains(&self.policy.min_version);
        let bounded = self.versions.len() <= MAX_VERSIONS;
        self.format == KEY_FORMAT && contiguous && minimum && bounded
    }

    /// May this version sign now?
    pub fn may_sign(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_use(Use::Sign)?;
        self.may_produce(version, now)
    }

    /// May this version wrap now?
    pub fn may_wrap(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_use(Use::Wrap)?;
        self.may_produce(version, now)
    }

    /// Does a signature of this version count? Also below the minimum and while disabled.
    pub fn may_verify(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_use(Use::Sign)?;
        self.check_alive(version, now).map(|_| ())
    }

    /// Below the minimum too, since what was wrapped must come back; not while disabled.
    pub fn may_unwrap(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_use(Use::Wrap)?;
        self.check_enabled(version, now)
    }

    pub fn due_for_rotation(&self, now: WallMs) -> bool {
        let head = self.versions.last_key_value();
        let age = head.map(|(_, head)| now.saturating_sub(head.created_ms));
        matches!((age, self.policy.rotate_after_ms), (Some(age), Some(after)) if age >= after)
    }

    /// A new head, enabled; earlier versions stay as they are. Returns its number.
    pub fn rotate(&mut self, now: WallMs) -> Result<u32, Refusal> {
        if self.is_full() {
            return Err(Refusal::TooManyVersions);
        }
        let head = self.head() + 1;
        let version = Version {
            created_ms: now,
            state: State::Enabled,
        };
        self.versions.insert(head, version);
        Ok(head)
    }

    /// The minimum only rises.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), Refusal> {
        let (from, head) = (self.policy.min_version, self.head());
        if !(from..=head).contains(&policy.min_version) {
            return Err(Refusal::MinimumOutOfRange {
                asked: policy.min_version,
                from,
                head,
            });
        }
        if policy.rotate_after_ms == Some(0) {
            return Err(Refusal::RotateAfterZero);
        }
        self.policy = policy;
        Ok(())
    }

    pub fn disable(&mut self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_alive(version, now)?;
        self.set(version, State::Disabled);
        Ok(())
    }

    pub fn enable(&mut self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_alive(version, now)?;
        self.set(version, State::Enabled);
        Ok(())
    }

    /// From now on unused, destroyed after the wait. Returns when.
    pub fn schedule_destroy(
        &mut self,
        version: u32,
        wait_ms: u64,
        now: WallMs,
    ) -> Result<WallMs, Refusal> {
        self.check_alive(version, now)?;
        if !(MIN_WAIT_MS..=MAX_WAIT_MS).contains(&wait_ms) {
            return Err(Refusal::WaitOutOfRange);
        }
        let at_ms = now.saturating_add(wait_ms);
        self.set(version, State::Scheduled { at_ms });
        Ok(at_ms)
    }

    /// In time only. The version comes back disabled: using it again is a decision of its own.
    pub fn cancel_destroy(&mut self, version: u32, now: WallMs) -> Result<(), Refusal> {
        match self.state(version, now)? {
            State::Scheduled { .. } => self.set(version, State::Disabled),
            State::Destroyed { .. } => return Err(Refusal::Destroyed(version)),
            State::Enabled | State::Disabled => return Err(Refusal::NotScheduled(version)),
        }
        Ok(())
    }

    /// Marks what is due as destroyed and names it: the caller wipes the bytes.
    pub fn destroy_due(&mut self, now: WallMs) -> Vec<u32> {
        let mut due = Vec::new();
        for (&number, version) in &mut self.versions {
            if matches!(version.state, State::Scheduled { at_ms } if at_ms <= now) {
                version.state = State::Destroyed { at_ms: now };
                due.push(number);
            }
        }
        due
    }

    /// Becomes what the log tells of it; returns the versions that were not here, now destroyed.
    pub fn follow(&mut self, told: &Told, now: WallMs) -> Vec<u32> {
        let mut lost = Vec::new();
        let end = told.states.last_key_value().map_or(0, |(n, _)| *n);
        for number in self.head() + 1..=end.min(MAX_VERSIONS as u32) {
            let version = Version {
                created_ms: now,
                state: State::Destroyed { at_ms: now },
            };
            self.versions.insert(number, version);
            lost.push(number);
        }
        for (number, state) in &told.states {
            if let Some(version) = self.versions.get_mut(number)
                && !matches!(version.state, State::Destroyed { .. })
            {
                version.state = *state;
            }
        }
        let minimum = told.min_version.min(self.head());
        self.policy.min_version = self.policy.min_version.max(minimum);
        lost
    }

    /// A key whose newest version is out of use is not made usable again by a schedule; one that can have no
    /// more versions is left as it is.
    pub fn may_rotate_by_itself(&self, now: WallMs) -> bool {
        !self.is_full() && self.check_enabled(self.head(), now).is_ok()
    }

    /// It has as many versions as a key may have.
    pub fn is_full(&self) -> bool {
        self.versions.len() >= MAX_VERSIONS
    }

    /// The version meant by a caller who names none: the newest that is not destroyed.
    pub fn newest(&self) -> u32 {
        let alive = |(_, v): &(&u32, &Version)| !matches!(v.state, State::Destroyed { .. });
        let newest = self.versions.iter().rev().find(alive);
        newest.map_or_else(|| self.head(), |(n, _)| *n)
    }

    fn may_produce(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        self.check_enabled(version, now)?;
        let minimum = self.policy.min_version;
        if version < minimum {
            ron_core::sometimes!("kms.below_minimum");
            return Err(Refusal::BelowMinimum { version, minimum });
        }
        Ok(())
    }

    fn check_use(&self, asked: Use) -> Result<(), Refusal> {
        let own = self.algorithm.key_use();
        if own == asked {
            Ok(())
        } else {
            Err(Refusal::WrongUse(own))
        }
    }

    fn check_enabled(&self, version: u32, now: WallMs) -> Result<(), Refusal> {
        match self.check_alive(version, now)? {
            State::Enabled => Ok(()),
            _ => Err(Refusal::Disabled(version)),
        }
    }

    /// Neither on its way to destruction nor destroyed.
    fn check_alive(&self, version: u32, now: WallMs) -> Result<State, Refusal> {
        match self.state(version, now)? {
            State::Scheduled { at_ms } => Err(Refusal::Scheduled { version, at_ms }),
            State::Destroyed { .. } => Err(Refusal::Destroyed(version)),
            alive => Ok(alive),
        }
    }

    /// A schedule that has run out counts as destroyed, though nobody has come to wipe it yet.
    fn state(&self, version: u32, now: WallMs) -> Result<State, Refusal> {
        let found = self.versions.get(&version);
        match found.ok_or(Refusal::NoSuchVersion(version))?.state {
            State::Scheduled { at_ms } if at_ms <= now => Ok(State::Destroyed { at_ms }),
            state => Ok(state),
        }
    }

    fn set(&mut self, version: u32, state: State) {
        if let Some(version) = self.versions.get_mut(&version) {
            version.state = state;
        }
    }
}

#[cfg(test)]
mod tests;
