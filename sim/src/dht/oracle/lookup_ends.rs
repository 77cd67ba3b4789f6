//! Every lookup ends by its deadline, with what was asked for or a typed error.

use std::{collections::BTreeMap, time::Duration};

use super::Running;
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.lookup_ends",
    law: "a lookup ends by its deadline with a value, providers, the k closest or a typed error",
    premise: EVERYWHERE,
    make: || Box::new(LookupEnds::default()),
};

/// What a busy machine may add.
const SLACK: Duration = Duration::from_millis(100);

const OUTCOMES: &[&str] = &[
    "closest",
    "found",
    "not_found",
    "no_peers",
    "unreachable",
    "timeout",
    "hop_exceeded",
    "too_many_requests",
];

#[derive(Default)]
struct LookupEnds {
    running: Running,
    /// By node and number: when it must have ended. `None` if it may have gone with the worker that had it.
    open: BTreeMap<(u32, u64), Option<Duration>>,
}

impl Oracle for LookupEnds {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let at = event.at;
        if let Some(node) = self.running.event(event) {
            self.open.retain(|(on, _), _| *on != node);
            return Ok(());
        }
        let (Some(node), What::Probe { event, id, detail }) = (event.node, &event.what) else {
            return Ok(());
        };
        match *event {
            "dht.lookup_begun" => {
                let left = detail.rsplit(' ').next().and_then(|ms| ms.parse().ok());
                let left = left.ok_or_else(|| format!("{detail:?}"))?;
                let ends = at + Duration::from_millis(left) + SLACK;
                self.open.insert((node, *id), Some(ends));
                Ok(())
            }
            "dht.lookup_canceled" => {
                self.open.remove(&(node, *id));
                Ok(())
            }
            "dht.lookup_done" => {
                let outcome = detail.split(' ').nth(2).unwrap_or_default();
                if !OUTCOMES.contains(&outcome) {
                    return Err(format!("lookup {id} of node {node} ended as {outcome:?}"));
                }
                let k = self.running.get(node).map_or(usize::MAX, |o| o.k);
                if super::number(detail, "closest").is_none_or(|n| n as usize > k) {
                    return Err(format!("lookup {id} of node {node} found {detail:?}"));
                }
                match self.open.remove(&(node, *id)) {
                    None => Err(format!("lookup {id} of node {node} ended twice")),
                    Some(Some(ends)) if at > ends => Err(format!(
                        "lookup {id} of node {node} ended {:?} after its deadline",
                        at - ends + SLACK
                    )),
                    Some(_) => Ok(()),
                }
            }
            // A worker that dies takes its lookup with it; the caller is told.
            "task.failed" if detail.starts_with("worker") => {
                let its = self.open.iter_mut().filter(|((on, _), _)| *on == node);
                its.for_each(|(_, ends)| *ends = None);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        let open = self.open.iter();
        let mut due = open.filter_map(|(lookup, ends)| Some((lookup, (*ends)?)));
        match due.find(|(_, ends)| view.at > *ends) {
            None => Ok(()),
            Some(((node, number), ends)) => Err(format!(
                "lookup {number} of node {node} should have ended by {ends:?}"
            )),
        }
    }
}
