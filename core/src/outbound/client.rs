//! A client of other services: what it asks ends in time, is asked again where that does no harm, and leaves alone
//! who is in trouble.
//!
//! The decisions are [`retry`](super::retry), [`breaker`](super::breaker) and [`destinations`](super::destinations);
//! this only acts on them. Always: each attempt passes the limits and the breaker of its destination, is counted
//! once by what came of it, and is reported once, also if its caller goes away.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;

use super::{
    Egress,
    breaker::{Ask, BreakerRules},
    destinations::{Destinations, Learnt, OutboundLimits, Refusal},
    retry::{RetryRules, Tried, is_idempotent},
};
use crate::{
    Env,
    admission::{HeldBody, Permit},
    deadline::Deadline,
    lock::{LEAF, LockDecl, RankedMutex},
    seam::HttpError,
    telemetry::{Kernel, Telemetry},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRules {
    pub retry: RetryRules,
    pub breaker: BreakerRules,
    pub limits: OutboundLimits,
}

/// Cheap to clone; clones share what they know of destinations.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    env: Env,
    kernel: Kernel,
    /// The `op` of its metrics.
    op: &'static str,
    egress: Egress,
    rules: ClientRules,
    destinations: RankedMutex<Destinations>,
}

const DESTINATIONS: LockDecl = LockDecl {
    name: "destinations",
    rank: LEAF,
    guards: "what a client knows of whom it asks",
};

/// Why a call has no answer. `unknown` if any of its attempts may have been acted on.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("not sent: the {} of the destination is in the way", by.name())]
    Refused {
        by: Refusal,
        retry_after: Duration,
        unknown: bool,
    },
    #[error("no answer after {attempts} attempts")]
    Failed {
        source: HttpError,
        attempts: u32,
        unknown: bool,
    },
}

impl CallError {
    /// True if the other side may have acted on the call.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            CallError::Refused { unknown, .. } | CallError::Failed { unknown, .. } => *unknown,
        }
    }
}

type Answer = http::Response<Body>;

impl Client {
    pub fn new(
        env: &Env,
        telemetry: &Telemetry,
        op: &'static str,
        egress: Egress,
        rules: ClientRules,
    ) -> Client {
        let destinations = Destinations::new(rules.breaker, rules.limits);
        Client(Arc::new(Shared {
            env: env.clone(),
            kernel: telemetry.kernel().clone(),
            op,
            egress,
            rules,
            destinations: RankedMutex::new(DESTINATIONS, destinations),
        }))
    }

    /// Asks until there is an answer, or no attempt left that does no harm. An answer is in flight until its body
    /// has been read or dropped.
    pub async fn call(
        &self,
        request: http::Request<Bytes>,
        deadline: Deadline,
    ) -> Result<Answer, CallError> {
        let shared = &*self.0;
        let idempotent = is_idempotent(request.method(), request.headers());
        let (mut attempt, mut unknown) = (0, false);
        loop {
            let result = shared
                .attempt(request.clone().map(Body::from), deadline, &mut unknown)
                .await;
            let tried = match &result {
                Ok(answer) => {
                    Tried::of_answer(answer.status(), answer.headers(), shared.env.wall())
                }
                Err(Stopped::Failed(error)) => Tried::of_error(error),
                Err(Stopped::Refused(..)) => Tried::Final,
            };
            let left = deadline.remaining(shared.env.now());
            let mut rng = shared.env.rng();
            let next = shared
                .rules
                .retry
                .next(attempt, tried, idempotent, left, &mut rng);
            attempt += 1;
            let Some(wait) = next else {
                return result.map_err(|stopped| stopped.told(attempt, unknown));
            };
            // What is left of a refusal is not read, and its place is free for the next attempt.
            drop(result);
            shared.kernel.backoff_retries.with(&[shared.op]).inc();
            shared.env.sleep(wait).await;
        }
    }

