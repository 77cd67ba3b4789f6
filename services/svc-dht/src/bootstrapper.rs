//! Finds the network: dials seeds and peers of an earlier life with backoff until enough answer, then looks up
//! its own id and fills the table.
//!
//! It opens two gates: `bootstrap_seeds` when enough have answered, `buckets_filled` when as many buckets hold
//! somebody as a network of the estimated size fills. The first node of a network has nobody to ask and is ready
//! at once. A gate that is open stays open.

use std::{
    collections::BTreeSet, net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration,
};

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
    wire::handshake::{HandshakeError, RejectCode},
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
    let backoff = node.config().bootstrap_backoff();
    let mut rng = node.env.rng();
    for attempt in 0_u32.. {
        if attempt > 0 {
            node.metrics.count(Family::BackoffRetries, "bootstrap");
            node.env.sleep(backoff.delay(attempt - 1, &mut rng)).await;
        }
        let alone = match meet(dht).await {
            Met::Enough(others) => others == 0,
            // They have answered before: that a seed is busy this time closes no gate.
            Met::Few { .. } if node.bootstrapped.load(Relaxed) => false,
            Met::Few { answered, needed } => {
                gates
                    .seeds
                    .close(format!("{answered} of {needed} seeds answered"));
                continue;
            }
        };
        if !alone {
            until_known(node).await;
        }
        if !node.bootstrapped.swap(true, Relaxed) {
            gates.seeds.open();
            tell_gate(node, "bootstrap_seeds");
        }
        // Whoever has nobody to ask is the first of its network.
        if alone || fill(dht).await {
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
    /// So many others are there.
    Enough(usize),
    Few {
        answered: usize,
        needed: usize,
    },
}

/// Who was found at the address of a seed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seed {
    Other,
    /// This node.
    Own,
    Nobody,
}

/// Dials everybody who might be there, at once.
async fn meet(dht: &Dht) -> Met {
    let node = dht.node();
    let k = OLD_FRIENDS;
    let friends = node.table.closest(&node.id(), k, Liveness::SkipDead, None);
    let config = node.config();
    let seeds: Vec<(&str, u16)> = config.seeds().collect();
    if seeds.is_empty() && friends.is_empty() {
        return Met::Enough(0);
    }
    let needed = config.bootstrap.seeds_needed.min(seeds.len().max(1));
    let (seeds, friends) = (ask_seeds(dht, &seeds), friends_answer(dht, &friends));
    let (seeds, friends) = join(seeds, friends).await;
    let count = |wanted| seeds.iter().filter(|seed| **seed == wanted).count();
    let (others, own) = (count(Seed::Other), count(Seed::Own));
    node.env.probe(
        "dht.bootstrap_met",
        (others + friends) as u64,
        format_args!("{others} {own} {friends}"),
    );
    let answered = others + own + friends;
    match answered >= needed {
        true => Met::Enough(others + friends),
        false => Met::Few { answered, needed },
    }
}

/// Dials all seeds, for a node that has lost everybody.
pub async fn call_seeds(dht: &Dht) {
    let config = dht.node().config();
    let seeds: Vec<(&str, u16)> = config.seeds().collect();
    ask_seeds(dht, &seeds).await;
}

async fn ask_seeds(dht: &Dht, seeds: &[(&str, u16)]) -> Vec<Seed> {
    let asked = seeds.iter().map(|(host, port)| async move {
        let node = dht.node();
        let until = node.env.now() + node.config().rpc_timeout();
        let resolved = node.env.resolve(host, *port);
        let Ok(Ok(found)) = node.env.timeout_at(until, resolved).await else {
            return Seed::Nobody;
        };
        for addr in found {
            match who_is_at(dht, addr).await {
                Seed::Nobody => {}
                somebody => return somebody,
            }
        }
        Seed::Nobody
    });
    let asked: FuturesUnordered<_> = asked.collect();
    asked.collect().await
}

async fn who_is_at(dht: &Dht, addr: SocketAddr) -> Seed {
    let node = dht.node();
    let deadline = node.env.now() + node.config().rpc_timeout();
    match dht.peers().meet(addr, deadline).await {
        Ok(_) => Seed::Other,
        Err(RpcError::Handshake(HandshakeError::SelfDial)) => Seed::Own,
        Err(RpcError::Handshake(HandshakeError::Rejected(RejectCode::SelfDial))) => Seed::Own,
        Err(_) => Seed::Nobody,
    }
}

async fn friends_answer(dht: &Dht, friends: &[Contact]) -> usize {
    let asked = friends.iter().map(|friend| async move {
        let node = dht.node();
        let deadline = node.env.now() + node.config().rpc_timeout();
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

/// A bucket's writer takes a moment to start; without anybody in the table a lookup has nobody to ask.
async fn until_known(node: &Node) {
    for _ in 0..100 {
        if node.table.non_empty() > 0 {
            return;
        }
        node.env.sleep(Duration::from_millis(10)).await;
    }
}

/// Looks up its own id, then ids in buckets that hold nobody; true once the table is full enough.
async fn fill(dht: &Dht) -> bool {
    let node = dht.node();
    let look = async |target| {
        let deadline = node.env.now() + node.config().lookup_deadline();
        dht.ask(Goal::Closest, target, deadline, false).await
    };
    match look(node.id()).await {
        Ok(found) if !found.closest.is_empty() => {}
        _ => return false,
    }
    // Where a lookup found nobody, nobody is: what no node could fill need not be filled.
    let mut searched = BTreeSet::new();
    for _ in 0..FILLS {
        if is_full(node) {
            return true;
        }
        let Some(empty) = farthest_empty(node, &searched) else {
            return true;
        };
        let mut random = [0; 32];
        node.env.fill_random(&mut random);
        let found = look(node.table.id_in(empty, random)).await;
        if found.is_ok_and(|found| !found.closest.is_empty()) {
            searched.insert(empty);
        }
    }
    is_full(node)
}

fn is_full(node: &Node) -> bool {
    let filled = size::fill_percent(node.table.non_empty(), node.network_size());
    filled >= node.config().bootstrap.fill_percent
}

/// The bucket in which most nodes must be among those that hold nobody and were not searched.
fn farthest_empty(node: &Node, searched: &BTreeSet<u8>) -> Option<u8> {
    let nearest = node.table.closest(&node.id(), 1, Liveness::All, None);
    let nearest = nearest.first().and_then(|c| node.table.bucket_of(&c.id))?;
    let empty = |index: &u8| node.table.view(*index).is_empty() && !searched.contains(index);
    (nearest..=(BUCKETS - 1) as u8).rev().find(empty)
}
