//! The issuer's keys are asked for when they are due, and no more often.
//!
//! After a good answer: before it grows stale, or a cool-down after the last attempt if a token names an unknown key
//! that the issuer was not asked for lately.
//! After a bad one: with growing waits, from the shortest again once one was good. A node that is left in peace with its
//! issuer has keys, and says that it is ready; it asks again however long the issuer was away.

use std::{collections::BTreeMap, time::Duration};

use super::{
    calm::Calm,
    held_keys::{DRIFT, Fetch, HeldKeys, USABLE},
};
use crate::{
    kms::calls::bearer::Told,
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, Outcome, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "auth.keys_refreshed",
    law: "a node asks for keys when they are due, for unknown ones once per cool-down, after failures with growing waits; it is ready while it has some",
    premise: EVERYWHERE,
    make: || Box::new(KeysRefreshed::default()),
};

/// How long keys are fresh if the issuer does not say, and at least.
const FRESH: Duration = Duration::from_secs(300);
const FRESH_LEAST: Duration = Duration::from_secs(60);
const COOL_DOWN: Duration = Duration::from_secs(30);
/// A key that the issuer did not have is asked for again after so long at most.
const ABSENT: Duration = Duration::from_secs(150);
/// After a first failure, and at most; a wait is longer by up to the first.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// An attempt that nobody answers is given up after so long.
const ATTEMPT: Duration = Duration::from_secs(2);
/// What the way to the issuer and a start may take.
const SLACK: Duration = Duration::from_millis(1000);
/// A client has its answer by then, or never.
const TOLD: Duration = Duration::from_secs(5);
/// How long ago a poll of readiness may have been asked.
const POLLED: Duration = Duration::from_secs(1);

#[derive(Default)]
struct KeysRefreshed {
    calm: Calm,
    held: HeldKeys,
    issuer: Option<u32>,
    nodes: BTreeMap<u32, Pace>,
}

/// How one process has asked so far.
#[derive(Default)]
struct Pace {
    started: Duration,
    last: Option<Attempt>,
    /// When a token was last refused for an unknown key.
    nudged: Option<Duration>,
    /// A fetch that only such a token explains, which may be told a little later.
    early: Option<(Duration, String)>,
    /// By when such a token must have led to a fetch.
    owed: Option<Duration>,
    /// When each key was last named by a token that was refused for it.
    named: BTreeMap<String, Duration>,
}

#[derive(Clone, Copy)]
struct Attempt {
    at: Duration,
    /// For how long its answer is fresh, if it was good.
    fresh: Option<Duration>,
    /// Failures in a row up to this one; nobody knows if some were not seen.
    failures: Option<u32>,
}

impl Attempt {
    /// The least and the most time until the next one, if both sides are left in peace.
    fn wait(&self) -> (Duration, Duration) {
        let (least, most) = match (self.fresh, self.failures) {
            (Some(fresh), _) => (fresh * 7 / 10, fresh * 8 / 10),
            (None, Some(n)) => {
                let wait = RETRY.saturating_mul(1 << n.saturating_sub(1).min(16));
                (wait.min(RETRY_CAP), wait.min(RETRY_CAP) + RETRY + ATTEMPT)
            }
            (None, None) => (RETRY, RETRY_CAP + RETRY + ATTEMPT),
        };
        (least - least / DRIFT, most + most / DRIFT + SLACK)
    }
}

