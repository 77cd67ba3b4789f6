//! The figures of the algorithm, in a network without sockets: requests, depth, recall and time of the shipped lookup.
//!
//! `cargo test -p svc-dht --test ideal_network -- --nocapture` prints them. Time is simulated; one seed, one result.

mod ideal;

use std::{sync::Arc, time::Duration};

use ideal::{Network, Run, Terms, random_id};
use rand_chacha::rand_core::SeedableRng;
use ron_core::Rng;
use svc_dht::lookup::{Goal, LookupRules, NAMED, Outcome};

/// Healthy, warm and ideal; an answer names as many as the service does.
const IDEAL: Terms = Terms {
    seed: 1,
    nodes: 200,
    stale_percent: 0,
    dead_percent: 0,
    slow_percent: 0,
    warm_percent: 100,
    named: NAMED,
    link_ms: (10, 100),
};
const HEDGE_PERCENT: u32 = 10;
const HEDGE_BURST: u32 = 5;
const BETA: usize = 2;

struct Figures {
    runs: Vec<Run>,
}

/// Twenty nodes look up fifty things each.
fn figures(name: &str, terms: Terms, rules: LookupRules, goal: Goal) -> Figures {
    let network = Network::new(terms.clone());
    let rules = Arc::new(rules);
    let mut rng = Rng::seed_from_u64(terms.seed ^ 0xfeed);
    let mut runs = Vec::new();
    for _ in 0..20 {
        let mut origin = network.origin(&mut rng, HEDGE_PERCENT, HEDGE_BURST);
        let (mut requests, mut hedges) = (0, 0);
        for _ in 0..50 {
            let target = random_id(&mut rng);
            let run = network.look_up(&rules, &mut origin, goal, target, &mut rng);
            assert!(
                run.hedges_at_once <= BETA,
                "{name}: {} hedges at once",
                run.hedges_at_once
            );
            requests += u32::from(run.finished.counts.requests - run.finished.counts.hedges);
            hedges += u32::from(run.finished.counts.hedges);
            runs.push(run);
        }
        let allowed = requests * HEDGE_PERCENT / 100 + HEDGE_BURST;
        assert!(
            hedges <= allowed,
            "{name}: {hedges} hedges for {requests} requests"
        );
    }
    let figures = Figures { runs };
    figures.tell(name);
    figures
}

impl Figures {
    fn tell(&self, name: &str) {
        let [took, requests, depth] = [Self::took, Self::requests, Self::depth].map(|what| {
            [50, 95, 99, 100]
                .map(|p| self.percentile(p, what))
                .map(|n| n.to_string())
                .join("/")
        });
        println!(
            "{name}: p50/p95/p99/max of time {took} ms, requests {requests} (mean {:.1}), depth {depth}; recall@20 {:.4}; \
             hedges {:.1} % of requests",
            self.mean_requests(),
            self.recall(),
            100.0 * self.mean(|run| f64::from(run.finished.counts.hedges)) / self.mean_requests(),
        );
    }

    fn percentile(&self, percent: usize, what: fn(&Run) -> u64) -> u64 {
        let mut all: Vec<u64> = self.runs.iter().map(what).collect();
        all.sort_unstable();
        all[(all.len() * percent).div_ceil(100) - 1]
    }

    fn mean(&self, what: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(what).sum::<f64>() / self.runs.len() as f64
    }

    fn mean_requests(&self) -> f64 {
        self.mean(|run| f64::from(run.finished.counts.requests))
    }

    /// Of the twenty closest that live.
    fn recall(&self) -> f64 {
        self.mean(|run| run.recalled.0 as f64 / run.recalled.1 as f64)
    }

    fn took(run: &Run) -> u64 {
        run.took.as_millis() as u64
    }

    fn requests(run: &Run) -> u64 {
        run.finished.counts.requests.into()
    }

    fn depth(run: &Run) -> u64 {
        run.finished.depth.into()
    }
}

// proves: DHT-2.3
#[test]
fn two_hundred_nodes_are_searched_with_at_most_26_requests() {
    for stale_percent in [0, 10] {
        let terms = Terms {
            stale_percent,
            ..IDEAL
        };
        let name = format!("200 nodes, {stale_percent} % of entries missing");
        let figures = figures(&name, terms, LookupRules::default(), Goal::Closest);
        assert!(figures.percentile(99, Figures::requests) <= 26);
        assert!(figures.recall() >= 0.999);
    }
}

