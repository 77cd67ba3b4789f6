//! Drills: each part of the kernel is put through random use, and every answer compared with a plain reference.
//!
//! The pool itself uses the kernel in one way; a changed line in what it does not use would never be noticed, and a
//! model that steps the shipped machine has the same fault. A reference here is written anew, as simple as can be, and
//! never asks the shipped code what to expect. Always: chance comes from the node's generator and time from its clock, so
//! that a seed replays a drill; a drill is short and ends by itself; it tells only that it passed, or what was wrong.

mod admitted;
mod admitted_request;
mod backoff;
mod body;
mod bus;
mod config;
mod connection;
mod connection_cases;
mod connection_client;
mod connection_http2;
mod crew;
mod crew_end;
mod deadline;
pub mod disk;
mod disk_cut;
mod disk_growth;
mod env;
mod front;
mod hands;
mod jwks;
mod lifecycle;
mod lifecycle_reference;
mod ops;
mod ops_parts;
mod passport;
mod problem;
mod queue;
mod queue_reference;
mod quiet;
mod rate;
mod readiness;
mod serve;
mod shutdown;
mod snapshot;
mod supervisor;
mod supervisor_checked;
mod supervisor_script;
mod telemetry;
mod tokens;

use std::{fmt, future::ready, sync::Arc, time::Duration};

use rand_core::Rng as _;
use ron_core::{Env, Rng, seam::BoxFuture, shutdown::Shutdown};

use super::App;

/// What a drill found: nothing, or what was expected and what came instead.
type Verdict = Result<(), String>;

/// What a drill is given.
struct Bench {
    /// The node's own, but for the probes: what the parts tell of themselves would be taken for the pool's.
    env: Env,
    rng: Rng,
}

type Drill = for<'a> fn(&'a mut Bench) -> BoxFuture<'a, Verdict>;

const DRILLS: &[(&str, Drill)] = &[
    ("queue", |bench| Box::pin(queue::drill(bench))),
    ("shutdown", |bench| Box::pin(shutdown::drill(bench))),
    ("readiness", |bench| {
        Box::pin(ready(readiness::drill(bench)))
    }),
    ("bus", |bench| Box::pin(ready(bus::drill(bench)))),
    ("snapshot", |bench| Box::pin(snapshot::drill(bench))),
    ("backoff", |bench| Box::pin(ready(backoff::drill(bench)))),
    ("deadline", |bench| Box::pin(ready(deadline::drill(bench)))),
    ("rate", |bench| Box::pin(ready(rate::drill(bench)))),
    ("front", |bench| Box::pin(front::drill(bench))),
    ("admitted", |bench| Box::pin(admitted::drill(bench))),
    ("ops", |bench| Box::pin(ops::drill(bench))),
    ("telemetry", |bench| Box::pin(telemetry::drill(bench))),
    ("connection", |bench| Box::pin(connection::drill(bench))),
    ("serve", |bench| Box::pin(serve::drill(bench))),
    ("body", |bench| Box::pin(body::drill(bench))),
    ("problem", |bench| Box::pin(problem::drill(bench))),
    ("tokens", |bench| Box::pin(ready(tokens::drill(bench)))),
    ("passport", |bench| Box::pin(ready(passport::drill(bench)))),
    ("jwks", |bench| Box::pin(ready(jwks::drill(bench)))),
    ("env", |bench| Box::pin(env::drill(bench))),
    ("config", |bench| Box::pin(ready(config::drill(bench)))),
    ("lifecycle", |bench| {
        Box::pin(ready(lifecycle::drill(bench)))
    }),
    ("crew", |bench| Box::pin(crew::drill(bench))),
    ("supervisor", |bench| Box::pin(supervisor::drill(bench))),
];

/// No drill takes longer, whatever happens to its node meanwhile.
const LONGEST: Duration = Duration::from_secs(20);

/// One drill after the other in random order, again and again, until it is told to stop.
pub async fn run(app: Arc<App>, stop: Shutdown) {
    let env = &app.env;
    env.probe("drill.began", DRILLS.len() as u64, format_args!(""));
    let mut bench = Bench {
        env: quiet::quiet(env),
        rng: env.rng(),
    };
    let mut passed = 0;
    loop {
        for (name, drill) in bench.shuffled(DRILLS) {
            if stop.is_triggered() {
                return;
            }
            let verdict = tokio::select! {
                biased;
                verdict = drill(&mut bench) => verdict,
                () = env.sleep(LONGEST) => Err(format!("it has not ended after {LONGEST:?}")),
            };
            match verdict {
                Ok(()) => {
                    passed += 1;
                    env.probe("drill.passed", passed, format_args!("{name}"));
                }
                Err(why) => env.probe("drill.broken", 0, format_args!("{name}.{why}")),
            }
            let rest = bench.ms(10, 60);
            env.sleep(rest).await;
        }
    }
}

impl Bench {
    /// Evenly from `lo..=hi`.
    fn pick(&mut self, lo: u64, hi: u64) -> u64 {
        let span = u128::from(hi - lo) + 1;
        lo + ((span * u128::from(self.rng.next_u64())) >> 64) as u64
    }

    fn index(&mut self, len: usize) -> usize {
        self.pick(0, len as u64 - 1) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.pick(1, n) == 1
    }

    fn ms(&mut self, lo: u64, hi: u64) -> Duration {
        Duration::from_micros(self.pick(lo * 1000, hi * 1000))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    fn shuffled<T: Copy>(&mut self, all: &[T]) -> Vec<T> {
        let mut all = all.to_vec();
        for last in (1..all.len()).rev() {
            let other = self.index(last + 1);
            all.swap(last, other);
        }
        all
    }
}

/// Says what was expected where something else came.
fn agree<T: PartialEq + fmt::Debug>(what: &str, came: T, expected: T) -> Verdict {
    if came == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, came {came:?}"))
}

/// As `agree`, where more than one value is right.
fn demand(holds: bool, told: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(told()) }
}

/// What a timer may be late by though nothing is wrong: the point `timer.late`, and a clock whose rate was changed.
fn slack(wait: Duration) -> Duration {
    Duration::from_millis(2) + wait / 10
}
