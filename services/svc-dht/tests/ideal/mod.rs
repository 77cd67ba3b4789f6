//! A network without sockets: N nodes with ideal or slightly stale tables, links with latency, peers that are silent or
//! slow, and an event queue that drives the shipped lookup through it. One seed, one course of events.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rand_chacha::rand_core::{Rng as _, SeedableRng};
use ron_core::Rng;
use svc_dht::{
    contact::Contact,
    hedge::HedgeBudget,
    id::Id,
    lookup::{Answer, Failure, Finished, Goal, Lookup, LookupRules, Next, Probe, ProbeId, Seed},
    peer_stats::PeerStats,
    record::{Record, RecordKind},
};

/// How many a bucket of the ideal table holds.
const K: usize = 20;

/// What the network is like.
#[derive(Clone, Debug)]
pub struct Terms {
    pub seed: u64,
    pub nodes: usize,
    /// Of each table's entries, so many in a hundred are missing.
    pub stale_percent: u64,
    /// Silent from the start, unknown to all: so many in a hundred.
    pub dead_percent: u64,
    /// One second slower than they should be: so many in a hundred.
    pub slow_percent: u64,
    /// Chance that a connection is already there, in a hundred. Without one an answer costs two round trips.
    pub warm_percent: u64,
    /// How many contacts an answer names.
    pub named: usize,
    /// One way, uniform, drawn for every message.
    pub link_ms: (u64, u64),
}

const SLOWED_US: u64 = 1_000_000;

pub struct Network {
    terms: Terms,
    /// Sorted, so that a bucket of anybody's table is a range.
    ids: Vec<Id>,
    tables: Vec<Vec<u32>>,
    dead: Vec<bool>,
    slow: Vec<bool>,
}

/// A node that looks things up: what the shipped service keeps beside its lookups.
pub struct Origin {
    pub node: u32,
    pub budget: HedgeBudget,
    pub stats: PeerStats,
}

/// One lookup as it went.
pub struct Run {
    pub finished: Finished,
    pub took: Duration,
    /// How many of the k closest that live were found, of how many.
    pub recalled: (usize, usize),
    /// The most hedges that were under way at once.
    pub hedges_at_once: usize,
}

/// `(when in µs, order, lookup's probe, what happens)`
type Event = Reverse<(u64, u32, ProbeId, u32, Happens)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Answers,
    TimesOut,
}

impl Network {
    pub fn new(terms: Terms) -> Network {
        let mut rng = Rng::seed_from_u64(terms.seed);
        let ids: BTreeSet<Id> = (0..terms.nodes).map(|_| random_id(&mut rng)).collect();
        let ids: Vec<Id> = ids.into_iter().collect();
        let mut network = Network {
            dead: chosen(&mut rng, ids.len(), terms.dead_percent),
            slow: chosen(&mut rng, ids.len(), terms.slow_percent),
            tables: Vec::new(),
            ids,
            terms,
        };
        let tables = (0..network.ids.len()).map(|node| network.ideal_table(node, &mut rng));
        network.tables = tables.collect();
        network
    }

    pub fn origin(&self, rng: &mut Rng, percent: u32, burst: u32) -> Origin {
        let mut node = below(rng, self.ids.len() as u64) as u32;
        while self.dead[node as usize] || self.slow[node as usize] {
            node = below(rng, self.ids.len() as u64) as u32;
        }
        Origin {
            node,
            budget: HedgeBudget::new(percent, burst),
            stats: PeerStats::new(128),
        }
    }

