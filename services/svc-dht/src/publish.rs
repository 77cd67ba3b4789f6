//! Publishing a record: find who should hold it, hand it to all of them at once, and say how many took it.
//!
//! Runs in the caller's task, never in a worker: a worker waits for no other node's worker. Always: an
//! acknowledged record is durable here and held by the quorum; what was handed out is not called back.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream::FuturesUnordered};
use ron_core::{Refusal, seam::Pool};
use tokio::sync::oneshot;

use crate::{
    contact::Contact,
    dht::Dht,
    error::DhtError,
    events::Event,
    id::Id,
    link::error::RpcError,
    lookup::Goal,
    metrics::Family,
    record::{Record, RecordKind},
    record_keeper::Write,
    routing::Liveness,
    wire::message::{RefusalCode, Request, Response},
    worker::Reply,
};

/// A record that enough nodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub key: Id,
    pub seq: u64,
    /// Nodes that hold it, this one included if it is among the closest.
    pub replicas: usize,
    pub expires_ms: u64,
}

impl Dht {
    /// Stores a value under a name, signed with this node's key.
    pub async fn put_value(
        &self,
        name: &[u8],
        value: &[u8],
        ttl_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<Published, DhtError> {
        let node = self.node();
        node.check_ready()?;
        if value.len() > node.config().records.value_bytes {
            node.metrics.count(Family::RecordsRejected, "too_large");
            return Err(DhtError::TooLarge);
        }
        let ttl_ms = self.life(ttl_ms)?;
        let now = node.env.wall_ms();
        let key = Id::of_value(node.identity.public(), name);
        let held = node.shelf.value(&key, now).map_or(0, |held| held.seq + 1);
        let (identity, seq) = (node.identity.clone(), held.max(now));
        let (name, value) = (name.to_vec(), value.to_vec());
        let signed = node.env.offload(Pool::CPU, move || {
            Record::sign_value(&identity, &name, &value, seq, now, ttl_ms)
        });
        let record = signed.await.map_err(|_| DhtError::Canceled)?;
        self.publish(record, deadline).await
    }

    /// Announces that this node provides what `key` stands for.
    pub async fn provide(
        &self,
        key: Id,
        ttl_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<Published, DhtError> {
        let node = self.node();
        node.check_ready()?;
        let ttl_ms = self.life(ttl_ms)?;
        let now = node.env.wall_ms();
        let (identity, contact) = (node.identity.clone(), node.contact);
        let signed = node.env.offload(Pool::CPU, move || {
            Record::sign_provider(&identity, key, &contact, now, now, ttl_ms)
        });
        let record = signed.await.map_err(|_| DhtError::Canceled)?;
        self.publish(record, deadline).await
    }

    /// Publishes a record that this node has signed.
    pub async fn publish(&self, record: Record, deadline: Instant) -> Result<Published, DhtError> {
        let node = self.node();
        let (key, seq, expires_ms) = (record.key, record.seq, record.ends_ms());
        let found = self.ask(Goal::Closest, key, deadline, false).await?;
        let closest = found.closest;
        let mine = self.is_among(&closest, &key);
        self.keep(record.clone()).await?;
        let known = node
            .table
            .closest(&key, node.config().lookup.k, Liveness::SkipDead, None);
        let wanted = wanted(
            node.config().lookup.store_quorum,
            closest.len(),
            known.len(),
            mine,
        );
        let needed = wanted.saturating_sub(usize::from(mine));
        let stored = self.hand_out(&record, &closest, needed, deadline).await;
        let replicas = stored + usize::from(mine || closest.is_empty());
        let outcome = if replicas >= wanted {
            "stored"
        } else {
            "not_stored"
        };
        node.metrics.count(Family::Published, outcome);
        node.env.probe(
            "dht.published",
            key.short(),
            format_args!(
                "{key} {} {seq} {expires_ms} {replicas} {wanted}",
                record.kind.name()
            ),
        );
        if replicas < wanted {
            return Err(DhtError::NotStored {
                stored: replicas,
                wanted,
            });
        }
        node.events.tell(|| Event::Published {
            key: key.to_string(),
            replicas,
        });
        Ok(Published {
            key,
            seq,
            replicas,
            expires_ms,
        })
    }

    /// Hands a record to all of these at once; how many took it. Once enough have, the others get a moment more.
    pub async fn hand_out(
        &self,
        record: &Record,
        to: &[Contact],
        needed: usize,
        deadline: Instant,
    ) -> usize {
        let node = self.node();
        let now = node.env.now();
        let until = deadline.min(now + node.config().rpc_timeout());
        let request = match record.kind {
            RecordKind::Value => Request::Store {
                record: record.clone(),
            },
            RecordKind::Provider => Request::Provide {
                record: record.clone(),
            },
        };
        let sent = to
            .iter()
            .map(|to| self.peers().request(*to, &request, false, until));
        let mut sent: FuturesUnordered<_> = sent.collect();
        let mut stored = 0;
        let grace = Duration::from_millis(node.config().lookup.hedge_after_ms);
        let mut last = until + grace;
        while let Ok(Some(answer)) = node.env.timeout_at(last, sent.next()).await {
            stored += usize::from(took(&answer));
            if stored >= needed {
                last = last.min(node.env.now() + grace);
            }
        }
        stored
    }

    /// Keeps a record that this node publishes, durably.
    async fn keep(&self, record: Record) -> Result<(), DhtError> {
        let node = self.node();
        let (reply, kept) = oneshot::channel();
        let reply = Reply::Local(reply);
        if let Err(refused) = node.records.push(Write::Publish { record, reply }) {
            return Err(match refused.why {
                Refusal::Full => {
                    node.metrics.count(Family::BusyEndpoint, "publish");
                    DhtError::Busy("records")
                }
                Refusal::Closed => DhtError::NotReady("draining"),
            });
        }
        kept.await.map_err(|_| DhtError::Canceled)?.map(drop)
    }

    /// Whether this node is one of those that should hold the key.
    pub fn is_among(&self, closest: &[Contact], key: &Id) -> bool {
        let node = self.node();
        let own = node.id().distance(key);
        closest.len() < node.config().lookup.k
            || closest
                .last()
                .is_none_or(|last| own < last.id.distance(key))
    }

    fn life(&self, ttl_ms: Option<u64>) -> Result<u64, DhtError> {
        let config = self.node().config();
        let records = &config.records;
        let ttl_ms = ttl_ms.unwrap_or(records.ttl_ms);
        match ttl_ms {
            0 => Err(DhtError::Invalid("ttl_ms must be above 0".into())),
            ttl_ms if ttl_ms > records.ttl_max_ms => Err(DhtError::Invalid(format!(
                "ttl_ms may be at most {}",
                records.ttl_max_ms
            ))),
            ttl_ms => Ok(ttl_ms),
        }
    }
}

/// How many must hold a record for it to count as stored. If fewer than half of those that should be there were found,
/// they are not the closest, and nobody would look for it where it lies: then more than there are.
fn wanted(quorum: usize, found: usize, known: usize, mine: bool) -> usize {
    if found * 2 < known {
        return known.div_ceil(2) + usize::from(mine);
    }
    quorum.min(found + usize::from(mine)).max(1)
}

/// A newer one is as good: it is the publisher's too.
fn took(answer: &Result<Response, RpcError>) -> bool {
    match answer {
        Ok(Response::Stored) => true,
        Ok(Response::Refused(refusal)) | Err(RpcError::Refused(refusal)) => {
            refusal.code == RefusalCode::Stale
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn a_quorum_is_enough_unless_most_of_those_that_should_be_there_were_not_found() {
        for (found, known, mine, needs) in [
            (20, 20, false, 3),
            (20, 20, true, 3),
            (1, 1, true, 2),
            (0, 0, true, 1),
            (10, 20, true, 3),
            (14, 20, false, 3),
        ] {
            assert_eq!(wanted(3, found, known, mine), needs, "{found} of {known}");
        }
        for (found, known, mine) in [(2, 20, true), (9, 20, true), (0, 1, true), (4, 9, false)] {
            let all = found + usize::from(mine);
            assert!(wanted(3, found, known, mine) > all, "{found} of {known}");
        }
    }
}
