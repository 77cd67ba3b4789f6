//! Lookups keep to their bounds: hops, requests, hedges at a time, hedges of a node.

use std::{collections::BTreeMap, time::Duration};

use super::{Running, number};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.lookup_bounds",
    law: "a lookup has at most beta hedges under way, 120 requests and as many hops as its budget; the hedges of a node are at most a tenth of its requests and a burst of 4",
    premise: EVERYWHERE,
    make: || Box::new(Bounds::default()),
};

/// Hedges that a node may start before it has earned any.
const BURST: u64 = 4;
const MOST_REQUESTS: u64 = 120;

#[derive(Default)]
struct Bounds {
    running: Running,
    nodes: BTreeMap<u32, Sums>,
    /// Hedges under way by node and lookup: probe and when it is given up.
    hedges: BTreeMap<(u32, u64), Vec<(u64, Duration)>>,
    seen: u64,
}

#[derive(Default)]
struct Sums {
    plain: u64,
    hedges: u64,
}

impl Bounds {
    fn asked(&mut self, at: Duration, node: u32, lookup: u64, detail: &str) -> Verdict {
        let Some(rules) = self.running.get(node) else {
            return Ok(());
        };
        let wrong = || format!("{detail:?}");
        let mut words = detail.split(' ');
        let mut word = || words.next()?.parse::<u64>().ok();
        let (probe, hedge) = (word().ok_or_else(wrong)?, word().ok_or_else(wrong)? == 1);
        let until = at + Duration::from_millis(word().ok_or_else(wrong)?);
        self.seen += 1;
        let sums = self.nodes.entry(node).or_default();
        if !hedge {
            sums.plain += 1;
            return Ok(());
        }
        sums.hedges += 1;
        if sums.hedges * 100 > BURST * 100 + sums.plain * rules.hedge_percent {
            let Sums { plain, hedges } = sums;
            return Err(format!(
                "node {node} has started {hedges} hedges with {plain} requests; {} % and {BURST} are allowed",
                rules.hedge_percent
            ));
        }
        let open = self.hedges.entry((node, lookup)).or_default();
        open.retain(|(_, until)| *until > at);
        open.push((probe, until));
        if open.len() > rules.beta {
            let (now, beta) = (open.len(), rules.beta);
            return Err(format!(
                "lookup {lookup} of node {node} has {now} hedges under way; beta is {beta}"
            ));
        }
        Ok(())
    }
}

impl Oracle for Bounds {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn model(&self) -> Option<&'static str> {
        Some("dht_lookup")
    }

    fn spec(&mut self, event: &Event) -> Verdict {
        let at = event.at;
        let (Some(node), What::Probe { event, id, detail }) = (event.node, &event.what) else {
            return Ok(());
        };
        match *event {
            "spec.dht_lookup.asked" => self.asked(at, node, *id, detail),
            "spec.dht_lookup.answered" => {
                if let Some(open) = self.hedges.get_mut(&(node, *id)) {
                    open.retain(|(probe, _)| probe.to_string() != *detail);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let Some(node) = self.running.event(event) {
            self.nodes.remove(&node);
            self.hedges.retain(|(on, _), _| *on != node);
            return Ok(());
        }
        let (
            Some(node),
            What::Probe {
                event: "dht.lookup_done",
                id,
                detail,
            },
        ) = (event.node, &event.what)
        else {
            return Ok(());
        };
        self.hedges.remove(&(node, *id));
        let told = |name| number(detail, name).ok_or_else(|| format!("no {name} in {detail:?}"));
        let (hops, requests) = (told("hops")?, told("requests")?);
        let budget = self.running.get(node).map_or(u64::MAX, |o| o.hop_budget);
        if hops > budget {
            return Err(format!(
                "lookup {id} of node {node} went {hops} hops deep; {budget} are allowed"
            ));
        }
        if requests > MOST_REQUESTS {
            return Err(format!(
                "lookup {id} of node {node} made {requests} requests"
            ));
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        match self.seen {
            0 => Err("no request of a lookup was told: nothing was counted".to_owned()),
            _ => Ok(()),
        }
    }
}
