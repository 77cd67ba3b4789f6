//! When keys are fetched: the times of a plain schedule, walked through by jumps of a made-up clock.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ron_core::{
    auth::{JwksCache, JwksPolicy, KidHash, Next},
    backoff::Backoff,
};

use super::{Bench, Verdict, agree, demand};

struct Reference {
    policy: JwksPolicy,
    /// When the next fetch is due: at the earliest and at the latest.
    due: (Instant, Instant),
    drop_at: Option<Instant>,
    fetching: bool,
    last_fetch: Option<Instant>,
    failures: u32,
    /// When an unknown key was first named during the fetch under way.
    named: Option<Instant>,
}

pub fn drill(bench: &mut Bench) -> Verdict {
    let policy = draw(bench);
    let mut now = bench.env.now();
    let mut cache = JwksCache::new(policy, now);
    let mut reference = Reference {
        policy,
        due: (now, now),
        drop_at: None,
        fetching: false,
        last_fetch: None,
        failures: 0,
        named: None,
    };
    for n in 0..80 {
        let next = cache.poll_next(now);
        reference
            .check(next, now)
            .map_err(|why| format!("{why} ({policy:?})"))?;
        match next {
            Next::Drop => continue,
            Next::Fetch | Next::WaitForFetch if bench.one_in(4) => {}
            Next::Fetch | Next::WaitForFetch => {
                now += bench.ms(0, 2000);
                if bench.one_in(2) {
                    let max_age = bench
                        .one_in(2)
                        .then(|| Duration::from_secs(bench.pick(0, 5000)));
                    cache.handle_fetched(now, max_age, &BTreeSet::new(), &mut bench.rng);
                    reference.fetched(now, max_age);
                } else {
                    cache.handle_failed(now, &mut bench.rng);
                    reference.failed(now);
                }
            }
            Next::Wait(_) => {}
        }
        if bench.one_in(4) {
            cache.handle_unknown_kid(now, KidHash::of(&format!("unknown {n}")));
            reference.unknown_kid(now);
        }
        // To just before what is next, to it, or anywhere.
        now = match (next, bench.pick(0, 3)) {
            (Next::Wait(at), 0) => now.max(at - Duration::from_nanos(1)),
            (Next::Wait(at), 1) => now.max(at),
            _ => now + Duration::from_millis(bench.pick(0, 40_000)),
        };
    }
    Ok(())
}

fn draw(bench: &mut Bench) -> JwksPolicy {
    let secs = Duration::from_secs;
    JwksPolicy {
        timeout: secs(2),
        fresh_for: secs(bench.pick(10, 600)),
        max_stale: secs(bench.pick(20, 4000)),
        unknown_kid_cooldown: secs(bench.pick(1, 60)),
        retry: Backoff::plus(bench.ms(1, 400), secs(bench.pick(1, 30))),
    }
}

impl Reference {
    fn check(&mut self, came: Next, now: Instant) -> Verdict {
        if self.drop_at.is_some_and(|at| now >= at) {
            self.drop_at = None;
            return agree("keys that are too old", came, Next::Drop);
        }
        if self.fetching {
            return agree("while it fetches", came, Next::WaitForFetch);
        }
        let (earliest, latest) = self.due;
        let by_drop = |at: Instant| self.drop_at.map_or(at, |drop| drop.min(at));
        match came {
            Next::Fetch => {
                demand(now >= earliest, || {
                    format!("a fetch came {:?} early", earliest - now)
                })?;
                (self.fetching, self.last_fetch) = (true, Some(now));
                self.named = None;
                Ok(())
            }
            Next::Wait(at) => {
                demand(now < latest, || {
                    format!("no fetch came, {:?} late", now - latest)
                })?;
                let (from, to) = (by_drop(earliest), by_drop(latest));
                demand((from..=to).contains(&at), || {
                    format!(
                        "wait: expected {:?} to {:?}, came {:?}",
                        from - now,
                        to - now,
                        at - now
                    )
                })?;
                // From now on it is known where in the window the jitter fell.
                if self.drop_at.is_none_or(|drop| at < drop) {
                    self.due = (at, at);
                }
                Ok(())
            }
            other => Err(format!("expected a fetch or a wait, came {other:?}")),
        }
    }

    /// Again when seven to eight tenths of what is fresh are over; a minute is fresh at least, what may be stale at most.
    fn fetched(&mut self, now: Instant, max_age: Option<Duration>) {
        let most = self.policy.max_stale;
        let fresh = max_age.unwrap_or(self.policy.fresh_for);
        let fresh = fresh.max(Duration::from_secs(60)).min(most);
        self.due = (now + fresh * 7 / 10, now + fresh * 8 / 10);
        self.drop_at = Some(now + most);
        (self.fetching, self.failures) = (false, 0);
        if let Some(at) = self.named {
            self.unknown_kid(at);
        }
    }

    /// Twice as long each time, up to the cap, and up to the first wait more by chance.
    fn failed(&mut self, now: Instant) {
        let Backoff { min, max, .. } = self.policy.retry;
        let mut wait = min;
        for _ in 0..self.failures {
            wait = (wait * 2).min(Duration::from_secs(3600));
        }
        let wait = wait.min(max);
        self.due = (now + wait, now + wait + min);
        self.failures += 1;
        self.fetching = false;
    }

    fn unknown_kid(&mut self, now: Instant) {
        let last = self.last_fetch;
        if self.fetching {
            let during = last.is_some_and(|began| began < now);
            self.named = self.named.or(during.then_some(now));
            return;
        }
        let cooled = last.map_or(now, |at| at + self.policy.unknown_kid_cooldown);
        let asked = cooled.max(now);
        self.due = (self.due.0.min(asked), self.due.1.min(asked));
    }
}
