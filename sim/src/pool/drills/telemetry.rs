//! The page of metrics: parts of the kernel are watched and used at random, and the whole page is what was counted beside.
//!
//! Not one line more or less, each with its labels, its kind and its number; a label that has had its share of values
//! counts the rest as `other`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ron_core::{
    DropOldest, Env, Queue, RejectNew,
    seam::Pool,
    telemetry::{Counters, Refusals, Telemetry},
    view::{TaskCounts, TaskView},
};

use super::{Bench, Verdict, agree, quiet::quiet};
use crate::metrics_page::{all, key, kinds};

const NAMES: [&str; 3] = ["jobs", "news", "other"];
const ENDPOINTS: [&str; 3] = ["", "/sign", "/keys"];
const KINDS: [&str; 3] = ["worker", "listener", "timer"];

pub async fn drill(bench: &mut Bench) -> Verdict {
    let mut game = Game::new(bench);
    game.queues(bench);
    game.tasks(bench);
    game.buses(bench);
    game.kernel(bench);
    game.own(bench);
    game.abandoned(bench).await?;
    game.compare()
}

/// Telemetry, and the page as it is to be.
struct Game {
    prefix: &'static str,
    telemetry: Telemetry,
    lines: BTreeMap<String, f64>,
    kinds: BTreeMap<String, &'static str>,
}

impl Game {
    fn new(bench: &mut Bench) -> Self {
        let prefix = bench.one_of(&["", "svc_drill_"]);
        Game {
            prefix,
            telemetry: Telemetry::new("drill", prefix),
            lines: BTreeMap::new(),
            kinds: BTreeMap::new(),
        }
    }

    fn add(&mut self, kind: &'static str, name: &str, labels: &[(&str, &str)], n: f64) {
        let name = format!("{}{name}", self.prefix);
        *self.lines.entry(key(&name, labels)).or_default() += n;
        self.kinds.insert(name, kind);
    }

    fn count(&mut self, name: &str, labels: &[(&str, &str)], n: u64) {
        self.add("counter", name, labels, n as f64);
    }

    // ------------------------------------------------------------------------------------- views

    /// Queues of one name are one line; their refusals are somebody's, or their own loss.
    fn queues(&mut self, bench: &mut Bench) {
        for _ in 0..bench.pick(0, 4) {
            let (name, cap) = (bench.one_of(&NAMES), bench.pick(1, 3));
            let endpoint = bench.one_of(&ENDPOINTS);
            let refusals = match bench.one_in(2) {
                true => Refusals::Busy { endpoint },
                false => Refusals::Dropped,
            };
            let (mut depth, mut refused, mut lost) = (0, 0, 0);
            let rejects = Queue::new(name, cap as usize, RejectNew);
            let drops = Queue::new(name, cap as usize, DropOldest);
            let may_refuse = bench.one_in(2);
            match may_refuse {
                true => self
                    .telemetry
                    .watch_queue_as(Arc::new(rejects.clone()), refusals),
                false => self
                    .telemetry
                    .watch_queue_as(Arc::new(drops.clone()), refusals),
            }
            for n in 0..bench.pick(0, 12) {
                let take = bench.one_in(3);
                // What came of it is not asked: it follows from the cap.
                match (take, may_refuse) {
                    (true, true) => drop(rejects.try_pop()),
                    (true, false) => drop(drops.try_pop()),
                    (false, true) => drop(rejects.push(n)),
                    (false, false) => drop(drops.push(n)),
                }
                match (take, depth < cap, may_refuse) {
                    (true, ..) => depth = u64::saturating_sub(depth, 1),
                    (false, true, _) => depth += 1,
                    (false, false, true) => refused += 1,
                    (false, false, false) => lost += 1,
                }
            }
            let queue = [("queue", name)];
            self.add("gauge", "queue_depth", &queue, depth as f64);
            let dropped = match refusals {
                Refusals::Dropped => refused + lost,
                Refusals::Busy { .. } => lost,
            };
            self.count("queue_dropped_total", &queue, dropped);
            if let Refusals::Busy { endpoint } = refusals {
                let labels = [("endpoint", endpoint), ("queue", name)];
                self.count("busy_rejections_total", &labels, refused);
            }
        }
    }

