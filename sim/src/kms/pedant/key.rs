//! A key as the pedant has it: its versions, what each may still do, and what a change makes of it.
//!
//! From the documentation alone, and the rules it leaves open spelt out in comments. Always: versions count from 1,
//! the last is the head, and what is destroyed stays so.

use serde_json::{Value, json};

use super::{
    algorithm::Alg,
    refusal::{Refusal, refusal},
};

pub const DAY_MS: u64 = 24 * 3600 * 1000;
pub const MIN_WAIT_MS: u64 = DAY_MS;
pub const MAX_WAIT_MS: u64 = 90 * DAY_MS;
pub const DEFAULT_WAIT_MS: u64 = 7 * DAY_MS;

#[derive(Clone, Debug)]
pub struct Key {
    pub kid: String,
    pub tenant: String,
    pub purpose: String,
    pub alg: Alg,
    pub min_version: u32,
    pub rotate_after_ms: Option<u64>,
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug)]
pub struct Version {
    pub created_ms: u64,
    pub state: State,
    /// Raw, as it was first shown; it never changes.
    pub public: Option<Vec<u8>>,
    /// What evidence says of it, where it is shown nowhere else.
    pub public_sha256: Option<String>,
    /// Known if the pedant brought it.
    pub secret: Option<Vec<u8>>,
    pub nonces: Nonces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Enabled,
    Disabled,
    Scheduled { at_ms: u64 },
    Destroyed { at_ms: u64 },
}

/// The next number to seal with, and the end of what is reserved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nonces {
    pub next: u64,
    pub mark: u64,
}

/// What was asked for, decided.
#[derive(Clone, Debug)]
pub enum Change {
    Rotated,
    Imported(Imported),
    Disabled(u32),
    Enabled(u32),
    Scheduled(Vec<u32>, u64),
    Cancelled(Vec<u32>),
    Policy(u32, Option<u64>),
}

/// What is known of a version that was made elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    pub public: Option<Vec<u8>>,
    pub secret: Option<Vec<u8>>,
}

impl Version {
    pub fn new(created_ms: u64) -> Version {
        Version {
            created_ms,
            state: State::Enabled,
            public: None,
            public_sha256: None,
            secret: None,
            nonces: Nonces::default(),
        }
    }
}

impl Key {
    pub fn head(&self) -> u32 {
        self.versions.len() as u32
    }

    pub fn name(&self, version: u32) -> String {
        format!("{}#v{version}", self.kid)
    }

    pub fn version(&self, number: u32) -> Option<&Version> {
        self.versions.get((number as usize).wrapping_sub(1))
    }

    pub fn version_mut(&mut self, number: u32) -> Option<&mut Version> {
        self.versions.get_mut((number as usize).wrapping_sub(1))
    }

    /// Whoever names no version means the newest that is not destroyed; a schedule that has run out counts once it was
    /// carried out.
    pub fn meant(&self, named: Option<u32>) -> u32 {
        let alive = |version: &Version| !matches!(version.state, State::Destroyed { .. });
        let newest = self.versions.iter().rposition(alive);
        named.unwrap_or_else(|| newest.map_or(self.head(), |at| at as u32 + 1))
    }

    /// One that has versions out of use: the newest, or those below the minimum.
    pub fn is_odd(&self) -> bool {
        let head = self.versions.last().map(|version| version.state);
        head != Some(State::Enabled) || self.min_version > 1
    }

    /// Signs or wraps.
    pub fn may_produce(&self, used_to: &str, version: u32, now: u64) -> Result<(), Refusal> {
        self.may_open(used_to, version, now)?;
        match version < self.min_version {
            true => Err(refusal("below_min_version")),
            false => Ok(()),
        }
    }

    /// Unwraps: below the minimum too, since what was wrapped must come back; not while disabled.
    pub fn may_open(&self, used_to: &str, version: u32, now: u64) -> Result<(), Refusal> {
        match self.may_verify(used_to, version, now)? {
            State::Disabled => Err(refusal("version_disabled")),
            _ => Ok(()),
        }
    }

    /// Verifies: whatever its version may still do, until its destruction is scheduled.
    pub fn may_verify(&self, used_to: &str, version: u32, now: u64) -> Result<State, Refusal> {
        match self.alg.used_to() == used_to {
            true => self.alive(version, now),
            false => Err(refusal("wrong_use")),
        }
    }

    /// A schedule that has run out counts as carried out.
    pub fn alive(&self, version: u32, now: u64) -> Result<State, Refusal> {
        let found = self.version(version);
        match found.ok_or_else(|| refusal("version_not_found"))?.state {
            State::Scheduled { at_ms } if at_ms > now => Err(refusal("destroy_scheduled")),
            State::Scheduled { .. } | State::Destroyed { .. } => Err(refusal("version_destroyed")),
            alive => Ok(alive),
        }
    }

    pub fn destroy(&self, version: Option<u32>, wait_ms: u64, now: u64) -> Result<Change, Refusal> {
        let fits = |state: State| matches!(state, State::Enabled | State::Disabled);
        let chosen = self.chosen(version, fits)?;
        for number in &chosen {
            self.alive(*number, now)?;
        }
        Ok(Change::Scheduled(chosen, wait_ms))
    }

