//! The one who changes a bucket: takes what its queue brings, obeys the machine, and asks whether peers live.
//!
//! It never waits for a peer: pings and proofs run beside the queue. It ends once its bucket is quiet, since a node
//! has a dozen buckets and most rest most of the time; the next change starts another. Always: the bucket changes
//! nowhere else, because its writer half exists once; what it asked for is reported back to the machine, or was given
//! up with the stop; asked to stop, it empties its queue first.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use ron_core::{seam::BoxFuture, supervisor::TaskContext};

use crate::{
    contact::Contact,
    events::Event,
    link::error::RpcError,
    metrics::Family,
    node::{Node, millis},
    peers::Peers,
    routes::{Route, RouteQueue},
    routing::{BucketAction, BucketWriterHalf, Update, Why},
    wire::message::Request,
};

/// Changes that are taken from the queue at once.
const BATCH: usize = 64;

/// Pings and proofs under way at once.
const CHECKS_MAX: usize = 4;

/// It ends after so long without a change.
const LINGER: Duration = Duration::from_secs(2);

/// How long it waits for the one before it to be taken down.
const AGAIN: Duration = Duration::from_millis(10);

type Check = BoxFuture<'static, Update>;

pub async fn run(
    node: Arc<Node>,
    peers: Peers,
    index: u8,
    queue: RouteQueue,
    context: TaskContext,
) {
    // While the one before is being taken down, its half is not free yet.
    let mut half = loop {
        if let Some(half) = node.table.claim(index) {
            break half;
        }
        tracing::error!(index, "a bucket has a writer already");
        context.env.sleep(AGAIN).await;
    };
    // Ends with the task, however that ends.
    let _alive = Alive(&node, index);
    node.env.probe(
        "dht.writer_begun",
        index.into(),
        format_args!("{}", context.incarnation),
    );
    let mut checks: FuturesUnordered<Check> = FuturesUnordered::new();
    loop {
        let rests = checks.is_empty();
        let quiet = async {
            match rests {
                true => context.env.sleep(LINGER).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            told = queue.pop_batch(BATCH) => {
                if told.is_empty() {
                    break;
                }
                for route in told {
                    match route {
                        Route::Tell(update) => step(&node, &peers, &mut half, update, &mut checks),
                        Route::Doubt(contact) => {
                            if checks.len() < CHECKS_MAX {
                                checks.push(ping(&node, &peers, contact));
                            }
                        }
                    }
                }
                // What time alone would bring can wait for a change: nobody is asked after in an idle network.
                let due = half.bucket().next_tick(node.table.rules());
                if due.is_some_and(|at_s| at_s <= node.seconds()) {
                    step(&node, &peers, &mut half, Update::Tick, &mut checks);
                }
            }
            Some(update) = checks.next(), if !checks.is_empty() => {
                step(&node, &peers, &mut half, update, &mut checks);
                if checks.is_empty() {
                    checks = FuturesUnordered::new();
                }
            }
            () = quiet => {
                half.set_down();
                if node.routes.retire(index) {
                    return;
                }
                // Something came in that very moment; nobody else can have claimed it meanwhile.
                let Some(again) = node.table.claim(index) else { return };
                half = again;
            }
        }
    }
}

/// Tells that a writer is gone.
struct Alive<'a>(&'a Node, u8);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        let Alive(node, index) = *self;
        node.env
            .probe("dht.writer_ended", index.into(), format_args!(""));
    }
}

/// One change, and what follows from it.
fn step(
    node: &Arc<Node>,
    peers: &Peers,
    half: &mut BucketWriterHalf,
    update: Update,
    checks: &mut FuturesUnordered<Check>,
) {
    let index = half.index();
    for action in half.handle(update, node.seconds()) {
        match action {
            BucketAction::Ping(contact) => checks.push(ping(node, peers, contact)),
            BucketAction::Verify(contact) => checks.push(verify(node, peers, contact)),
            BucketAction::Added(contact) => {
                node.metrics.inc(|hot| &hot.peers_added);
                tell(node, "dht.bucket_added", index, &contact);
                node.events.tell(|| Event::PeerAdded {
                    id: contact.id.to_string(),
                    addr: contact.addr.to_string(),
                    bucket: index,
                });
            }
            BucketAction::Removed(contact, why) => {
                let why = why_name(why);
                node.metrics.count(Family::PeersRemoved, why);
                tell(node, "dht.bucket_removed", index, &contact);
                node.events.tell(|| Event::PeerRemoved {
                    id: contact.id.to_string(),
                    bucket: index,
                    why,
                });
            }
            BucketAction::Moved(contact) => tell(node, "dht.bucket_moved", index, &contact),
            BucketAction::Refused(..) => {}
        }
    }
}

fn tell(node: &Node, event: &'static str, index: u8, contact: &Contact) {
    let detail = format_args!("{index} {} {}", contact.id, contact.addr);
    node.env.probe(event, contact.id.short(), detail);
}

/// Whether it lives.
fn ping(node: &Arc<Node>, peers: &Peers, contact: Contact) -> Check {
    let (node, peers) = (node.clone(), peers.clone());
    Box::pin(async move {
        let began = node.env.now();
        let deadline = began + node.config().rpc_timeout();
        let answered = peers
            .request(contact, &Request::Ping, false, deadline)
            .await;
        let id = contact.id;
        match answered {
            Ok(_) | Err(RpcError::Refused(_)) => {
                let took = node.env.now().saturating_duration_since(began);
                let rtt_ms = Some(millis(took));
                Update::Seen { id, rtt_ms }
            }
            // What happened here says nothing about the peer.
            Err(RpcError::Busy | RpcError::Canceled) => Update::Tick,
            Err(_) => Update::Failed { id },
        }
    })
}

/// Whether it is where it says: by a connection made for the purpose.
fn verify(node: &Arc<Node>, peers: &Peers, contact: Contact) -> Check {
    let (node, peers) = (node.clone(), peers.clone());
    Box::pin(async move {
        let deadline = node.env.now() + node.config().rpc_timeout();
        match peers.reach(contact, deadline).await {
            Ok(()) => Update::Verified {
                contact,
                rtt_ms: None,
            },
            Err(_) => Update::Failed { id: contact.id },
        }
    })
}

fn why_name(why: Why) -> &'static str {
    match why {
        Why::Dead => "dead",
        Why::Evicted => "evicted",
        Why::AddressTaken => "address_taken",
    }
}
