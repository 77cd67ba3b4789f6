//! Ten thousand nodes for an hour: a tenth leaves, a tenth joins, and all the while nodes look things up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sim::{executor, net::Link, timer};
use svc_dht::config::Config;

use crate::{
    figures::{Bound, Figures},
    fleet::{Fleet, Leaving, Terms, spread},
    lookups::{self, Tally},
    process,
};

/// How large, how long, how much.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub seed: u64,
    pub nodes: usize,
    pub leave: usize,
    pub join: usize,
    pub lookups: usize,
    pub during: Duration,
    /// The start is spread over this.
    pub start_over: Duration,
    /// Tells how far it is, on stderr, each time this has passed.
    pub tell_every: Option<Duration>,
}

impl Size {
    /// In proportion to the nodes, for an hour.
    pub fn of(nodes: usize) -> Size {
        Size {
            seed: 1,
            nodes,
            leave: nodes / 10,
            join: nodes / 10,
            lookups: nodes * 10,
            during: Duration::from_secs(3600),
            start_over: Duration::from_secs(600),
            tell_every: Some(Duration::from_secs(120)),
        }
    }
}

/// Between the start and the hour: what the start left open has been closed.
const SETTLE: Duration = Duration::from_secs(120);

/// What a small machine would be set to: nodes are many here, and each is asked little.
pub fn config() -> Config {
    let mut config = Config {
        workers: 1,
        ..Config::default()
    };
    config.api.explained = 1;
    // Of ten thousand, hardly anybody is asked twice in a minute.
    config.link.idle_timeout_ms = 5_000;
    config
}

/// Within a world; see [`sim::executor::Simulation`].
pub async fn run(size: Size) -> Figures {
    let before = process::resident_bytes();
    let fleet = Fleet::new(&Terms {
        seed: size.seed,
        nodes: size.nodes,
        link: link(10, 100),
        config: config(),
        seeds: (size.nodes / 100).clamp(3, 64),
    });
    let tally = Tally::default();
    let telling = tell(&size, &fleet, &tally, before);
    fleet.start(size.start_over).await;
    timer::sleep(SETTLE).await;
    let connects = fleet.world().net().connects();
    let peak = hour(&size, &fleet, &tally).await;
    if let Some(telling) = telling {
        telling.abort();
    }
    let connects = fleet.world().net().connects() - connects;
    let mut figures = Figures::default();
    found(&mut figures, &tally);
    figures.told(
        "connections made per lookup",
        connects as f64 / size.lookups as f64,
        1,
    );
    let unsound = tables_unsound(&fleet);
    figures.add(
        "unsound entries in tables",
        unsound as f64,
        0,
        Bound::AtMost(0.0),
    );
    let each = peak.saturating_sub(before) as f64 / size.nodes as f64;
    figures.add("resident bytes per node", each, 0, Bound::AtMost(65_536.0));
    let cpu = process::cpu_time().as_secs_f64();
    figures.add("CPU seconds in all", cpu, 0, Bound::Below(1800.0));
    figures
}

/// Links of so many milliseconds one way, drawn evenly for each message.
pub fn link(from_ms: u64, to_ms: u64) -> Link {
    let ms = Duration::from_millis;
    Link {
        latency: (ms(from_ms), ms(to_ms)),
        ..Link::default()
    }
}

