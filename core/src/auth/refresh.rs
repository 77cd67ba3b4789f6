//! When to fetch the issuer's keys again: a pure state machine, and the thin loop that acts on it.
//!
//! Always: one fetch at a time; before the keys grow stale, again with backoff after a failure, and for an
//! unknown key id at most once per cool-down, however many such tokens arrive. Keys that could not be
//! renewed for too long are dropped: better to refuse than to trust a key that was revoked.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use rand_core::Rng as _;

use super::{Gate, JwksError, KeySet, MAX_JWKS_BYTES};
use crate::{Env, Rng, seam::HttpError, telemetry::Kernel};

#[derive(Clone, Copy, Debug)]
pub struct JwksPolicy {
    /// For one fetch, body included.
    pub timeout: Duration,
    /// How long keys count as fresh if the issuer does not say.
    pub fresh_for: Duration,
    /// How long keys are used at all without being renewed.
    pub usable_for: Duration,
    pub unknown_kid_cooldown: Duration,
    pub retry_base: Duration,
    pub retry_cap: Duration,
}

impl Default for JwksPolicy {
    fn default() -> Self {
        JwksPolicy {
            timeout: Duration::from_secs(2),
            fresh_for: Duration::from_secs(300),
            usable_for: Duration::from_secs(3600),
            unknown_kid_cooldown: Duration::from_secs(30),
            retry_base: Duration::from_millis(250),
            retry_cap: Duration::from_secs(30),
        }
    }
}

/// Order of calls: [`poll_next`](Self::poll_next); on `Fetch`, one of `handle_fetched` and `handle_failed`
/// later; `handle_unknown_kid` at any time.
#[derive(Clone, Debug)]
pub struct JwksCache {
    policy: JwksPolicy,
    in_flight: bool,
    due: Instant,
    last_attempt: Option<Instant>,
    drop_at: Option<Instant>,
    failures: u32,
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
        }
    }

    /// Keys are there already, from a fetch at that time: they grow stale from then on, whoever looks after them.
    pub fn holding(mut self, fetched_at: Option<Instant>) -> Self {
        self.drop_at = fetched_at.map(|at| at + self.policy.usable_for);
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

    /// `max_age` is what the issuer said, kept within reason: from a minute to `usable_for`.
    pub fn handle_fetched(&mut self, now: Instant, max_age: Option<Duration>) {
        let shortest = Duration::from_secs(60).min(self.policy.usable_for);
        let fresh = max_age.unwrap_or(self.policy.fresh_for);
        let fresh = fresh.clamp(shortest, self.policy.usable_for);
        self.in_flight = false;
        self.failures = 0;
        self.due = now + fresh * 4 / 5;
        self.drop_at = Some(now + self.policy.usable_for);
    }

    pub fn handle_failed(&mut self, now: Instant, rng: &mut Rng) {
        let backoff = self
            .policy
            .retry_base
            .saturating_mul(1 << self.failures.min(16));
        let base_ms = self.policy.retry_base.as_millis().max(1) as u64;
        let jitter = Duration::from_millis(rng.next_u64() % base_ms);
        self.in_flight = false;
        self.failures = self.failures.saturating_add(1);
        self.due = now + backoff.min(self.policy.retry_cap) + jitter;
    }

    pub fn handle_unknown_kid(&mut self, now: Instant) {
        let cooled = self
            .last_attempt
            .is_none_or(|at| now >= at + self.policy.unknown_kid_cooldown);
        if cooled && !self.in_flight {
            self.due = self.due.min(now);
        }
    }
}

/// Keeps the gate's keys fresh until `stop` resolves.
pub async fn refresh_loop(
    env: Env,
    gate: Arc<Gate>,
    url: http::Uri,
    policy: JwksPolicy,
    kernel: Kernel,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let mut cache = JwksCache::new(policy, env.now()).holding(gate.keys_fetched_at());
    let mut rng = env.rng();
    loop {
        match cache.poll_next(env.now()) {
            Next::Fetch => {
                let fetched = tokio::select! {
                    biased;
                    () = &mut stop => return,
                    fetched = fetch(&env, &url, policy.timeout) => fetched,
                };
                match fetched {
                    Ok((mut keys, max_age)) => {
                        keys.fetched_at = Some(env.now());
                        gate.set_keys(keys);
                        cache.handle_fetched(env.now(), max_age);
                    }
                    Err(error) => {
                        match error {
                            FetchError::Timeout => kernel.io_timeouts.with(&["auth_refresh"]).inc(),
                            _ => kernel.io_errors.with(&["auth"]).inc(),
                        }
                        tracing::warn!(%error, %url, "keys could not be refreshed");
                        cache.handle_failed(env.now(), &mut rng);
                    }
                }
            }
            Next::Drop => {
                tracing::error!(%url, "keys are too old to be trusted and were dropped");
                gate.set_keys(KeySet::default());
            }
            Next::Wait(at) => tokio::select! {
                biased;
                () = &mut stop => return,
                () = gate.unknown_kid.notified() => cache.handle_unknown_kid(env.now()),
                () = env.sleep_until(at) => {}
            },
            Next::WaitForFetch => unreachable!("this loop awaits each fetch"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("no answer in time")]
    Timeout,
    #[error("the request failed: {0}")]
    Http(HttpError),
    #[error("the issuer answered {0}")]
    Status(StatusCode),
    #[error("the answer broke off or is too large")]
    Body,
    #[error("the answer is unusable: {0}")]
    Document(JwksError),
}

async fn fetch(
    env: &Env,
    url: &http::Uri,
    timeout: Duration,
) -> Result<(KeySet, Option<Duration>), FetchError> {
    let deadline = env.now() + timeout;
    let mut request = http::Request::new(Bytes::new());
    *request.uri_mut() = url.clone();
    let response = env
        .http(request, deadline)
        .await
        .map_err(|error| match error {
            HttpError::Timeout { .. } => FetchError::Timeout,
            other => FetchError::Http(other),
        })?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_JWKS_BYTES).collect();
    let body = env
        .timeout_at(deadline, body)
        .await
        .map_err(|_| FetchError::Timeout)?;
    let body = body.map_err(|_| FetchError::Body)?.to_bytes();
    let keys = KeySet::parse(&body).map_err(FetchError::Document)?;
    Ok((keys, max_age(&parts.headers)))
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::CACHE_CONTROL)?.to_str().ok()?;
    let seconds = value
        .split(',')
        .find_map(|d| d.trim().strip_prefix("max-age="))?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
#[path = "refresh_tests.rs"]
mod tests;
