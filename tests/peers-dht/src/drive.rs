//! Lookups of random targets by random askers, the same for every network.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::{
    ASKERS, AT_ONCE, K, NODES,
    child::{Check, Shape},
};

/// One network of [`NODES`] nodes.
pub trait Network: Send + Sync + 'static {
    /// Looks for the nodes that are closest to the target; none if that failed. An asker does one at a time.
    fn lookup(&self, asker: usize, target: [u8; 32]) -> impl Future<Output = Option<Found>> + Send;

    /// The k nodes that are closest, of all there are but the asker.
    fn closest(&self, asker: usize, target: [u8; 32]) -> Vec<Vec<u8>>;

    /// Connections dialled so far.
    fn dialled(&self) -> u64 {
        0
    }

    /// Datagrams sent on this machine so far, where a network cannot tell its requests.
    fn datagrams(&self) -> Option<u64> {
        None
    }

    /// How many lookups of each asker make all its connections.
    fn warm_lookups(&self) -> usize {
        80
    }

    /// To be let pass before each lookup.
    fn pause(&self) -> Option<Duration> {
        None
    }

    fn shape(&self) -> impl Future<Output = Shape> + Send {
        std::future::ready(Shape::default())
    }
}

/// What a lookup found, and how many requests it sent.
pub struct Found {
    pub closest: Vec<Vec<u8>>,
    pub requests: u32,
}

#[derive(Default)]
pub struct Driven {
    pub wall: Duration,
    pub requests: Vec<u32>,
    pub took_us: Vec<u32>,
    pub failed: u32,
}

/// Which node the asker is.
pub fn node_of(asker: usize) -> usize {
    asker * NODES / ASKERS
}

pub fn target(round: u64, n: u64) -> [u8; 32] {
    *blake3::hash(format!("{round} {n}").as_bytes()).as_bytes()
}

pub async fn warm(network: &'static impl Network) {
    let all = (0..AT_ONCE).map(|lane| {
        tokio::spawn(async move {
            for n in 0..network.warm_lookups() {
                for asker in (lane..ASKERS).step_by(AT_ONCE) {
                    let target = target(u64::MAX, (n * ASKERS + asker) as u64);
                    network.lookup(asker, target).await;
                }
            }
        })
    });
    for lane in all.collect::<Vec<_>>() {
        lane.await.expect("it ends");
    }
}

/// [`AT_ONCE`] at a time until the time is over; what has begun is finished.
pub async fn round(network: &'static impl Network, time: Duration, seed: u64) -> Driven {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let began = Instant::now();
    let all = (0..AT_ONCE).map(|lane| {
        tokio::spawn(async move {
            let mut driven = Driven::default();
            let mut askers = (lane..ASKERS).step_by(AT_ONCE).cycle();
            while began.elapsed() < time {
                let target = target(seed, NEXT.fetch_add(1, Relaxed));
                if let Some(pause) = network.pause() {
                    tokio::time::sleep(pause).await;
                }
                let asker = askers.next().expect("a cycle");
                let start = Instant::now();
                match network.lookup(asker, target).await {
                    None => driven.failed += 1,
                    Some(found) => {
                        driven.requests.push(found.requests);
                        driven.took_us.push(start.elapsed().as_micros() as u32);
                    }
                }
            }
            driven
        })
    });
    let mut sum = Driven::default();
    for lane in all.collect::<Vec<_>>() {
        let driven = lane.await.expect("it ends");
        sum.failed += driven.failed;
        sum.requests.extend(driven.requests);
        sum.took_us.extend(driven.took_us);
    }
    sum.wall = began.elapsed();
    sum
}

/// One at a time: what they find, compared with what there is.
pub async fn check(network: &'static impl Network) -> Check {
    const LOOKUPS: usize = 100;
    let (mut found_of_them, mut requests) = (0, Vec::new());
    for n in 0..LOOKUPS {
        let (asker, target) = (n % ASKERS, target(u64::MAX - 1, n as u64));
        let before = network.datagrams();
        let Some(found) = network.lookup(asker, target).await else {
            continue;
        };
        let datagrams = network.datagrams().zip(before);
        requests.push(match datagrams {
            Some((after, before)) => (after - before) as u32,
            None => found.requests,
        });
        let wanted = network.closest(asker, target);
        found_of_them += wanted
            .iter()
            .filter(|id| found.closest.contains(id))
            .count();
    }
    Check {
        recall: found_of_them as f64 / (LOOKUPS * K) as f64,
        requests,
    }
}

/// The k of these ids that are nearest to the target.
pub fn nearest(ids: impl Iterator<Item = Vec<u8>>, target: &[u8]) -> Vec<Vec<u8>> {
    let mut ids: Vec<Vec<u8>> = ids.collect();
    ids.sort_by_cached_key(|id| -> Vec<u8> { id.iter().zip(target).map(|(a, b)| a ^ b).collect() });
    ids.truncate(K);
    ids
}