    fn tasks(&mut self, bench: &mut Bench) {
        for _ in 0..bench.pick(0, 2) {
            let mut counts = BTreeMap::new();
            for _ in 0..bench.pick(1, 3) {
                let n: Vec<u64> = (0..6).map(|_| bench.pick(0, 9)).collect();
                let count = TaskCounts {
                    alive: n[0],
                    spawned: n[1],
                    restarted: n[2],
                    panicked: n[3],
                    canceled: n[4],
                    aborted: n[5],
                };
                counts.insert(bench.one_of(&KINDS), count);
            }
            for (&kind, count) in &counts {
                self.count("tasks_spawned_total", &[("kind", kind)], count.spawned);
                self.count("tasks_aborted_total", &[("kind", kind)], count.aborted);
                self.count("tasks_canceled_total", &[("kind", kind)], count.canceled);
                self.count("service_restarts_total", &[("task", kind)], count.restarted);
            }
            self.telemetry.watch_tasks(Arc::new(Tasks(counts)));
        }
    }

    fn buses(&mut self, bench: &mut Bench) {
        for _ in 0..bench.pick(0, 3) {
            let (bus, lagged) = (bench.one_of(&NAMES), Arc::new(AtomicU64::new(0)));
            let read = lagged.clone();
            self.telemetry.watch_bus(bus, move || read.load(Relaxed));
            // Read when the page is made, not before.
            lagged.store(bench.pick(0, 99), Relaxed);
            self.count("bus_lagged_total", &[("bus", bus)], lagged.load(Relaxed));
        }
    }

    /// Calls that were given up, of every Env that is watched.
    async fn abandoned(&mut self, bench: &mut Bench) -> Verdict {
        let mut given_up = 0;
        for _ in 0..bench.pick(0, 2) {
            let env: Env = quiet(&bench.env);
            self.telemetry.watch_env(&env);
            for _ in 0..bench.pick(0, 2) {
                drop(env.offload(Pool::CPU, || ()));
                given_up += 1;
            }
            let done = env.offload(Pool::CPU, || 7).await;
            agree("offloaded", done, Ok(7))?;
        }
        self.count("offload_abandoned_total", &[], given_up);
        Ok(())
    }

    // ------------------------------------------------------------------------------------ counters

    /// What every service counts, each up to its own number of lines.
    fn kernel(&mut self, bench: &mut Bench) {
        let kernel = self.telemetry.kernel().clone();
        let counters = [
            (&kernel.io_timeouts, "io_timeouts_total", "op", 32),
            (&kernel.io_errors, "io_errors_total", "kind", 32),
            (&kernel.backoff_retries, "backoff_retries_total", "op", 32),
            (&kernel.not_ready, "not_ready_total", "phase", 8),
            (&kernel.quota_reject, "quota_reject_total", "kind", 8),
            (&kernel.auth_failures, "auth_failures_total", "reason", 32),
        ];
        for (counter, name, label, most) in bench.shuffled(&counters).into_iter().take(3) {
            let mut bounded = Bounded::new(most);
            // Few values, or more than there is room for.
            let values = bench.one_of(&[2, most as u64, most as u64 + 3]);
            for _ in 0..bench.pick(0, 60) {
                let (value, n) = (format!("v{}", bench.pick(0, values)), bench.pick(1, 3));
                counter.with(&[&value]).inc_by(n);
                let told = bounded.line(&[&value]);
                self.count(name, &[(label, told[0].as_str())], n);
            }
        }
        for _ in 0..bench.pick(0, 4) {
            let labels = (bench.one_of(&ENDPOINTS), bench.one_of(&NAMES));
            kernel.busy_rejections.with(&[labels.0, labels.1]).inc();
            let labels = [("endpoint", labels.0), ("queue", labels.1)];
            self.count("busy_rejections_total", &labels, 1);
        }
        let malformed = bench.pick(0, 5);
        kernel.deadline_header_malformed.inc_by(malformed);
        self.count("deadline_header_malformed_total", &[], malformed);
    }