    /// Asks once: a body that is made as it is sent cannot be sent again.
    pub async fn stream(
        &self,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<Answer, CallError> {
        let mut unknown = false;
        let result = self.0.attempt(request, deadline, &mut unknown).await;
        result.map_err(|stopped| stopped.told(1, unknown))
    }
}

enum Stopped {
    Refused(Refusal, Duration),
    Failed(HttpError),
}

impl Stopped {
    fn told(self, attempts: u32, unknown: bool) -> CallError {
        match self {
            Stopped::Refused(by, retry_after) => CallError::Refused {
                by,
                retry_after,
                unknown,
            },
            Stopped::Failed(source) => CallError::Failed {
                source,
                attempts,
                unknown,
            },
        }
    }
}

impl Shared {
    async fn attempt(
        &self,
        mut request: http::Request<Body>,
        deadline: Deadline,
        unknown: &mut bool,
    ) -> Result<Answer, Stopped> {
        let (now, wall) = (self.env.now(), self.env.wall());
        let (mut deadline, _) = Deadline::from_headers(request.headers(), now, wall, deadline);
        if deadline.is_past(now) {
            self.count("timeout");
            return Err(Stopped::Failed(HttpError::Timeout { sent: false }));
        }
        if let Some(limit) = self.rules.retry.attempt_timeout {
            deadline = deadline.shrink(Deadline::after(now, limit));
        }
        deadline.write_to(request.headers_mut(), now, wall);
        let mut entered = self.enter(request.uri(), now)?;
        let answer = self
            .env
            .http_via(&self.egress, request, deadline.instant())
            .await;
        let (outcome, learnt) = judge(&answer);
        match &answer {
            Err(HttpError::Timeout { .. }) => self.kernel.io_timeouts.with(&[self.op]).inc(),
            Err(HttpError::Connect { .. } | HttpError::Lost { .. }) => {
                self.kernel.io_errors.with(&[self.op]).inc();
            }
            _ => {}
        }
        let permit = entered.leave(outcome, learnt);
        match answer {
            Ok(answer) => Ok(answer.map(|body| match permit {
                Some(permit) => Body::new(HeldBody::new(body, permit)),
                None => body,
            })),
            Err(error) => {
                *unknown |= error.outcome_unknown();
                Err(Stopped::Failed(error))
            }
        }
    }

    fn enter(&self, uri: &http::Uri, now: std::time::Instant) -> Result<Entered<'_>, Stopped> {
        let to = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
            // To be told what is wrong with it by whoever sends it.
            _ => String::new(),
        };
        let entered = self.destinations.lock().enter(&to, now);
        match entered {
            Ok((ask, permit)) => Ok(Entered {
                shared: self,
                to,
                ask,
                permit: Some(permit),
            }),
            Err((refusal, wait)) => {
                self.count(refusal.name());
                Err(Stopped::Refused(refusal, wait))
            }
        }
    }

    fn count(&self, outcome: &str) {
        let counters = &self.kernel.outbound_requests;
        counters.with(&[self.op, outcome]).inc();
    }
}

/// The label of an outcome, and what it says about the destination.
fn judge(answer: &Result<Answer, HttpError>) -> (&'static str, Learnt) {
    match answer {
        Ok(answer) => match answer.status().as_u16() {
            ..=299 => ("2xx", Learnt::Answered),
            300..=399 => ("3xx", Learnt::Answered),
            400..=499 => ("4xx", Learnt::Answered),
            // It is there, and cannot do this at all.
            501 | 505 => ("5xx", Learnt::Answered),
            _ => ("5xx", Learnt::Failed),
        },
        Err(HttpError::Connect { .. }) => ("connect", Learnt::Failed),
        Err(HttpError::Timeout { .. }) => ("timeout", Learnt::Failed),
        Err(HttpError::Lost { .. }) => ("lost", Learnt::Failed),
        Err(HttpError::Forbidden { .. }) => ("forbidden", Learnt::Nothing),
        Err(HttpError::Invalid(_)) => ("invalid", Learnt::Nothing),
    }
}

/// An attempt that is under way; dropped before its end, it tells that nothing was learnt.
struct Entered<'a> {
    shared: &'a Shared,
    to: String,
    ask: Ask,
    permit: Option<Permit>,
}

impl Entered<'_> {
    fn leave(&mut self, outcome: &str, learnt: Learnt) -> Option<Permit> {
        let shared = self.shared;
        let now = shared.env.now();
        let opened = shared
            .destinations
            .lock()
            .report(&self.to, self.ask, learnt, now);
        shared.count(outcome);
        if opened {
            let counters = &shared.kernel.outbound_breaker_opened;
            counters.with(&[shared.op]).inc();
            tracing::warn!(
                op = shared.op,
                to = self.to,
                "left alone: it fails too often"
            );
        }
        self.permit.take()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.permit.is_some() {
            drop(self.leave("cancelled", Learnt::Nothing));
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