    pub fn cancel(&self, version: Option<u32>, now: u64) -> Result<Change, Refusal> {
        let chosen = self.chosen(version, |state| matches!(state, State::Scheduled { .. }))?;
        for number in &chosen {
            match self.alive(*number, now) {
                Ok(_) => return Err(refusal("not_scheduled")),
                Err(refused) if refused.code == "destroy_scheduled" => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(Change::Cancelled(chosen))
    }

    /// The one named, or all that fit; nothing to do is a wrong request.
    fn chosen(&self, named: Option<u32>, fits: fn(State) -> bool) -> Result<Vec<u32>, Refusal> {
        let fitting = self.versions.iter().zip(1..);
        let fitting = fitting.filter(|(version, _)| fits(version.state));
        let chosen = named.map_or_else(|| fitting.map(|(_, n)| n).collect(), |n| vec![n]);
        match chosen.is_empty() {
            true => Err(refusal("invalid_request")),
            false => Ok(chosen),
        }
    }

    pub fn policy(
        &self,
        min_version: u32,
        rotate_after_ms: Option<u64>,
        least_ms: u64,
    ) -> Result<Change, Refusal> {
        check_rotation(rotate_after_ms, least_ms)?;
        if !(self.min_version..=self.head()).contains(&min_version) {
            return Err(refusal("min_version_out_of_range"));
        }
        Ok(Change::Policy(min_version, rotate_after_ms))
    }

    /// Carries a change out, and returns what the log must tell, by version.
    pub fn change(&mut self, change: Change, now: u64) -> Vec<(u32, Value)> {
        let head = self.head();
        let alg = self.alg.name;
        match change {
            Change::Rotated => {
                self.versions.push(Version::new(now));
                vec![(head + 1, json!({ "rotated": { "from": head } }))]
            }
            Change::Imported(Imported { public, secret }) => {
                self.versions.push(Version {
                    public,
                    secret,
                    ..Version::new(now)
                });
                vec![(head + 1, json!({ "imported": { "alg": alg } }))]
            }
            Change::Disabled(n) => self.set(vec![n], State::Disabled, &json!("disabled")),
            Change::Enabled(n) => self.set(vec![n], State::Enabled, &json!("enabled")),
            Change::Scheduled(all, wait_ms) => {
                let at_ms = now + wait_ms;
                let told = json!({ "destroy_scheduled": { "at_ms": at_ms } });
                self.set(all, State::Scheduled { at_ms }, &told)
            }
            Change::Cancelled(all) => self.set(all, State::Disabled, &json!("destroy_cancelled")),
            Change::Policy(min_version, rotate_after_ms) => {
                self.min_version = min_version;
                self.rotate_after_ms = rotate_after_ms;
                let told = json!({ "min_version": { "version": min_version } });
                vec![(min_version, told)]
            }
        }
    }

    fn set(&mut self, all: Vec<u32>, state: State, told: &Value) -> Vec<(u32, Value)> {
        for number in &all {
            if let Some(version) = self.version_mut(*number) {
                version.state = state;
            }
        }
        all.into_iter().map(|n| (n, told.clone())).collect()
    }

    /// When its head is to be replaced, as things are: one that is out of use is left alone.
    pub fn rotation_due(&self) -> Option<u64> {
        let head = self.versions.last()?;
        let after = self.rotate_after_ms?;
        (head.state == State::Enabled).then_some(head.created_ms + after)
    }

    /// When a version is to be destroyed.
    pub fn destructions(&self) -> impl Iterator<Item = (u32, u64)> {
        let versions = self.versions.iter().zip(1..);
        versions.filter_map(|(version, number)| match version.state {
            State::Scheduled { at_ms } => Some((number, at_ms)),
            _ => None,
        })
    }

    /// As a list shows it.
    pub fn listed(&self) -> Value {
        let mut policy = json!({ "min_version": self.min_version });
        if let Some(after) = self.rotate_after_ms {
            policy["rotate_after_ms"] = json!(after);
        }
        json!({
            "kid": self.kid, "tenant": self.tenant, "purpose": self.purpose, "alg": self.alg.name,
            "use": self.alg.used_to(), "head": self.head(), "policy": policy,
        })
    }

    /// As it is shown by itself.
    pub fn shown(&self) -> Value {
        let mut shown = self.listed();
        let versions = (1..=self.head()).map(|number| self.shown_version(number));
        shown["versions"] = versions.collect();
        shown
    }

    pub fn shown_version(&self, number: u32) -> Value {
        let Some(version) = self.version(number) else {
            return Value::Null;
        };
        let (state, at_ms) = match version.state {
            State::Enabled => ("enabled", None),
            State::Disabled => ("disabled", None),
            State::Scheduled { at_ms } => ("scheduled", Some(at_ms)),
            State::Destroyed { at_ms } => ("destroyed", Some(at_ms)),
        };
        let name = self.name(number);
        let mut shown = json!({ "kid": name, "version": number, "state": state, "created_ms": version.created_ms });
        if let Some(at_ms) = at_ms {
            shown["at_ms"] = json!(at_ms);
        }
        shown
    }
}

/// Too often is refused before anything else is looked at.
pub fn check_rotation(rotate_after_ms: Option<u64>, least_ms: u64) -> Result<(), Refusal> {
    match rotate_after_ms {
        Some(after) if after < least_ms => Err(refusal("rotate_after_too_short")),
        _ => Ok(()),
    }
}