fn is_shallow(nodes: usize) {
    let terms = Terms { nodes, ..IDEAL };
    let figures = figures(
        &format!("{nodes} nodes"),
        terms,
        LookupRules::default(),
        Goal::Closest,
    );
    for (percent, most) in [(50, 3), (95, 4), (99, 5)] {
        assert!(
            figures.percentile(percent, Figures::depth) <= most,
            "p{percent}"
        );
    }
    assert!(
        figures.runs.iter().all(|run| run.finished.complete),
        "the hop budget cut one short"
    );
    assert!(figures.recall() >= 0.999);
}

// proves: DHT-5.3
#[test]
fn a_thousand_nodes_are_searched_within_the_hop_budget() {
    is_shallow(1000);
}

// proves: DHT-5.3
#[test]
fn ten_thousand_nodes_are_searched_within_the_hop_budget() {
    is_shallow(10_000);
}

/// A third are silent of a sudden and nobody knows; three connections in ten are warm.
fn black_holes(nodes: usize) -> Terms {
    Terms {
        nodes,
        dead_percent: 30,
        warm_percent: 30,
        ..IDEAL
    }
}

#[test]
fn with_30_percent_black_holed_the_closest_living_are_found_within_one_rpc_timeout() {
    for nodes in [300, 1000] {
        for seed in [1, 2] {
            let terms = Terms {
                seed,
                ..black_holes(nodes)
            };
            let name = format!("{nodes} nodes, 30 % black-holed, seed {seed}, closest");
            let figures = figures(&name, terms, LookupRules::default(), Goal::Closest);
            assert!(figures.recall() >= 0.99);
            assert!(figures.percentile(99, Figures::took) < 1500);
        }
    }
}

#[test]
fn with_30_percent_black_holed_every_value_is_found() {
    for nodes in [300, 1000] {
        let name = format!("{nodes} nodes, 30 % black-holed, values");
        let figures = figures(
            &name,
            black_holes(nodes),
            LookupRules::default(),
            Goal::Value { quorum: 3 },
        );
        let got = |run: &&Run| matches!(run.finished.outcome, Ok(Outcome::Value { .. }));
        assert_eq!(figures.runs.iter().filter(got).count(), figures.runs.len());
        assert!(figures.percentile(99, Figures::took) < 1500);
    }
}

/// Time and requests with hedging and without, in a network of which 5 % are slowed by 1 s.
fn with_and_without_hedging(link_ms: (u64, u64)) -> [Figures; 2] {
    let terms = Terms {
        nodes: 300,
        slow_percent: 5,
        link_ms,
        ..IDEAL
    };
    let rules = LookupRules::default();
    let without = LookupRules {
        hedge_after: rules.rpc_timeout,
        ..rules.clone()
    };
    [("hedging", rules), ("no hedging", without)].map(|(name, rules)| {
        let name = format!("300 nodes, 5 % slowed by 1 s, links of {link_ms:?} ms, {name}");
        figures(&name, terms.clone(), rules, Goal::Closest)
    })
}

// proves: DHT-5.2, DHT-13.3
#[test]
fn hedging_cuts_the_tail_that_slow_peers_make_for_a_tenth_more_requests() {
    // Over slow links a lookup without any slow peer takes half a second at p99, so there is less to win.
    for (link_ms, share_percent) in [((10, 50), 50), ((10, 100), 60)] {
        let [on, off] = with_and_without_hedging(link_ms);
        let at = |percent| {
            let took = [&on, &off].map(|figures| figures.percentile(percent, Figures::took));
            (100 * took[0], took[1])
        };
        assert!(at(50).0 <= 100 * at(50).1);
        assert!(at(99).0 <= share_percent * at(99).1);
        assert!(on.mean_requests() <= 1.1 * off.mean_requests());
    }
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let once = || {
        let network = Network::new(black_holes(100));
        let mut rng = Rng::seed_from_u64(7);
        let mut origin = network.origin(&mut rng, HEDGE_PERCENT, HEDGE_BURST);
        let rules = Arc::new(LookupRules::default());
        let target = random_id(&mut rng);
        let run = network.look_up(&rules, &mut origin, Goal::Closest, target, &mut rng);
        (run.finished, run.took)
    };
    assert_eq!(once(), once());
    assert!(once().1 > Duration::ZERO);
}