impl Oracle for KeysRefreshed {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        self.held.note(event, &self.calm);
        self.calm.note(event);
        if let Some(fetch) = Fetch::read(event) {
            self.issuer = event.node;
            return self.asked(event.at, &fetch);
        }
        let node = event.node.unwrap_or_default();
        match &event.what {
            What::Started { .. } => {
                let pace = Pace {
                    started: event.at,
                    ..Pace::default()
                };
                self.nodes.insert(node, pace);
                Ok(())
            }
            What::Ready { ready, missing } => self.said_ready(node, event.at, *ready, missing),
            What::Probe {
                event: "token.unknown_kid",
                detail,
                ..
            } => {
                self.nudge(event.at, detail);
                Ok(())
            }
            // It may have been such a token, and nobody will ever tell.
            What::Outcome {
                outcome: Outcome::Unknown,
                ..
            } => {
                self.nodes.values_mut().for_each(|pace| pace.early = None);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        let Some(issuer) = self.issuer else {
            return Ok(());
        };
        for node in super::nodes(view) {
            let quiet = self.calm.since_both(node.id, issuer);
            let (Some(quiet), Some(pace)) = (quiet, self.nodes.get(&node.id)) else {
                continue;
            };
            if let Some((fetched, why)) = &pace.early
                && view.at > *fetched + TOLD
            {
                return Err(why.clone());
            }
            if view.at > pace.due(quiet) {
                let (name, last) = (&node.name, pace.last.map_or(pace.started, |last| last.at));
                return Err(format!(
                    "{name} has not asked for keys since {last:?}, and is left in peace since {quiet:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Pace {
    /// The latest moment of the next attempt, for a node that is left in peace since `quiet`.
    fn due(&self, quiet: Duration) -> Duration {
        let anew = quiet + RETRY_CAP + RETRY + ATTEMPT + SLACK;
        match self.last {
            None => anew.max(self.started + ATTEMPT),
            Some(last) if quiet < last.at => {
                let due = last.at + last.wait().1;
                self.owed.map_or(due, |owed| owed.min(due))
            }
            Some(last) => anew.max(last.at + last.wait().1),
        }
    }
}

impl KeysRefreshed {
    fn asked(&mut self, at: Duration, fetch: &Fetch) -> Verdict {
        let issuer = self.issuer.unwrap_or_default();
        let quiet = self.calm.since_both(fetch.node, issuer);
        let pace = self.nodes.entry(fetch.node).or_default();
        // What was asked in trouble may be counted late, or not at all.
        let seen = |last: &Attempt| quiet.is_some_and(|quiet| quiet < last.at);
        let before = pace.last.filter(seen);
        let (fresh, failures) = match &fetch.good {
            Some(good) => (Some(fresh_for(good.max_age_s)), Some(0)),
            None => (None, before.and_then(|last| last.failures).map(|n| n + 1)),
        };
        pace.owed = None;
        pace.last = Some(Attempt {
            at,
            fresh,
            failures,
        });
        let Some(before) = before else {
            return Ok(());
        };
        let (waited, (least, most)) = (at - before.at, before.wait());
        if waited < least {
            let why = format!(
                "keys were asked for {waited:?} after the last time, {least:?} are due ({:?} failures)",
                before.failures
            );
            if waited < COOL_DOWN - COOL_DOWN / DRIFT {
                return Err(why);
            }
            let told = pace
                .nudged
                .is_some_and(|told| told + COOL_DOWN + SLACK > at);
            pace.early = (!told).then_some((at, why));
        }
        if waited > most {
            return Err(format!(
                "keys were asked for {waited:?} after the last time, {most:?} at most are allowed ({:?} failures)",
                before.failures
            ));
        }
        Ok(())
    }

    /// A token named a key that the node does not know.
    fn nudge(&mut self, at: Duration, detail: &str) {
        let Ok(told) = serde_json::from_str::<Told>(detail) else {
            return;
        };
        let Some(pace) = self.nodes.get_mut(&told.node) else {
            return;
        };
        pace.nudged = Some(at);
        let began = Duration::from_micros(told.began_us);
        pace.early.take_if(|(fetched, _)| began < *fetched);
        // Nobody can be asked for a key without a name.
        let (Some(kid), Some(last)) = (told.token.kid, pace.last) else {
            return;
        };
        // The issuer may have been asked for this one, just now or lately, and not have had it.
        let named = pace.named.insert(kid, at);
        let absent = |named: Duration| at < named.max(last.at) + ABSENT + ABSENT / DRIFT + SLACK;
        if began > last.at && !named.is_some_and(absent) {
            let cooled = last.at + COOL_DOWN + COOL_DOWN / DRIFT;
            pace.owed.get_or_insert(at.max(cooled) + SLACK);
        }
    }

    fn said_ready(&self, node: u32, at: Duration, ready: bool, missing: &[String]) -> Verdict {
        let held = self
            .held
            .between(node, at.saturating_sub(POLLED), at, &self.calm);
        let wants = missing.iter().any(|gate| gate.starts_with("auth_keys"));
        if held.is_empty() || !self.nodes.contains_key(&node) || self.issuer.is_none() {
            return Ok(());
        }
        if wants && held.iter().all(Option::is_some) {
            return Err("not ready for want of keys, although it has some".to_owned());
        }
        if ready && held.iter().all(Option::is_none) {
            return Err("ready, although it has no keys".to_owned());
        }
        Ok(())
    }
}

fn fresh_for(max_age_s: u64) -> Duration {
    let said = Some(max_age_s).filter(|seconds| *seconds > 0);
    let fresh = said.map_or(FRESH, Duration::from_secs);
    fresh.clamp(FRESH_LEAST, USABLE)
}
