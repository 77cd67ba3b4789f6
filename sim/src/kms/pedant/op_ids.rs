//! Results that callers may ask for again, as the documentation promises them: a day long, within a number.
//!
//! When a result came is known to the length of its request only; while it may or may not be gone, nobody asks for it.
//! Always: an id counts within its tenant; the tenant that holds most makes room, its oldest first.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use super::key::DAY_MS;

#[derive(Clone, Debug)]
pub struct Kept {
    pub tenant: String,
    pub id: String,
    pub path: &'static str,
    pub body: Bytes,
    /// When it came, from and to.
    pub came_ms: (u64, u64),
    /// Without evidence, which is always the newest.
    pub answer: Value,
    pub kid: String,
    /// The answer carries evidence.
    pub attest: bool,
    /// Of a data key: its version and context, since it is opened again.
    pub opens: Option<(u32, Vec<u8>)>,
}

pub enum Begin {
    New,
    Again(Box<Kept>),
    Conflict,
}

pub struct OpIds {
    max: u64,
    kept: Vec<Kept>,
    /// All of them, since the log has them too.
    history: Vec<Kept>,
}

impl Kept {
    fn is_gone(&self, now: u64) -> bool {
        self.came_ms.1 + DAY_MS <= now
    }

    fn may_be_gone(&self, now: u64) -> bool {
        self.came_ms.0 + DAY_MS <= now
    }
}

impl OpIds {
    pub fn new(max: u64) -> OpIds {
        OpIds {
            max,
            kept: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Nothing here is about to go, or gone for all that is known.
    pub fn is_sure(&self, now: u64, for_ms: u64) -> bool {
        let sure = |kept: &Kept| kept.is_gone(now) || !kept.may_be_gone(now + for_ms);
        self.kept.iter().all(sure)
    }

    pub fn kept(&mut self, now: u64) -> &[Kept] {
        self.kept.retain(|kept| !kept.is_gone(now));
        &self.kept
    }

    pub fn begin(&mut self, tenant: &str, id: &str, body: &[u8], now: u64) -> Begin {
        self.kept.retain(|kept| !kept.is_gone(now));
        let mut kept = self.kept.iter();
        match kept.find(|kept| kept.tenant == tenant && kept.id == id) {
            None => Begin::New,
            Some(kept) if kept.body == body => Begin::Again(Box::new(kept.clone())),
            Some(_) => Begin::Conflict,
        }
    }

    pub fn finish(&mut self, kept: Kept) {
        self.history.push(kept.clone());
        self.keep(kept);
    }

    /// A new process has what the log tells.
    pub fn restarted(&mut self, now: u64) {
        self.kept.clear();
        for kept in self.history.clone() {
            if !kept.is_gone(now) {
                self.keep(kept);
            }
        }
    }

    fn keep(&mut self, kept: Kept) {
        let same = |old: &Kept| old.tenant == kept.tenant && old.id == kept.id;
        self.kept.retain(|old| !same(old));
        self.kept.push(kept);
        while self.kept.len() as u64 > self.max {
            let mut held: BTreeMap<&str, usize> = BTreeMap::new();
            for kept in &self.kept {
                *held.entry(&kept.tenant).or_default() += 1;
            }
            // Of two that hold as many, the last by name: the documentation leaves it open.
            let most = held.into_iter().max_by_key(|(name, count)| (*count, *name));
            let most = most.map(|(name, _)| name.to_owned()).unwrap_or_default();
            let oldest = self.kept.iter().position(|kept| kept.tenant == most);
            self.kept.remove(oldest.unwrap_or(0));
        }
    }
}
