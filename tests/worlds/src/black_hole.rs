//! Three nodes in ten fall silent at once, and nobody is told. Whoever asks in the next minute must still find the closest
//! that live and every value that one of them holds, within one timeout.

use std::time::Duration;

use ron_core::api::ApiError;
use sim::timer;
use svc_dht::{config::Config, error::DhtError, id::Id};

use crate::{
    figures::{Bound, Figures, Samples},
    fleet::{Fleet, Leaving, Terms, spread},
    lookups::{self, Tally},
    thousands::link,
};

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub seed: u64,
    pub nodes: usize,
    pub dead_percent: usize,
    pub values: usize,
    /// Before they fall silent: what makes connections and estimates warm.
    pub lookups_before: usize,
    pub lookups: usize,
}

impl Size {
    pub fn of(nodes: usize) -> Size {
        Size {
            seed: 1,
            nodes,
            dead_percent: 30,
            values: nodes,
            lookups_before: 10 * nodes,
            lookups: 3 * nodes,
        }
    }
}

/// What is measured: the first minute.
const MEASURED: Duration = Duration::from_secs(60);

/// A value that was put, and by whom.
#[derive(Clone, Copy)]
struct Value {
    key: Id,
}

pub async fn run(size: Size) -> Figures {
    let fleet = Fleet::new(&Terms {
        seed: size.seed,
        nodes: size.nodes,
        link: link(10, 100),
        config: Config::default(),
        seeds: (size.nodes / 100).clamp(3, 64),
    });
    fleet.start(Duration::from_secs(60)).await;
    let values = put(&fleet, size.values).await;
    let before = Tally::default();
    look(&fleet, &before, size.lookups_before, MEASURED, "before").await;

    let mut rng = fleet.stream("falling silent");
    for _ in 0..size.nodes * size.dead_percent / 100 {
        fleet.leave(&mut rng, Leaving::FallsSilent);
    }
    let tally = Tally::default();
    let gets = Gets::default();
    let looking = look(&fleet, &tally, size.lookups, MEASURED, "after");
    let getting = get(&fleet, &gets, &values);
    let looking = std::pin::pin!(looking);
    let getting = std::pin::pin!(getting);
    both(looking, getting).await;
    figures(&tally, &gets)
}

