//! What the audit log tells about keys: the truth that the key store is compared with at the start.
//!
//! A change of a key is recorded before it is stored, so a crash between the two, or a restored backup,
//! leaves a store that is behind its log. It then follows the log: a version the store does not have is
//! destroyed (its secret is gone, its number is never given again), states and minimum are the log's.

use std::collections::BTreeMap;

use crate::{
    audit::record::{Event, KeyChange},
    keys::{
        Key,
        key::{State, WallMs},
    },
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyHistory {
    keys: BTreeMap<String, Told>,
}

/// What the log tells of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Told {
    pub states: BTreeMap<u32, State>,
    pub min_version: u32,
}

impl KeyHistory {
    pub fn record(&mut self, at_ms: WallMs, event: &Event) {
        let Event::Key {
            kid,
            version,
            change,
            ..
        } = event
        else {
            return;
        };
        let told = self.keys.entry(kid.clone()).or_default();
        let state = match change {
            KeyChange::Created { .. } | KeyChange::Imported { .. } | KeyChange::Rotated { .. } => {
                State::Enabled
            }
            KeyChange::Enabled => State::Enabled,
            KeyChange::Disabled | KeyChange::DestroyCancelled => State::Disabled,
            KeyChange::DestroyScheduled { at_ms: due } => State::Scheduled { at_ms: *due },
            KeyChange::Destroyed => State::Destroyed { at_ms },
            KeyChange::MinVersion { version } => {
                told.min_version = told.min_version.max(*version);
                return;
            }
        };
        told.states.insert(*version, state);
    }

    pub fn of(&self, key: &Key) -> Option<&Told> {
        self.keys.get(key.kid().as_str())
    }

    /// The key as the log tells it, and the versions whose secret the store never got; `None` if the store
    /// tells the same.
    pub fn reconcile(&self, stored: &Key, now: WallMs) -> Option<(Key, Vec<u32>)> {
        let mut key = stored.clone();
        let lost = key.follow(self.of(stored)?, now);
        (key != *stored).then_some((key, lost))
    }
}

#[cfg(test)]
mod tests;
