//! When to fetch the issuer's keys again: a pure state machine, and the thin loop that acts on it.
//!
//! Always: one fetch at a time; before the keys grow stale, again with backoff after a failure, and for unknown key
//! ids at most once per cool-down, however many such tokens arrive; an id that the issuer did not have asks for
//! nothing for a while. Keys that could not be renewed for too long are dropped: better to refuse than to trust a
//! key that was revoked.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use rand_core::Rng as _;

use super::{
    Gate, KeySet, KeySource, KidHash,
    fetch::{FetchError, fetch},
};
use crate::{Env, Rng, backoff::Backoff, telemetry::Kernel};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JwksPolicy {
    /// For one fetch, the issuer's metadata and all bodies included.
    pub timeout: Duration,
    /// How long keys count as fresh if the issuer does not say.
    pub fresh_for: Duration,
    /// How long keys are used at all without being renewed.
    pub max_stale: Duration,
    pub unknown_kid_cooldown: Duration,
    pub retry: Backoff,
}

impl Default for JwksPolicy {
    fn default() -> Self {
        JwksPolicy {
            timeout: Duration::from_secs(2),
            fresh_for: Duration::from_secs(300),
            max_stale: Duration::from_secs(3600),
            unknown_kid_cooldown: UNKNOWN_KID_COOLDOWN,
            retry: Backoff::plus(Duration::from_millis(250), Duration::from_secs(30)),
        }
    }
}

/// An unknown key id has led to a fetch by then.
pub const UNKNOWN_KID_COOLDOWN: Duration = Duration::from_secs(30);
/// An issuer that says less is asked as if it had said this.
const LEAST_FRESH: Duration = Duration::from_secs(60);
/// For so many cool-downs an id that the issuer did not have asks for nothing.
const ABSENT_COOLDOWNS: u32 = 5;
/// Ids that wait for a fetch; one more shares it without being remembered.
pub(super) const MAX_ASKED: usize = 32;
/// Ids that are remembered as absent; one more pushes out the one that would be forgotten first.
const MAX_ABSENT: usize = 256;

/// Order of calls: [`poll_next`](Self::poll_next); on `Fetch`, one of `handle_fetched` and `handle_failed`
/// later; `handle_unknown_kid` at any time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JwksCache {
    policy: JwksPolicy,
    in_flight: bool,
    due: Instant,
    last_attempt: Option<Instant>,
    drop_at: Option<Instant>,
    failures: u32,
    /// Unknown ids since the last good answer, and when each was named first.
    asked: BTreeMap<KidHash, Instant>,
    /// Ids that the issuer did not have when it was asked, and until when that is believed.
    absent: BTreeMap<KidHash, Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Fetch,
    /// The keys are too old to be used: drop them.
    Drop,
    Wait(Instant),
    /// A fetch is under way; there is nothing to do before it ends.
    WaitForFetch,
}

impl JwksCache {
    pub fn new(policy: JwksPolicy, now: Instant) -> Self {
        JwksCache {
            policy,
            in_flight: false,
            due: now,
            last_attempt: None,
            drop_at: None,
            failures: 0,
            asked: BTreeMap::new(),
            absent: BTreeMap::new(),
        }
    }

    /// Keys are there already, from a fetch at that time: they grow stale from then on, whoever looks after them.
    pub fn holding(mut self, fetched_at: Option<Instant>) -> Self {
        self.drop_at = fetched_at.map(|at| at + self.policy.max_stale);
        self
    }

    pub fn poll_next(&mut self, now: Instant) -> Next {
        if self.drop_at.is_some_and(|at| now >= at) {
            self.drop_at = None;
            return Next::Drop;
        }
        if self.in_flight {
            return Next::WaitForFetch;
        }
        if now >= self.due {
            self.in_flight = true;
            self.last_attempt = Some(now);
            return Next::Fetch;
        }
        Next::Wait(self.drop_at.map_or(self.due, |at| at.min(self.due)))
    }