/// Waits for two things at once.
async fn both<A: Future<Output = ()>, B: Future<Output = ()>>(
    mut a: std::pin::Pin<&mut A>,
    mut b: std::pin::Pin<&mut B>,
) {
    let (mut a_done, mut b_done) = (false, false);
    std::future::poll_fn(move |cx| {
        a_done = a_done || a.as_mut().poll(cx).is_ready();
        b_done = b_done || b.as_mut().poll(cx).is_ready();
        match a_done && b_done {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// Lookups of random targets by random nodes, evenly spread.
async fn look(fleet: &Fleet, tally: &Tally, count: usize, within: Duration, label: &str) {
    let (at, told, mut rng) = (fleet.clone(), tally.clone(), fleet.stream(label));
    spread(within, count, move |_| {
        let (asker, target) = (at.anybody(&mut rng), lookups::random_id(&mut rng));
        let (fleet, tally) = (at.clone(), told.clone());
        async move { lookups::closest(&fleet, asker, target, &tally).await }
    })
    .await;
}

/// Values of random nodes, stored while all is well.
async fn put(fleet: &Fleet, count: usize) -> Vec<Value> {
    let values = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (at, kept, mut rng) = (fleet.clone(), values.clone(), fleet.stream("values"));
    spread(MEASURED, count, move |n| {
        let (asker, fleet, kept) = (at.anybody(&mut rng), at.clone(), kept.clone());
        async move {
            let Some(seat) = fleet.seat(asker) else {
                return;
            };
            let deadline = seat.dht.node().env.now() + Duration::from_secs(5);
            let name = format!("value {n}");
            let put = seat.dht.put_value(name.as_bytes(), b"here", None, deadline);
            if let Ok(put) = put.await {
                let mut kept = kept.lock().unwrap_or_else(|e| e.into_inner());
                kept.push(Value { key: put.key });
            }
        }
    })
    .await;
    timer::sleep(Duration::from_secs(1)).await;
    let values = values.lock().unwrap_or_else(|e| e.into_inner());
    values.clone()
}

#[derive(Clone, Default)]
struct Gets(std::sync::Arc<std::sync::Mutex<Got>>);

#[derive(Default)]
struct Got {
    found: usize,
    lost: usize,
    /// Nobody who lives holds it.
    gone: usize,
    took_ms: Samples,
    why: std::collections::BTreeMap<&'static str, usize>,
}

/// Every value once, each by somebody else.
async fn get(fleet: &Fleet, gets: &Gets, values: &[Value]) {
    let (at, gets, mut rng) = (fleet.clone(), gets.clone(), fleet.stream("getting"));
    let values = values.to_vec();
    spread(MEASURED, values.len(), move |n| {
        let (asker, value) = (at.anybody(&mut rng), values[n]);
        let (fleet, gets) = (at.clone(), gets.clone());
        async move { get_one(&fleet, &gets, asker, value).await }
    })
    .await;
}

async fn get_one(fleet: &Fleet, gets: &Gets, asker: usize, value: Value) {
    let Some(seat) = fleet.seat(asker) else {
        return;
    };
    let replicas = replicas(fleet, &value.key);
    let env = &seat.dht.node().env;
    let (began, deadline) = (timer::now(), env.now() + Duration::from_secs(5));
    let found = seat.dht.get_value(value.key, deadline).await;
    let took = timer::now() - began;
    let mut got = gets.0.lock().unwrap_or_else(|e| e.into_inner());
    match found {
        Ok(_) => {
            got.found += 1;
            got.took_ms.add(took.as_secs_f64() * 1e3);
        }
        Err(DhtError::NotFound) if replicas == 0 => got.gone += 1,
        Err(error) => {
            got.lost += 1;
            *got.why.entry(error.code()).or_default() += 1;
        }
    }
}

/// How many of the living hold it.
fn replicas(fleet: &Fleet, key: &Id) -> usize {
    let holds = |n: &usize| {
        fleet.seat(*n).is_some_and(|seat| {
            let node = seat.dht.node();
            node.shelf.value(key, node.env.wall_ms()).is_some()
        })
    };
    fleet.living().iter().filter(|n| holds(n)).count()
}

fn figures(tally: &Tally, gets: &Gets) -> Figures {
    let mut figures = Figures::default();
    let counted = tally.counted().clone();
    let got = gets.0.lock().unwrap_or_else(|e| e.into_inner());
    figures.told("lookups that ended", counted.took_ms.len() as f64, 0);
    figures.add(
        "lookups that failed",
        tally.failures() as f64,
        0,
        Bound::AtMost(0.0),
    );
    figures.add(
        "recall@20 of the living, mean",
        counted.recall.mean(),
        4,
        Bound::AtLeast(0.99),
    );
    figures.told(
        "recall@20 of the living, p1",
        counted.recall.percentile(1.0),
        2,
    );
    for percent in [50.0, 95.0] {
        figures.told(
            format!("time of a lookup p{percent}, ms"),
            counted.took_ms.percentile(percent),
            0,
        );
    }
    figures.add(
        "time of a lookup p99, ms",
        counted.took_ms.percentile(99.0),
        0,
        Bound::Below(1500.0),
    );
    for percent in [50.0, 99.0] {
        figures.told(
            format!("requests of a lookup p{percent}"),
            counted.requests.percentile(percent),
            0,
        );
    }
    let hedges = 100.0 * counted.hedges / (counted.requests.mean() * counted.requests.len() as f64);
    figures.told("hedges in a hundred requests", hedges, 1);
    let held = (got.found + got.lost) as f64;
    figures.told("values with no living replica", got.gone as f64, 0);
    figures.told("values with one, asked for", held, 0);
    figures.add(
        "of them found, percent",
        100.0 * got.found as f64 / held,
        2,
        Bound::AtLeast(100.0),
    );
    for (code, count) in &got.why {
        figures.told(format!("gets that failed with {code}"), *count as f64, 0);
    }
    figures.told("time of a get p50, ms", got.took_ms.percentile(50.0), 0);
    figures.told("time of a get p99, ms", got.took_ms.percentile(99.0), 0);
    figures
}
