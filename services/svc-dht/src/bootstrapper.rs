//! Finds the network: dials seeds and peers of an earlier life with backoff until enough answer, then looks up
//! its own id and fills the table.
//!
//! It opens two gates: `bootstrap_seeds` when enough have answered, `buckets_filled` when as many buckets hold
//! somebody as a network of the estimated size fills. The first node of a network has nobody to ask and is ready
//! at once.

use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed};

use futures_util::{StreamExt, future::join, stream::FuturesUnordered};
use ron_core::{readiness::Gate, supervisor::TaskContext};

use crate::{
    contact::Contact,
    dht::Dht,
    events::Event,
    id::BUCKETS,
    link::error::RpcError,
    lookup::Goal,
    metrics::Family,
    node::Node,
    routing::{Liveness, size},
    wire::handshake::HandshakeError,
};

/// Peers of an earlier life that are asked whether they are still there.
const OLD_FRIENDS: usize = 8;

/// Lookups of one round that fill empty buckets.
const FILLS: usize = 8;

#[derive(Clone)]
pub struct Gates {
    pub seeds: Gate,
    pub buckets: Gate,
}

/// Ends when the node has found its network.
pub async fn run(dht: Dht, gates: Gates, context: TaskContext) {
    tokio::select! {
        biased;
        () = context.stop.wait() => {}
        () = Box::pin(find_network(&dht, &gates)) => {}
    }
}

async fn find_network(dht: &Dht, gates: &Gates) {
    let node = dht.node();
    let backoff = node.config.bootstrap_backoff();
    let mut rng = node.env.rng();
    for attempt in 0_u32.. {
        if attempt > 0 {
            node.metrics.count(Family::BackoffRetries, "bootstrap");
            node.env.sleep(backoff.delay(attempt - 1, &mut rng)).await;
        }
        match meet(dht).await {
            Met::Enough => {}
            Met::Few { answered, needed } => {
                gates
                    .seeds
                    .close(format!("{answered} of {needed} seeds answered"));
                continue;
            }
        }
        if !node.bootstrapped.swap(true, Relaxed) {
            gates.seeds.open();
            tell_gate(node, "bootstrap_seeds");
        }
        if fill(dht).await {
            gates.buckets.open();
            tell_gate(node, "buckets_filled");
            return;
        }
        let filled = node.table.non_empty();
        gates
            .buckets
            .close(format!("{filled} buckets hold somebody"));
    }
}

fn tell_gate(node: &Node, gate: &'static str) {
    node.env.probe("dht.gate_open", 0, format_args!("{gate}"));
    node.events.tell(|| Event::Readiness { gate, open: true });
}

enum Met {
    Enough,
    Few { answered: usize, needed: usize },
}

/// Dials everybody who might be there, at once.
async fn meet(dht: &Dht) -> Met {
    let node = dht.node();
    let friends = node
        .table
        .closest(&node.id(), OLD_FRIENDS, Liveness::SkipDead, None);
    let seeds: Vec<(&str, u16)> = node.config.seeds().collect();
    if seeds.is_empty() && friends.is_empty() {
        return Met::Enough;
    }
    let needed = node.config.bootstrap.seeds_needed.min(seeds.len().max(1));
    let (seeds, friends) = (seeds_answer(dht, &seeds), friends_answer(dht, &friends));
    let (seeds, friends) = join(seeds, friends).await;
    let answered = seeds + friends;
    node.env.probe(
        "dht.bootstrap_met",
        answered as u64,
        format_args!("{seeds} {friends}"),
    );
    match answered >= needed {
        true => Met::Enough,
        false => Met::Few { answered, needed },
    }
}

/// How many seeds are there; that one of them is this node counts too.
pub async fn seeds_answer(dht: &Dht, seeds: &[(&str, u16)]) -> usize {
    let asked = seeds.iter().map(|(host, port)| async move {
        let node = dht.node();
        let until = node.env.now() + node.config.rpc_timeout();
        let Ok(Ok(found)) = node
            .env
            .timeout_at(until, node.env.resolve(host, *port))
            .await
        else {
            return false;
        };
        for addr in found {
            if answers(dht, addr).await {
                return true;
            }
        }
        false
    });
    count(asked.collect()).await
}

async fn answers(dht: &Dht, addr: SocketAddr) -> bool {
    let node = dht.node();
    let deadline = node.env.now() + node.config.rpc_timeout();
    matches!(
        dht.peers().meet(addr, deadline).await,
        Ok(_) | Err(RpcError::Handshake(HandshakeError::SelfDial))
    )
}

async fn friends_answer(dht: &Dht, friends: &[Contact]) -> usize {
    let asked = friends.iter().map(|friend| async move {
        let node = dht.node();
        let deadline = node.env.now() + node.config.rpc_timeout();
        let reached = dht.peers().reach(*friend, deadline).await.is_ok();
        if reached {
            node.seen(friend, None);
        }
        reached
    });
    count(asked.collect()).await
}

async fn count<F: Future<Output = bool>>(mut asked: FuturesUnordered<F>) -> usize {
    let mut yes = 0;
    while let Some(answered) = asked.next().await {
        yes += usize::from(answered);
    }
    yes
}

/// Looks up its own id, then ids in buckets that hold nobody; true once the table is full enough.
async fn fill(dht: &Dht) -> bool {
    let node = dht.node();
    let look = async |target| {
        let deadline = node.env.now() + node.config.lookup_deadline();
        dht.ask(Goal::Closest, target, deadline, false).await
    };
    let alone = node.config.bootstrap.seeds.is_empty();
    if look(node.id())
        .await
        .is_ok_and(|found| found.closest.is_empty())
    {
        return alone || node.table.counts().peers > 0 && is_full(node);
    }
    for _ in 0..FILLS {
        if is_full(node) {
            return true;
        }
        let Some(empty) = farthest_empty(node) else {
            break;
        };
        let mut random = [0; 32];
        node.env.fill_random(&mut random);
        let _ = look(node.table.id_in(empty, random)).await;
    }
    is_full(node)
}

fn is_full(node: &Node) -> bool {
    let filled = size::fill_percent(node.table.non_empty(), node.network_size());
    filled >= node.config.bootstrap.fill_percent
}

/// The bucket in which most nodes must be among those that hold nobody.
fn farthest_empty(node: &Node) -> Option<u8> {
    let nearest = node.table.closest(&node.id(), 1, Liveness::All, None);
    let nearest = nearest.first().and_then(|c| node.table.bucket_of(&c.id))?;
    let empty = |index: &u8| node.table.view(*index).is_empty();
    (nearest..=(BUCKETS - 1) as u8).rev().find(empty)
}
