//! Our queue beside its peers, in one run: nanoseconds per item handed from producers to consumers.
//!
//! Rounds are interleaved (ours, peer, peer, ours, ...) so that a noisy machine disturbs all alike; the
//! median round counts. Every contender is used without waiting for room: `push` / `try_send`, and
//! `yield_now` before the next try when full. Consumers await `pop` / `recv_async` / `recv`.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real tasks on the real clock"
)]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use ron_core::{Queue, RejectNew};
use tokio::{runtime::Runtime, task::JoinHandle};

const CAP: usize = 512;
const PRODUCERS: u64 = 4;
const ITEMS_PER_PRODUCER: u64 = 50_000;
const ROUNDS: usize = 15;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .build()
        .expect("a runtime");
    let runtime = &runtime;
    // What `cargo test` asks of a bench: that it runs.
    let rounds = if std::env::args().any(|arg| arg == "--bench") {
        ROUNDS
    } else {
        1
    };
    compare(
        "queue 4p4c",
        rounds,
        &mut [
            ("ours", &mut || ours(runtime, 4)),
            ("flume", &mut || flume(runtime, 4)),
            ("async-channel", &mut || async_channel(runtime, 4)),
        ],
    );
    compare(
        "queue 4p1c",
        rounds,
        &mut [
            ("ours", &mut || ours(runtime, 1)),
            ("tokio mpsc", &mut || tokio_mpsc(runtime)),
        ],
    );
}

type Contender<'a> = (&'static str, &'a mut dyn FnMut() -> Duration);

/// The first contender is ours; the best of the others is what it is measured by.
fn compare(title: &str, rounds: usize, contenders: &mut [Contender<'_>]) {
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (at, (_, run)) in contenders.iter_mut().enumerate() {
            times[at].push(run().as_nanos() as f64 / (PRODUCERS * ITEMS_PER_PRODUCER) as f64);
        }
    }
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    for ((name, _), ns) in contenders.iter().zip(&medians) {
        println!("{title}: {name} {ns:.0} ns/item");
    }
    let (best, peer) = medians[1..]
        .iter()
        .zip(&contenders[1..])
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(ns, (name, _))| (*ns, *name))
        .expect("at least one peer");
    println!(
        "{title}: ours {:.2}x of {peer} (best peer)",
        best / medians[0]
    );
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs all tasks to their end; the consumers' items must add up to what was produced.
fn race(
    runtime: &Runtime,
    producers: impl Iterator<Item = impl Future<Output = ()> + Send + 'static>,
    consumers: impl Iterator<Item = impl Future<Output = u64> + Send + 'static>,
    close: impl FnOnce(),
) -> Duration {
    let start = Instant::now();
    let consumers: Vec<JoinHandle<u64>> = consumers.map(|task| runtime.spawn(task)).collect();
    let producers: Vec<JoinHandle<()>> = producers.map(|task| runtime.spawn(task)).collect();
    let sum = runtime.block_on(async {
        for producer in producers {
            producer.await.expect("no producer fails");
        }
        close();
        let mut sum = 0;
        for consumer in consumers {
            sum += consumer.await.expect("no consumer fails");
        }
        sum
    });
    let took = start.elapsed();
    let each: u64 = (0..ITEMS_PER_PRODUCER).sum();
    assert_eq!(sum, each * PRODUCERS, "nothing lost, nothing doubled");
    took
}

fn ours(runtime: &Runtime, consumers: u64) -> Duration {
    let queue = Queue::new("bench", CAP, RejectNew);
    let producers = (0..PRODUCERS).map(|_| {
        let queue = queue.clone();
        async move {
            for item in 0..ITEMS_PER_PRODUCER {
                while queue.push(item).is_err() {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let consumers = (0..consumers).map(|_| {
        let queue = queue.clone();
        async move {
            let mut sum = 0;
            while let Some(item) = queue.pop().await {
                sum += item;
            }
            sum
        }
    });
    race(runtime, producers, consumers, || {
        queue.close();
    })
}

fn flume(runtime: &Runtime, consumers: u64) -> Duration {
    let (tx, rx) = flume::bounded(CAP);
    let producers = (0..PRODUCERS).map(move |_| {
        let tx = tx.clone();
        async move {
            for item in 0..ITEMS_PER_PRODUCER {
                while tx.try_send(item).is_err() {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let consumers = (0..consumers).map(|_| {
        let rx = rx.clone();
        async move {
            let mut sum = 0;
            while let Ok(item) = rx.recv_async().await {
                sum += item;
            }
            sum
        }
    });
    // The last sender goes with the last producer, which closes the channel.
    race(runtime, producers, consumers, || ())
}

fn async_channel(runtime: &Runtime, consumers: u64) -> Duration {
    let (tx, rx) = async_channel::bounded(CAP);
    let producers = (0..PRODUCERS).map(|_| {
        let tx = tx.clone();
        async move {
            for item in 0..ITEMS_PER_PRODUCER {
                while tx.try_send(item).is_err() {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let consumers = (0..consumers).map(|_| {
        let rx = rx.clone();
        async move {
            let mut sum = 0;
            while let Ok(item) = rx.recv().await {
                sum += item;
            }
            sum
        }
    });
    race(runtime, producers, consumers, || {
        tx.close();
    })
}

fn tokio_mpsc(runtime: &Runtime) -> Duration {
    let (tx, mut rx) = tokio::sync::mpsc::channel(CAP);
    let producers = (0..PRODUCERS).map(move |_| {
        let tx = tx.clone();
        async move {
            for item in 0..ITEMS_PER_PRODUCER {
                while tx.try_send(item).is_err() {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let consumer = async move {
        let mut sum = 0;
        while let Some(item) = rx.recv().await {
            sum += item;
        }
        sum
    };
    // The last sender goes with the last producer, which closes the channel.
    race(runtime, producers, [consumer].into_iter(), || ())
}
