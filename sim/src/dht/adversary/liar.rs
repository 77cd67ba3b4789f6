//! What it answers: its own ids to whoever looks for nodes, stale or forged records to whoever looks for values.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use ron_core::Env;
use svc_dht::{
    contact::Contact,
    id::Id,
    link::{
        answer::{Answer, PeerInfo, ReplyHandle},
        error::RpcError,
    },
    record::Record,
    wire::message::{Request, Response},
};

/// Records that are kept to be used against their publishers.
const KEPT: usize = 64;
/// As many nodes as an honest answer has.
const NAMED: usize = 20;

/// What all its ids know together.
pub struct Lie {
    env: Env,
    forges: bool,
    replays: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    own: Vec<Contact>,
    met: BTreeSet<Contact>,
    /// The first record of each key that was ever seen here.
    first: BTreeMap<Id, Record>,
}

impl Lie {
    pub fn new(env: &Env, act: &str) -> Lie {
        Lie {
            env: env.clone(),
            forges: act == "forge",
            replays: act == "stale",
            inner: Mutex::default(),
        }
    }

    pub fn join(&self, own: Contact) {
        self.inner.lock().unwrap().own.push(own);
    }

    pub fn meet(&self, peer: Contact) {
        let mut inner = self.inner.lock().unwrap();
        if !inner.own.iter().any(|own| own.addr == peer.addr) {
            inner.met.insert(peer);
        }
    }

    pub fn met(&self) -> Vec<Contact> {
        self.inner.lock().unwrap().met.iter().copied().collect()
    }

    /// What it puts into the world again, though newer ones are there.
    pub fn replays(&self) -> Vec<Record> {
        let inner = self.inner.lock().unwrap();
        let first = inner.first.values().filter(|_| self.replays);
        let replays: Vec<Record> = first.take(4).cloned().collect();
        if !replays.is_empty() {
            let told = "adversary.replayed";
            self.env.probe(told, replays.len() as u64, format_args!(""));
        }
        replays
    }

    fn keep(&self, record: &Record) {
        let mut inner = self.inner.lock().unwrap();
        if inner.first.len() < KEPT {
            let first = inner.first.entry(record.key);
            first.or_insert_with(|| record.clone());
        }
    }

    fn value(&self, key: &Id) -> Option<Box<Record>> {
        let inner = self.inner.lock().unwrap();
        let mut record = inner.first.get(key)?.clone();
        if self.forges {
            // Newer than any, and not signed by its publisher.
            record.seq += 1_000_000;
            if let Some(last) = record.body.last_mut() {
                *last ^= 1;
            }
            self.env
                .probe("adversary.forged", key.short(), format_args!(""));
        }
        Some(Box::new(record))
    }

    fn closer(&self, target: &Id) -> Vec<Contact> {
        let mut own = self.inner.lock().unwrap().own.clone();
        own.sort_by_key(|c| c.id.distance(target));
        own.truncate(NAMED);
        own
    }
}

/// One of its ids, as its connections see it.
pub struct Liar(pub Arc<Lie>);

impl Answer for Liar {
    fn read(&self, _: &PeerInfo, request: &Request) -> Response {
        let lie = &self.0;
        match request {
            Request::Ping => Response::Pong,
            Request::FindNode { target } => Response::Nodes {
                closer: lie.closer(target),
            },
            Request::FindValue { key } => Response::Value {
                value: lie.value(key),
                closer: lie.closer(key),
            },
            Request::GetProviders { key } => Response::Providers {
                providers: Vec::new(),
                closer: lie.closer(key),
            },
            Request::Provide { .. } | Request::Store { .. } => Response::Stored,
        }
    }

    fn write(&self, _: &PeerInfo, request: Request, reply: ReplyHandle) {
        if let Request::Store { record } | Request::Provide { record } = &request {
            self.0.keep(record);
        }
        // It says so, and keeps what it likes.
        reply.reply(Response::Stored);
    }

    fn proven(&self, peer: Contact, _: bool, _: Option<Duration>) {
        self.0.meet(peer);
    }

    fn failed(&self, _: Contact, _: &RpcError) {}
}
