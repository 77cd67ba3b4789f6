//! Which keys of the issuer a node can hold at a moment: what it was given last, unless that got lost on the way; none
//! at its start, and none once they are too old.
//!
//! It knows what the issuer answered, not what arrived. Always: what the node really holds is among the possible ones;
//! where both sides were left in peace there is one alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::calm::Calm;
use crate::{
    net::NodeId,
    trace::{Event, What},
};

/// How long keys are used that cannot be renewed.
pub const USABLE: Duration = Duration::from_secs(3600);
/// An answer has arrived by then, where nothing is in its way.
const ARRIVES: Duration = Duration::from_secs(1);
/// Nobody waits longer for one.
const WAITS: Duration = Duration::from_secs(3);
/// What is not possible any more is remembered for requests that began before.
const REMEMBERED: Duration = Duration::from_secs(30);
/// No clock of a scenario with tokens is wrong by more than one in so many.
pub const DRIFT: u32 = 1000;

/// A fetch of keys, as the issuer tells it.
pub struct Fetch {
    pub node: u32,
    /// Nothing if the answer was nonsense.
    pub good: Option<Good>,
}

pub struct Good {
    pub max_age_s: u64,
    pub keys: BTreeSet<String>,
}

impl Fetch {
    pub fn read(event: &Event) -> Option<Fetch> {
        let What::Probe {
            event: "issuer.asked",
            detail,
            ..
        } = &event.what
        else {
            return None;
        };
        let mut words = detail.split(' ');
        let who = words.next()?;
        let node = (0..256).find(|id| NodeId(*id).default_ip().to_string() == who)?;
        let good = (words.next()? == "good").then(|| {
            let max_age_s = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            let keys = words.next().unwrap_or_default().split(',');
            Good {
                max_age_s,
                keys: keys.map(str::to_owned).collect(),
            }
        });
        Some(Fetch { node, good })
    }
}

#[derive(Default)]
pub struct HeldKeys {
    issuer: Option<u32>,
    nodes: BTreeMap<u32, Vec<Possible>>,
}

struct Possible {
    /// Nothing: it has none.
    keys: Option<BTreeSet<String>>,
    since: Duration,
    /// It is looked at once whether it arrived.
    looked: bool,
    gone: Option<Duration>,
}

impl HeldKeys {
    /// To be called for every event, before `calm` learns of it.
    pub fn note(&mut self, event: &Event, calm: &Calm) {
        self.settle(event.at, calm);
        if let Some(fetch) = Fetch::read(event) {
            self.issuer = event.node;
            let possible = self.nodes.entry(fetch.node).or_default();
            if let Some(good) = fetch.good {
                possible.push(Possible {
                    keys: Some(good.keys),
                    since: event.at,
                    looked: false,
                    gone: None,
                });
            }
        }
        if let (Some(node), What::Started { .. }) = (event.node, &event.what) {
            let possible = self.nodes.entry(node).or_default();
            end_all(possible, event.at);
            possible.push(Possible {
                keys: None,
                since: event.at,
                looked: true,
                gone: None,
            });
        }
    }

    /// What arrived for certain replaces all before it.
    fn settle(&mut self, now: Duration, calm: &Calm) {
        let Some(issuer) = self.issuer else { return };
        for (node, possible) in &mut self.nodes {
            let quiet = calm.since_both(*node, issuer);
            for n in 0..possible.len() {
                let Possible { since, looked, .. } = possible[n];
                if looked || now < since + ARRIVES {
                    continue;
                }
                possible[n].looked = true;
                if quiet.is_some_and(|quiet| quiet < since) {
                    end_all(&mut possible[..n], since + ARRIVES);
                }
            }
            possible.retain(|p| p.gone.is_none_or(|gone| gone + REMEMBERED > now));
        }
    }

    /// What the node may have held at some time from `began` to `ended`.
    pub fn between(
        &self,
        node: u32,
        began: Duration,
        ended: Duration,
        calm: &Calm,
    ) -> Vec<Option<&BTreeSet<String>>> {
        let mut all = Vec::new();
        for possible in self.nodes.get(&node).into_iter().flatten() {
            if possible.gone.is_some_and(|gone| gone < began) {
                continue;
            }
            let Some(keys) = &possible.keys else {
                all.push(None);
                continue;
            };
            let drift = USABLE / DRIFT + ARRIVES;
            let dropped_from = possible.since + USABLE - drift;
            let dropped_by = possible.since + USABLE + drift + WAITS;
            // A node that was paused looks at its clock a moment after it goes on.
            let awake = calm
                .since(node)
                .is_some_and(|since| since + ARRIVES < began);
            if !(awake && began > dropped_by) {
                all.push(Some(keys));
            }
            if ended > dropped_from {
                all.push(None);
            }
        }
        all
    }
}

fn end_all(possible: &mut [Possible], at: Duration) {
    for one in possible.iter_mut().filter(|one| one.gone.is_none()) {
        one.gone = Some(at);
    }
}