    /// `max_age` is what the issuer said, kept within reason: from a minute to `max_stale`. The next fetch comes when
    /// seven to eight tenths of it are over, so that many services do not ask at the same time.
    pub fn handle_fetched(
        &mut self,
        now: Instant,
        max_age: Option<Duration>,
        known: &BTreeSet<KidHash>,
        rng: &mut Rng,
    ) {
        let shortest = LEAST_FRESH.min(self.policy.max_stale);
        let fresh = max_age.unwrap_or(self.policy.fresh_for);
        let fresh = fresh.clamp(shortest, self.policy.max_stale);
        self.in_flight = false;
        self.failures = 0;
        self.due = now + fresh * (700 + (rng.next_u64() % 101) as u32) / 1000;
        self.drop_at = Some(now + self.policy.max_stale);
        self.absent
            .retain(|kid, until| now < *until && !known.contains(kid));
        let began = self.last_attempt;
        for (kid, at) in std::mem::take(&mut self.asked) {
            if known.contains(&kid) {
                continue;
            }
            // One that was named while the answer was on its way deserves another.
            match began.is_some_and(|began| began < at) {
                true => self.handle_unknown_kid(at, kid),
                false => self.remember_absent(now, kid),
            }
        }
    }

    pub fn handle_failed(&mut self, now: Instant, rng: &mut Rng) {
        let wait = self.policy.retry.delay(self.failures, rng);
        self.in_flight = false;
        self.failures = self.failures.saturating_add(1);
        self.due = now + wait;
    }

    pub fn handle_unknown_kid(&mut self, now: Instant, kid: KidHash) {
        if self.absent.get(&kid).is_some_and(|until| now < *until) {
            return;
        }
        if self.asked.len() < MAX_ASKED {
            self.asked.entry(kid).or_insert(now);
        }
        let cooled = self
            .last_attempt
            .map_or(now, |at| at + self.policy.unknown_kid_cooldown);
        if !self.in_flight {
            self.due = self.due.min(cooled.max(now));
        }
    }

    fn remember_absent(&mut self, now: Instant, kid: KidHash) {
        if self.absent.len() >= MAX_ABSENT {
            let first = self.absent.iter().min_by_key(|(_, until)| **until);
            if let Some((first, _)) = first.map(|(kid, until)| (*kid, *until)) {
                self.absent.remove(&first);
            }
        }
        let until = now + self.policy.unknown_kid_cooldown * ABSENT_COOLDOWNS;
        self.absent.insert(kid, until);
    }
}

/// Keeps the gate's keys fresh until `stop` resolves.
pub async fn refresh_loop(
    env: Env,
    gate: Arc<Gate>,
    source: KeySource,
    policy: JwksPolicy,
    kernel: Kernel,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let mut cache = JwksCache::new(policy, env.now()).holding(gate.keys_fetched_at());
    let mut rng = env.rng();
    let mut told = Told::default();
    loop {
        match cache.poll_next(env.now()) {
            Next::Fetch => {
                let fetched = tokio::select! {
                    biased;
                    () = &mut stop => return,
                    fetched = fetch(&env, &source, policy.timeout) => fetched,
                };
                told.tell(&kernel, &source, fetched.as_ref().err());
                match fetched {
                    Ok((mut keys, max_age)) => {
                        let known = keys.hashes();
                        keys.fetched_at = Some(env.now());
                        gate.set_keys(keys);
                        cache.handle_fetched(env.now(), max_age, &known, &mut rng);
                    }
                    Err(_) => cache.handle_failed(env.now(), &mut rng),
                }
            }
            Next::Drop => {
                tracing::error!("keys are too old to be trusted and were dropped");
                gate.set_keys(KeySet::default());
            }
            Next::Wait(at) => tokio::select! {
                biased;
                () = &mut stop => return,
                () = gate.asked.wait() => {
                    let now = env.now();
                    let asked = gate.asked.take();
                    asked.into_iter().for_each(|kid| cache.handle_unknown_kid(now, kid));
                }
                () = env.sleep_until(at) => {}
            },
            Next::WaitForFetch => unreachable!("this loop awaits each fetch"),
        }
    }
}

/// Every attempt is counted; a line is written when something changes, not each time that it has not.
#[derive(Default)]
struct Told {
    failing: Option<&'static str>,
}

impl Told {
    fn tell(&mut self, kernel: &Kernel, source: &KeySource, error: Option<&FetchError>) {
        let result = error.map(FetchError::reason);
        kernel.auth_refreshes.with(&[result.unwrap_or("ok")]).inc();
        match error {
            None => {}
            Some(FetchError::Timeout) => kernel.io_timeouts.with(&["auth_refresh"]).inc(),
            Some(_) => kernel.io_errors.with(&["auth"]).inc(),
        }
        let before = std::mem::replace(&mut self.failing, result);
        match error {
            Some(error) if before != result => {
                tracing::warn!(%error, %source, "keys could not be refreshed; those at hand stay in use");
            }
            None if before.is_some() => tracing::info!(%source, "keys are refreshed again"),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "refresh_tests.rs"]
mod tests;
