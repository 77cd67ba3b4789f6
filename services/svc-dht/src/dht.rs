//! The handle of a running node: what the API, the tasks and an embedding program ask of it.

use std::{sync::Arc, time::Instant};

use ron_core::Refusal;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::{
    contact::Contact,
    error::DhtError,
    id::Id,
    lookup::{Goal, Outcome},
    metrics::Family,
    node::Node,
    peers::Peers,
    record::Record,
    worker::{Ask, Found, Job},
};

/// Cheap to clone.
#[derive(Clone)]
pub struct Dht {
    node: Arc<Node>,
    peers: Peers,
}

/// A value that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundValue {
    pub key: Id,
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub publisher: [u8; 32],
    pub seq: u64,
    pub expires_ms: u64,
    pub lookup: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProviders {
    pub providers: Vec<FoundProvider>,
    pub lookup: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundProvider {
    pub contact: Contact,
    pub publisher: [u8; 32],
    pub seq: u64,
    pub expires_ms: u64,
}

/// The routing table, as the API tells it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Routing")]
pub struct RoutingView {
    pub id: String,
    pub publisher: String,
    pub addr: String,
    pub network: String,
    pub network_size: u64,
    pub peers: usize,
    pub buckets: Vec<BucketView>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Bucket")]
pub struct BucketView {
    pub bucket: u8,
    pub entries: Vec<EntryView>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
pub struct EntryView {
    pub id: String,
    pub addr: String,
    pub rtt_ms: Option<u16>,
    /// Of the node's clock, since its start.
    pub last_seen_s: u32,
    pub fails: u8,
}

impl Dht {
    pub fn new(node: Arc<Node>, peers: Peers) -> Dht {
        Dht { node, peers }
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The newest value of a key that can be found.
    pub async fn get_value(&self, key: Id, deadline: Instant) -> Result<FoundValue, DhtError> {
        self.node.check_ready()?;
        let quorum = self.node.config().lookup.value_quorum;
        let found = self.ask(Goal::Value { quorum }, key, deadline, true).await;
        let now = self.node.env.wall_ms();
        let held = self.node.shelf.value(&key, now);
        let (lookup, remote) = match found {
            Ok(Found {
                lookup,
                outcome: Outcome::Value { record, .. },
                ..
            }) => (lookup, Some(*record)),
            Ok(found) => (found.lookup, None),
            // What lies here is an answer, whatever became of the others.
            Err(error) if held.is_none() => return Err(error),
            Err(_) => (0, None),
        };
        // It may have ended since it came: a lookup can take longer than a record has left.
        let skew_ms = self.node.config().records.clock_skew_ms;
        let remote = remote.filter(|record| record.check_time(skew_ms, now).is_ok());
        let newest = match (remote, held) {
            (Some(remote), Some(held)) if held.supersedes(&remote) => (*held).clone(),
            (Some(remote), _) => remote,
            (None, Some(held)) => (*held).clone(),
            (None, None) => return Err(DhtError::NotFound),
        };
        let told = self.value_of(&newest, lookup)?;
        self.node.env.probe(
            "dht.value_returned",
            key.short(),
            format_args!(
                "{key} {} {} {}",
                told.seq,
                told.expires_ms,
                self.node.env.wall_ms()
            ),
        );
        Ok(told)
    }

    /// Who provides what the key stands for; nobody is no error.
    pub async fn providers(&self, key: Id, deadline: Instant) -> Result<FoundProviders, DhtError> {
        self.node.check_ready()?;
        let wanted = self.node.config().lookup.providers_wanted;
        let found = self
            .ask(Goal::Providers { wanted }, key, deadline, true)
            .await?;
        let mut records = match found.outcome {
            Outcome::Providers(records) => records,
            _ => Vec::new(),
        };
        let (now, skew_ms) = (
            self.node.env.wall_ms(),
            self.node.config().records.clock_skew_ms,
        );
        records.retain(|record| record.check_time(skew_ms, now).is_ok());
        for held in self.node.shelf.providers(&key, now, wanted) {
            match records.iter_mut().find(|r| r.publisher == held.publisher) {
                Some(known) if held.supersedes(known) => *known = (*held).clone(),
                Some(_) => {}
                None => records.push((*held).clone()),
            }
        }
        let providers = records.iter().filter_map(|record| {
            Some(FoundProvider {
                contact: record.provider_contact()?,
                publisher: record.publisher,
                seq: record.seq,
                expires_ms: record.ends_ms(),
            })
        });
        Ok(FoundProviders {
            providers: providers.collect(),
            lookup: found.lookup,
        })
    }

    /// The nodes that are closest to a key and answered.
    pub async fn closest(&self, key: Id, deadline: Instant) -> Result<Found, DhtError> {
        self.node.check_ready()?;
        self.ask(Goal::Closest, key, deadline, true).await
    }

    /// Puts a lookup into the work queue and waits for what comes of it.
    pub async fn ask(
        &self,
        goal: Goal,
        target: Id,
        deadline: Instant,
        explain: bool,
    ) -> Result<Found, DhtError> {
        let node = &self.node;
        let own = node.env.now() + node.config().lookup_deadline();
        let (reply, answer) = oneshot::channel();
        let job = Job::Lookup(Ask {
            goal,
            target,
            deadline: deadline.min(own),
            explain,
            reply,
        });
        if let Err(refused) = node.work.push(job) {
            return Err(match refused.why {
                Refusal::Full => {
                    node.metrics.count(Family::BusyEndpoint, "lookup");
                    node.env.probe("dht.work_busy", 0, format_args!(""));
                    DhtError::Busy("work")
                }
                Refusal::Closed => DhtError::NotReady("draining"),
            });
        }
        // A worker that went down with it, or the end of the drain.
        answer.await.unwrap_or(Err(DhtError::Canceled))
    }

    pub fn routing(&self) -> RoutingView {
        let node = &self.node;
        let buckets = node.table.buckets().map(|(bucket, entries)| BucketView {
            bucket,
            entries: entries
                .iter()
                .map(|entry| EntryView {
                    id: entry.contact.id.to_string(),
                    addr: entry.contact.addr.to_string(),
                    rtt_ms: entry.rtt_ms(),
                    last_seen_s: entry.last_seen_s(),
                    fails: entry.fails(),
                })
                .collect(),
        });
        RoutingView {
            id: node.id().to_string(),
            publisher: Id(*node.identity.public()).to_string(),
            addr: node.contact.addr.to_string(),
            network: node.config().network.clone(),
            network_size: node.network_size(),
            peers: node.table.counts().peers,
            buckets: buckets.collect(),
        }
    }

    fn value_of(&self, record: &Record, lookup: u64) -> Result<FoundValue, DhtError> {
        let (name, value) = record.value().ok_or(DhtError::NotFound)?;
        Ok(FoundValue {
            key: record.key,
            name: name.to_vec(),
            value: value.to_vec(),
            publisher: record.publisher,
            seq: record.seq,
            expires_ms: record.ends_ms(),
            lookup,
        })
    }
}
