//! The workers: take lookups and records off the queue `work`, run the one and verify the other.
//!
//! Each carries several jobs at once, so that a lookup that waits holds up no other. A worker asked to stop
//! finishes what it holds and what is queued. Always: no worker waits for another node's worker, since reads
//! are answered by connections; every job is answered, or its caller learns that the worker is gone.

use std::{sync::Arc, time::Instant};

use ron_core::{api::ApiError, app::work, seam::Pool};
use tokio::sync::oneshot;

use crate::{
    contact::Contact,
    error::DhtError,
    id::Id,
    link::answer::ReplyHandle,
    lookup::{Goal, Outcome},
    lookup_runner,
    metrics::Family,
    node::Node,
    peers::Peers,
    record::{Record, RecordLimits},
    record_keeper::Write,
    record_store::Put,
    wire::message::Response,
};

/// Jobs that one worker carries at once.
const IN_HAND: usize = 16;

pub enum Job {
    Lookup(Ask),
    /// A record of somebody else: to be verified, then stored.
    Store {
        record: Record,
        reply: Reply,
    },
}

/// A lookup that somebody waits for.
pub struct Ask {
    pub goal: Goal,
    pub target: Id,
    pub deadline: Instant,
    /// Whether its course is kept.
    pub explain: bool,
    pub reply: oneshot::Sender<Result<Found, DhtError>>,
}

/// What a lookup came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub lookup: u64,
    pub outcome: Outcome,
    /// The closest that answered, nearest first.
    pub closest: Vec<Contact>,
    pub hops: u8,
}

/// Who waits for a record to be stored.
pub enum Reply {
    Peer(ReplyHandle),
    Local(oneshot::Sender<Result<Put, DhtError>>),
}

impl Reply {
    pub fn send(self, result: Result<Put, DhtError>) {
        match self {
            Reply::Peer(handle) => handle.reply(match &result {
                Ok(_) => Response::Stored,
                Err(error) => Response::Refused(error.refusal()),
            }),
            Reply::Local(sender) => {
                let _ = sender.send(result);
            }
        }
    }
}

/// Runs until the queue is closed and drained.
pub async fn run(node: Arc<Node>, peers: Peers) {
    let serve = |job| serve(node.clone(), peers.clone(), job);
    work(&node.work, IN_HAND, serve).await;
}

async fn serve(node: Arc<Node>, peers: Peers, job: Job) {
    match job {
        Job::Lookup(ask) => {
            if !ask.reply.is_closed() {
                lookup_runner::run(&node, &peers, ask).await;
            }
            node.drain.finish_one();
        }
        Job::Store { record, reply } => store(&node, record, reply).await,
    }
}

/// Form and time first, since they are cheap; the signature on the CPU pool; then to the keeper.
async fn store(node: &Node, record: Record, reply: Reply) {
    match verified(node, record).await {
        Err((code, error)) => {
            node.metrics.count(Family::RecordsRejected, code);
            let told = error.code();
            node.env
                .probe("dht.record_refused", 0, format_args!("{told}"));
            reply.send(Err(error));
        }
        Ok(record) => {
            let write = Write::Put { record, reply };
            if let Err(refused) = node.records.push(write) {
                node.metrics.count(Family::BusyEndpoint, "store");
                if let Write::Put { reply, .. } = refused.item {
                    reply.send(Err(DhtError::Busy("records")));
                }
            }
        }
    }
}

/// The record, or the label of its rejection and what the sender is told.
async fn verified(node: &Node, record: Record) -> Result<Record, (&'static str, DhtError)> {
    let limits = limits(node);
    if let Err(error) = record.check_shape(&limits, node.env.wall_ms()) {
        return Err((error.code(), shape_error(error.refusal())));
    }
    let checked = node.env.offload(Pool::CPU, move || {
        let valid = record.check_signature();
        (record, valid)
    });
    match checked.await {
        Ok((record, true)) => Ok(record),
        Ok((_, false)) => Err(("bad_signature", DhtError::BadSignature)),
        Err(_) => Err(("canceled", DhtError::Canceled)),
    }
}

pub fn limits(node: &Node) -> RecordLimits {
    let config = node.config();
    let records = &config.records;
    RecordLimits {
        max_value_bytes: records.value_bytes,
        max_ttl_ms: records.ttl_max_ms,
        clock_skew_ms: records.clock_skew_ms,
    }
}

fn shape_error(code: crate::wire::message::RefusalCode) -> DhtError {
    use crate::wire::message::RefusalCode;
    match code {
        RefusalCode::TooLarge => DhtError::TooLarge,
        RefusalCode::Expired => DhtError::Expired,
        _ => DhtError::Invalid("the record is not well-formed".into()),
    }
}
