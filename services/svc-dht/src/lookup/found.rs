//! What a lookup has found so far, and what it says in the end.
//!
//! Always: of two records of one publisher the newer is kept, and no more than a bounded number of them.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use crate::{
    contact::{Contact, Subnet},
    record::Record,
};

use super::{
    Why,
    terms::{Goal, LookupError, Outcome},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub value: Option<Box<Record>>,
    pub holders: usize,
    /// Where they are, if those of one network count as one.
    pub networks: Vec<Subnet>,
    pub providers: BTreeMap<[u8; 32], Record>,
    pub depth: u8,
}

/// Providers kept, whatever was wanted.
const PROVIDERS_MAX: usize = 1024;

impl Found {
    pub fn is_empty(&self) -> bool {
        self.value.is_none() && self.providers.is_empty()
    }

    /// `from` is the network of who gave them, if those of one network count as one holder.
    pub fn keep(&mut self, goal: Goal, records: Vec<Record>, depth: u8, from: Option<Subnet>) {
        if records.is_empty() || goal == Goal::Closest {
            return;
        }
        self.depth = self.depth.max(depth);
        match from {
            Some(network) if self.networks.contains(&network) => {}
            network => {
                self.networks.extend(network);
                self.holders += 1;
            }
        }
        for record in records {
            match goal {
                Goal::Closest => {}
                Goal::Value { .. } => {
                    if self.value.as_ref().is_none_or(|held| held.seq < record.seq) {
                        self.value = Some(Box::new(record));
                    }
                }
                Goal::Providers { .. } => {
                    let held = self.providers.get(&record.publisher);
                    let room = held.is_some() || self.providers.len() < PROVIDERS_MAX;
                    if room && held.is_none_or(|held| held.seq < record.seq) {
                        self.providers.insert(record.publisher, record);
                    }
                }
            }
        }
    }

    pub fn is_enough(&self, goal: Goal) -> bool {
        match goal {
            Goal::Closest => false,
            Goal::Value { quorum } => self.value.is_some() && self.holders >= quorum,
            Goal::Providers { wanted } => self.providers.len() >= wanted.clamp(1, PROVIDERS_MAX),
        }
    }
}

/// What was found, or why nothing can be said.
pub(super) fn outcome(
    goal: Goal,
    why: Why,
    found: Found,
    closest: &[Contact],
    asked_nobody: bool,
) -> Result<Outcome, LookupError> {
    if let Some(record) = found.value {
        let holders = found.holders;
        return Ok(Outcome::Value { record, holders });
    }
    if !found.providers.is_empty() {
        return Ok(Outcome::Providers(found.providers.into_values().collect()));
    }
    match (why, goal) {
        (Why::Deadline, _) if closest.is_empty() => Err(LookupError::Deadline),
        _ if asked_nobody => Err(LookupError::NoPeers),
        _ if closest.is_empty() => Err(LookupError::Unreachable),
        (_, Goal::Closest) => Ok(Outcome::Closest),
        (Why::Converged | Why::Enough, _) => Ok(Outcome::NotFound),
        (Why::Deadline, _) => Err(LookupError::Deadline),
        (Why::HopBudget, _) => Err(LookupError::HopExceeded),
        (Why::TooManyRequests, _) => Err(LookupError::TooManyRequests),
    }
}

/// Equal states hash alike; a record is told by its publisher and sequence.
impl Hash for Found {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let told = |record: &Record| (record.publisher, record.seq);
        self.value.as_deref().map(told).hash(state);
        self.providers
            .values()
            .for_each(|record| told(record).hash(state));
        (self.holders, self.depth).hash(state);
    }
}