    /// Runs one lookup to its end. Nothing is learned from one to the next but what `origin` keeps.
    pub fn look_up(
        &self,
        rules: &Arc<LookupRules>,
        origin: &mut Origin,
        goal: Goal,
        target: Id,
        rng: &mut Rng,
    ) -> Run {
        let zero = origin_of_time();
        let me = self.ids[origin.node as usize];
        let seeds = self.closest_in_table(origin.node, &target, K, origin.node);
        let seeds = seeds.into_iter().map(|node| Seed {
            contact: self.contact(node),
            rtt_ms: None,
            suspect: false,
        });
        let mut lookup = Lookup::new(
            rules.clone(),
            goal,
            target,
            me,
            seeds,
            zero,
            zero + Duration::from_secs(10),
        );
        let holders: BTreeSet<u32> = match goal {
            Goal::Closest => BTreeSet::new(),
            _ => self
                .closest_of_all(&target, K, |_| true)
                .into_iter()
                .collect(),
        };
        let salt = rng.next_u64();
        let warm = |node: u32| mix(salt ^ u64::from(node)) % 100 < self.terms.warm_percent;
        let (mut now, mut order) = (0, 0);
        let mut events: BinaryHeap<Event> = BinaryHeap::new();
        let mut hedges_at_once = 0;
        let mut hedging = BTreeSet::new();
        loop {
            let at = zero + Duration::from_micros(now);
            let stats = &origin.stats;
            let delay = |id: &Id| {
                let node = self.ids.binary_search(id).ok()? as u32;
                warm(node).then(|| stats.delay(id, rules.hedge_after))?
            };
            match lookup.poll(at, &origin.budget, delay) {
                Next::Done => break,
                Next::Probe(probe) => {
                    let node = number(&probe.to);
                    assert_ne!(node, origin.node, "it asked itself");
                    if probe.hedge {
                        hedging.insert(probe.id);
                        hedges_at_once = hedges_at_once.max(hedging.len());
                    }
                    let event = self.answer_time(node, warm(node), now, &probe, zero, rng);
                    order += 1;
                    events.push(Reverse((event.0, order, probe.id, node, event.1)));
                }
                Next::Wait(until) => {
                    assert!(until > at, "it would spin");
                    let until = (until - zero).as_nanos().div_ceil(1000) as u64;
                    match events.peek() {
                        Some(Reverse((when, ..))) if *when <= until.max(now) => {
                            let Some(Reverse((when, _, probe, node, happens))) = events.pop()
                            else {
                                break;
                            };
                            hedging.remove(&probe);
                            now = when;
                            let at = zero + Duration::from_micros(now);
                            match happens {
                                Happens::TimesOut => {
                                    lookup.handle_failure(probe, Failure::Timeout, at, rng)
                                }
                                Happens::Answers => {
                                    lookup.handle_answer(
                                        probe,
                                        self.answer(node, &target, &holders),
                                        at,
                                    );
                                }
                            }
                        }
                        _ => now = until,
                    }
                }
            }
        }
        let finished = lookup.finish(zero + Duration::from_micros(now));
        self.observe(origin, &finished, warm);
        let truth = self.closest_of_all(&target, K, |node| {
            !self.dead[node as usize] && node != origin.node
        });
        let found: BTreeSet<u32> = finished.closest.iter().map(number).collect();
        let recalled = truth.iter().filter(|node| found.contains(node)).count();
        Run {
            finished,
            took: Duration::from_micros(now),
            recalled: (recalled, truth.len()),
            hedges_at_once,
        }
    }

    /// When the answer to this probe is here, or that it never comes.
    fn answer_time(
        &self,
        node: u32,
        warm: bool,
        now: u64,
        probe: &Probe,
        zero: Instant,
        rng: &mut Rng,
    ) -> (u64, Happens) {
        let deadline = (probe.deadline - zero).as_micros() as u64;
        let messages = if warm { 2 } else { 4 };
        let (low, high) = (self.terms.link_ms.0 * 1000, self.terms.link_ms.1 * 1000);
        let travel: u64 = (0..messages).map(|_| low + below(rng, high - low)).sum();
        let slowed = if self.slow[node as usize] {
            SLOWED_US
        } else {
            0
        };
        let when = now + travel + slowed;
        match self.dead[node as usize] || when > deadline {
            true => (deadline, Happens::TimesOut),
            false => (when, Happens::Answers),
        }
    }

    fn answer(&self, node: u32, target: &Id, holders: &BTreeSet<u32>) -> Answer {
        let closer = self.closest_in_table(node, target, self.terms.named, node);
        let closer = closer.into_iter().map(|node| self.contact(node)).collect();
        let records = holders
            .contains(&node)
            .then(|| value(target))
            .into_iter()
            .collect();
        Answer { closer, records }
    }