    /// A service's own: plain ones, labelled ones whose lines end, and a histogram.
    fn own(&mut self, bench: &mut Bench) {
        let n = bench.pick(0, 9);
        self.telemetry.counter("plain_total", "x").inc_by(n);
        self.count("plain_total", &[], n);
        let level = bench.pick(0, 99) as i64 - 50;
        self.telemetry.gauge("level", "x").set(level);
        self.add("gauge", "level", &[], level as f64);
        self.telemetry
            .watch_counter("watched_total", "x", move || n);
        self.count("watched_total", &[], n);
        self.telemetry
            .watch_gauge("watched", "x", move || level as f64);
        self.add("gauge", "watched", &[], level as f64);
        let most = bench.pick(1, 4) as usize;
        let moving = self
            .telemetry
            .counters("moving_total", "x", &["epoch", "way"], most);
        self.moving(bench, &moving, most);
        self.histogram(bench);
    }

    fn moving(&mut self, bench: &mut Bench, moving: &Counters, most: usize) {
        let (mut bounded, name) = (Bounded::new(most), format!("{}moving_total", self.prefix));
        for _ in 0..bench.pick(0, 30) {
            let (epoch, way) = (bench.pick(0, 5).to_string(), bench.one_of(&["in", "out"]));
            if bench.one_in(5) {
                moving.forget(&[&epoch, way]);
                if bounded.forget(&[&epoch, way]) {
                    self.lines
                        .remove(&key(&name, &[("epoch", epoch.as_str()), ("way", way)]));
                }
                continue;
            }
            moving.with(&[&epoch, way]).inc();
            let told = bounded.line(&[&epoch, way]);
            let labels = [("epoch", told[0].as_str()), ("way", told[1].as_str())];
            self.count("moving_total", &labels, 1);
        }
        // Without a line it is not there at all.
        if !self.lines.keys().any(|line| line.starts_with(&name)) {
            self.kinds.remove(&name);
        }
    }

    fn histogram(&mut self, bench: &mut Bench) {
        let buckets = [0.5, 1.0, 2.5];
        let histogram = self.telemetry.histogram("took", "x", &buckets);
        let name = format!("{}took", self.prefix);
        // Quarters, so that sums are exact.
        let values: Vec<f64> = (0..bench.pick(0, 9))
            .map(|_| bench.pick(0, 16) as f64 / 4.0)
            .collect();
        for value in &values {
            histogram.observe(*value);
        }
        for (bound, told) in buckets.into_iter().zip(["0.5", "1", "2.5"]) {
            let below = values.iter().filter(|value| **value <= bound).count();
            let line = key(&format!("{name}_bucket"), &[("le", told)]);
            self.lines.insert(line, below as f64);
        }
        let count = values.len() as f64;
        let all = key(&format!("{name}_bucket"), &[("le", "+Inf")]);
        self.lines.insert(all, count);
        self.lines.insert(format!("{name}_count"), count);
        self.lines
            .insert(format!("{name}_sum"), values.iter().sum());
        self.kinds.insert(name, "histogram");
    }

    // -------------------------------------------------------------------------------- comparison

    fn compare(&self) -> Verdict {
        let page = self.telemetry.render();
        let came = all(&page);
        for line in came.keys().chain(self.lines.keys()) {
            agree(line, came.get(line), self.lines.get(line))?;
        }
        let came = kinds(&page);
        for (name, kind) in &came {
            agree(name, Some(&kind.as_str()), self.kinds.get(name))?;
        }
        agree("metrics in all", came.len(), self.kinds.len())?;
        // Each stands among the declared, as what it is.
        let declared = self.telemetry.declared();
        for (name, kind) in &self.kinds {
            let found = declared.iter().find(|decl| decl.name == *name);
            agree(name, found.map(|decl| decl.kind), Some(*kind))?;
        }
        Ok(())
    }
}

/// Which label values a metric has seen.
struct Bounded {
    most: usize,
    seen: BTreeSet<Vec<String>>,
}

impl Bounded {
    fn new(most: usize) -> Self {
        Bounded {
            most,
            seen: BTreeSet::new(),
        }
    }

    /// The values under which these are counted.
    fn line(&mut self, values: &[&str]) -> Vec<String> {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        if self.seen.contains(&owned) || self.seen.len() < self.most {
            self.seen.insert(owned.clone());
            return owned;
        }
        vec!["other".to_owned(); values.len()]
    }

    fn forget(&mut self, values: &[&str]) -> bool {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        self.seen.remove(&owned)
    }
}

struct Tasks(BTreeMap<&'static str, TaskCounts>);

impl TaskView for Tasks {
    fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
        self.0.clone()
    }
}
