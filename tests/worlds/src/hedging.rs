//! One peer in twenty answers a second late. The same world and the same lookups with hedging and without.

use std::time::Duration;

use sim::net::NodeId;
use svc_dht::config::Config;

use crate::{
    figures::{Bound, Figures},
    fleet::{Fleet, Terms, spread},
    lookups::{self, Counted, Tally},
    thousands::link,
};

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub seed: u64,
    pub nodes: usize,
    /// Who asks: each again and again, so that its connections are warm.
    pub askers: usize,
    /// Of each.
    pub lookups: usize,
    pub link_ms: (u64, u64),
    pub hedging: bool,
}

impl Size {
    pub fn of(nodes: usize) -> Size {
        Size {
            seed: 1,
            nodes,
            askers: 20,
            lookups: 100,
            link_ms: (10, 50),
            hedging: true,
        }
    }
}

const SLOW_PERCENT: usize = 5;
const SLOW_BY: Duration = Duration::from_secs(1);

/// Time between two lookups of one node.
const PACE: Duration = Duration::from_secs(1);

/// What lookups came to in such a world.
pub async fn run(size: Size) -> Counted {
    let mut config = Config::default();
    // So that whoever was asked once is asked over a warm connection.
    config.link.max_outbound = size.nodes;
    if !size.hedging {
        config.lookup.beta = 0;
        config.lookup.hedge_budget_percent = 0;
        // A probe that is never overdue is waited for until its timeout.
        config.lookup.hedge_after_ms = config.lookup.rpc_timeout_ms;
    }
    let fleet = Fleet::new(&Terms {
        seed: size.seed,
        nodes: size.nodes,
        link: link(size.link_ms.0, size.link_ms.1),
        config,
        seeds: 3,
    });
    fleet.start(Duration::from_secs(60)).await;
    let slow = size.nodes * SLOW_PERCENT / 100;
    let half = size.lookups / 2;
    look(&fleet, &size, half, &Tally::default(), "before").await;
    for n in size.askers..size.askers + slow {
        fleet.world().net().slow_down(NodeId(n as u32), SLOW_BY);
    }
    let tally = Tally::default();
    look(&fleet, &size, size.lookups, &tally, "after").await;
    tally.counted().clone()
}

async fn look(fleet: &Fleet, size: &Size, each: usize, tally: &Tally, label: &str) {
    let (at, told, mut rng) = (fleet.clone(), tally.clone(), fleet.stream(label));
    let (askers, count) = (size.askers, each * size.askers);
    spread(PACE * each as u32, count, move |n| {
        let target = lookups::random_id(&mut rng);
        let (fleet, tally) = (at.clone(), told.clone());
        async move { lookups::closest(&fleet, n % askers, target, &tally).await }
    })
    .await;
}

/// With against without.
pub fn compare(figures: &mut Figures, link_ms: (u64, u64), on: &Counted, off: &Counted) {
    let links = format!("links of {} to {} ms", link_ms.0, link_ms.1);
    for percent in [50.0, 99.0] {
        let took = [on, off].map(|counted| counted.took_ms.percentile(percent));
        figures.told(
            format!("{links}: time p{percent} with hedging, ms"),
            took[0],
            0,
        );
        figures.told(format!("{links}: time p{percent} without, ms"), took[1], 0);
        let most = if percent == 50.0 { 1.0 } else { 0.5 };
        let name = format!("{links}: p{percent} with over without");
        figures.add(name, took[0] / took[1], 3, Bound::AtMost(most));
    }
    let requests = [on, off].map(|counted| counted.requests.mean());
    figures.told(format!("{links}: requests with hedging"), requests[0], 2);
    figures.told(format!("{links}: requests without"), requests[1], 2);
    let name = format!("{links}: requests with over without");
    figures.add(name, requests[0] / requests[1], 3, Bound::AtMost(1.1));
    let failed = [on, off].map(|counted| counted.failed.values().sum::<usize>() as f64);
    figures.told(format!("{links}: failed with hedging"), failed[0], 0);
    figures.told(format!("{links}: failed without"), failed[1], 0);
    figures.told(
        format!("{links}: recall@20 with hedging"),
        on.recall.mean(),
        4,
    );
    figures.told(format!("{links}: recall@20 without"), off.recall.mean(), 4);
}