    fn observe(&self, origin: &mut Origin, finished: &Finished, warm: impl Fn(u32) -> bool) {
        for step in &finished.explanation.steps {
            let at = self.ids.partition_point(|id| id.short() < step.peer);
            let answered = step.end.name().starts_with("answered");
            if answered && warm(at as u32) {
                let rtt = Duration::from_millis(u64::from(step.end_ms - step.start_ms));
                origin.stats.observe(&self.ids[at], rtt);
            }
        }
    }

    /// Twenty of each bucket, drawn, or all if there are no more.
    fn ideal_table(&self, node: usize, rng: &mut Rng) -> Vec<u32> {
        let me = self.ids[node];
        let mut table = Vec::new();
        let (mut low, mut high) = (0, self.ids.len());
        for bit in 0..256 {
            if high - low <= 1 {
                break;
            }
            let one = |id: &Id| id.0[bit / 8] >> (7 - bit % 8) & 1 == 1;
            let split = low + self.ids[low..high].partition_point(|id| !one(id));
            let (mine, other) = match one(&me) {
                true => ((split, high), (low, split)),
                false => ((low, split), (split, high)),
            };
            table.extend(drawn(rng, other.0 as u32..other.1 as u32));
            (low, high) = mine;
        }
        table.retain(|_| below(rng, 100) >= self.terms.stale_percent);
        table
    }

    fn closest_in_table(&self, node: u32, target: &Id, n: usize, without: u32) -> Vec<u32> {
        let table = self.tables[node as usize].iter().copied();
        self.nearest(table.filter(|other| *other != without), target, n)
    }

    fn closest_of_all(&self, target: &Id, n: usize, keep: impl Fn(u32) -> bool) -> Vec<u32> {
        self.nearest(
            (0..self.ids.len() as u32).filter(|node| keep(*node)),
            target,
            n,
        )
    }

    /// By the first 128 bits, which no two of a network share.
    fn nearest(&self, nodes: impl Iterator<Item = u32>, target: &Id, n: usize) -> Vec<u32> {
        let far = high_half(target);
        let mut by_distance: Vec<(u128, u32)> = nodes
            .map(|node| (high_half(&self.ids[node as usize]) ^ far, node))
            .collect();
        if by_distance.len() > n {
            by_distance.select_nth_unstable(n);
            by_distance.truncate(n);
        }
        by_distance.sort_unstable();
        by_distance.into_iter().map(|(_, node)| node).collect()
    }

    fn contact(&self, node: u32) -> Contact {
        let ip = [10, (node >> 16) as u8, (node >> 8) as u8, node as u8];
        Contact {
            id: self.ids[node as usize],
            addr: SocketAddr::from((ip, 4000)).into(),
        }
    }
}

pub fn random_id(rng: &mut Rng) -> Id {
    let mut id = [0; 32];
    rng.fill_bytes(&mut id);
    Id(id)
}

fn number(contact: &Contact) -> u32 {
    match contact.addr.ip() {
        std::net::IpAddr::V4(ip) => u32::from(ip) & 0xff_ffff,
        std::net::IpAddr::V6(_) => unreachable!("all addresses here are IPv4"),
    }
}

fn value(key: &Id) -> Record {
    Record {
        kind: RecordKind::Value,
        key: *key,
        publisher: [1; 32],
        seq: 1,
        created_ms: 0,
        ttl_ms: 1,
        body: Vec::new(),
        signature: [0; 64],
    }
}

fn high_half(id: &Id) -> u128 {
    id.0[..16]
        .iter()
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

fn below(rng: &mut Rng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn drawn(rng: &mut Rng, range: std::ops::Range<u32>) -> Vec<u32> {
    let mut all: Vec<u32> = range.collect();
    for i in 0..K.min(all.len()) {
        let other = i + below(rng, (all.len() - i) as u64) as usize;
        all.swap(i, other);
    }
    all.truncate(K);
    all
}

/// Exactly so many in a hundred.
fn chosen(rng: &mut Rng, n: usize, percent: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in 0..n {
        order.swap(i, i + below(rng, (n - i) as u64) as usize);
    }
    let mut flags = vec![false; n];
    order[..n * percent as usize / 100]
        .iter()
        .for_each(|i| flags[*i] = true);
    flags
}

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant can be had from nowhere else; its value plays no part"
)]
fn origin_of_time() -> Instant {
    Instant::now()
}
