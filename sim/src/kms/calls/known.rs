//! What the clients of a run have learnt: the keys they made, what these signed and wrapped, which requests failed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::{bearer::Wallet, crowd::Crowd};
use crate::kms::pedant::Pedants;

/// What the clients of a run know of the keys.
#[derive(Default)]
pub struct Known {
    keys: Mutex<BTreeMap<(String, Kind, u64), Key>>,
    /// By node and version: public keys, as they were shown.
    publics: Mutex<BTreeMap<(String, String), Vec<u8>>>,
    /// By node: requests with an operation id that had no result yet.
    failed: Mutex<BTreeMap<String, Vec<Value>>>,
    crowds: Mutex<BTreeMap<(String, u64), Arc<Crowd>>>,
    asking: Mutex<BTreeMap<(String, String), Arc<Crowd>>>,
    pub(super) tokens: Wallet,
    pub(in crate::kms) pedants: Pedants,
}

/// So many failed requests are asked again in the end.
const ASKED_AGAIN: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Signs,
    Wraps,
}

#[derive(Clone, Debug, Default)]
pub struct Key {
    pub kid: String,
    /// Message, version that signed, signatures as they came.
    pub signed: Option<(String, String, Value)>,
    /// Name of the version, blob, plain.
    pub wrapped: Option<(String, String, String)>,
}

impl Known {
    pub(super) fn get(&self, on: &str, kind: Kind, slot: u64) -> Option<Key> {
        let keys = self.keys.lock().unwrap();
        keys.get(&(on.to_owned(), kind, slot)).cloned()
    }

    /// The keys that a node told to have made.
    pub(super) fn made_on(&self, on: &str) -> BTreeSet<String> {
        let keys = self.keys.lock().unwrap();
        let own = keys.iter().filter(|((node, ..), _)| node == on);
        own.map(|(_, key)| key.kid.clone()).collect()
    }

    /// The requests of a tenant to a node.
    pub(super) fn crowd(&self, on: &str, tenant: u64) -> Arc<Crowd> {
        let mut crowds = self.crowds.lock().unwrap();
        crowds.entry((on.to_owned(), tenant)).or_default().clone()
    }

    /// The requests under one operation id to a node.
    pub(super) fn asking(&self, on: &str, op_id: &str) -> Arc<Crowd> {
        let mut asking = self.asking.lock().unwrap();
        let key = (on.to_owned(), op_id.to_owned());
        asking.entry(key).or_default().clone()
    }

    pub(super) fn failed(&self, on: &str, request: &Value) {
        let mut failed = self.failed.lock().unwrap();
        let of_node = failed.entry(on.to_owned()).or_default();
        if of_node.len() < ASKED_AGAIN {
            of_node.push(request.clone());
        }
    }

    pub(super) fn failed_on(&self, on: &str) -> Vec<Value> {
        let failed = self.failed.lock().unwrap();
        failed.get(on).cloned().unwrap_or_default()
    }

    pub(super) fn public(&self, on: &str, version: &str) -> Option<Vec<u8>> {
        let publics = self.publics.lock().unwrap();
        publics.get(&(on.to_owned(), version.to_owned())).cloned()
    }

    pub(super) fn keep_public(&self, on: &str, version: &str, public: &[u8]) {
        let mut publics = self.publics.lock().unwrap();
        publics.insert((on.to_owned(), version.to_owned()), public.to_vec());
    }

    pub(super) fn change(&self, on: &str, kind: Kind, slot: u64, change: impl FnOnce(&mut Key)) {
        let mut keys = self.keys.lock().unwrap();
        change(keys.entry((on.to_owned(), kind, slot)).or_default());
    }
}