/// Leaves, joins and lookups, all evenly spread; the most that was resident meanwhile.
async fn hour(size: &Size, fleet: &Fleet, tally: &Tally) -> u64 {
    let peak = Arc::new(AtomicU64::new(process::resident_bytes()));
    let watched = peak.clone();
    let watching = executor::spawn(async move {
        loop {
            timer::sleep(Duration::from_secs(10)).await;
            watched.fetch_max(process::resident_bytes(), Relaxed);
        }
    });
    let (at, mut rng) = (fleet.clone(), fleet.stream("leaving"));
    let leaving = spread(size.during, size.leave, move |n| {
        let how = match n % 4 {
            0 => Leaving::Crashes,
            1 => Leaving::FallsSilent,
            _ => Leaving::Drains,
        };
        let (gone, fleet) = (at.leave(&mut rng, how), at.clone());
        async move { fleet.scrap(gone).await }
    });
    let at = fleet.clone();
    let joining = spread(size.during, size.join, move |_| {
        let fleet = at.clone();
        async move { fleet.join().await }
    });
    let (at, told, mut rng) = (fleet.clone(), tally.clone(), fleet.stream("lookups"));
    let looking = spread(size.during, size.lookups, move |_| {
        let (asker, target) = (at.anybody(&mut rng), lookups::random_id(&mut rng));
        let (fleet, tally) = (at.clone(), told.clone());
        async move { lookups::closest(&fleet, asker, target, &tally).await }
    });
    let all = [
        executor::spawn(leaving),
        executor::spawn(joining),
        executor::spawn(looking),
    ];
    for one in all {
        one.await;
    }
    watching.abort();
    peak.load(Relaxed).max(process::resident_bytes())
}

/// What the lookups came to.
fn found(figures: &mut Figures, tally: &Tally) {
    let counted = tally.counted().clone();
    figures.told("lookups that ended", counted.took_ms.len() as f64, 0);
    for (percent, most) in [(50.0, 3.0), (95.0, 4.0), (99.0, 5.0)] {
        let name = format!("referral depth p{percent}");
        figures.add(
            name,
            counted.depth.percentile(percent),
            0,
            Bound::AtMost(most),
        );
    }
    for percent in [50.0, 99.0] {
        let name = format!("requests of a lookup p{percent}");
        figures.told(name, counted.requests.percentile(percent), 0);
    }
    let hedges = 100.0 * counted.hedges / (counted.requests.mean() * counted.requests.len() as f64);
    figures.told("hedges in a hundred requests", hedges, 1);
    for percent in [50.0, 95.0, 99.0] {
        let name = format!("time of a lookup p{percent}, ms");
        figures.told(name, counted.took_ms.percentile(percent), 0);
    }
    figures.add(
        "recall@20, mean",
        counted.recall.mean(),
        4,
        Bound::AtLeast(0.99),
    );
    figures.told("recall@20, p1", counted.recall.percentile(1.0), 2);
    for (code, count) in &counted.failed {
        figures.told(format!("failed with {code}"), *count as f64, 0);
    }
    figures.told(
        "given up because the asker left",
        counted.asker_left as f64,
        0,
    );
}

/// Entries of living nodes' tables that are the node itself, stand twice, or belong elsewhere; and those too many.
pub fn tables_unsound(fleet: &Fleet) -> usize {
    let mut unsound = 0;
    for n in fleet.living() {
        let Some(seat) = fleet.seat(n) else { continue };
        let (table, mut seen) = (&seat.dht.node().table, std::collections::BTreeSet::new());
        for (bucket, view) in table.buckets() {
            unsound += view.len().saturating_sub(table.rules().k);
            let wrong = |id| table.bucket_of(id) != Some(bucket) || !seen.insert(*id);
            unsound += view
                .iter()
                .map(|e| &e.contact.id)
                .map(wrong)
                .filter(|w| *w)
                .count();
        }
    }
    unsound
}

fn tell(size: &Size, fleet: &Fleet, tally: &Tally, before: u64) -> Option<executor::WorldTask<()>> {
    let (every, nodes) = (size.tell_every?, size.nodes as u64);
    let (fleet, tally) = (fleet.clone(), tally.clone());
    Some(executor::spawn(async move {
        loop {
            let net = fleet.world().net();
            eprintln!(
                "{:>6.0} s: {} nodes, {} lookups, {} failed, {} connections made, {} bytes a node, {:.0} CPU s",
                timer::elapsed().as_secs_f64(),
                fleet.living().len(),
                tally.done(),
                tally.failures(),
                net.connects(),
                process::resident_bytes().saturating_sub(before) / nodes,
                process::cpu_time().as_secs_f64(),
            );
            timer::sleep(every).await;
        }
    }))
}
