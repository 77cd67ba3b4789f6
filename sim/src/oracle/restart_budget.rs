//! No task is restarted more often than its budget allows in a minute, one that fails more often is said to, and
//! none waits longer for its restart than the longest backoff.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.restart_budget",
    law: "a task is relaunched at most 10 times a minute, then escalated and at the slowest pace only",
    premise: EVERYWHERE,
    make: || Box::new(RestartBudget::default()),
};

const WINDOW: Duration = Duration::from_secs(60);
const BUDGET: usize = 10;
/// Past its budget a task is retried at the cap of its backoff (5 s, jittered down to 1.25 s).
const SLOWEST: Duration = Duration::from_millis(1_200);

/// The cap of the backoff, and what a late timer may add.
const COMES_BACK_WITHIN: Duration = Duration::from_millis(5_000 + 250);

#[derive(Default)]
struct RestartBudget {
    /// By node and task: when it was relaunched.
    relaunched: BTreeMap<(Option<u32>, u64), VecDeque<Duration>>,
    /// When a task failed, over the last minute.
    failed: BTreeMap<(Option<u32>, u64), VecDeque<Duration>>,
    /// Tasks that are said to fail too often.
    escalated: BTreeSet<(Option<u32>, u64)>,
}

impl Oracle for RestartBudget {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if matches!(event.what, What::Started { .. }) {
            self.relaunched.retain(|(node, _), _| *node != event.node);
            self.escalated.retain(|(node, _)| *node != event.node);
            self.failed.retain(|(node, _), _| *node != event.node);
            return Ok(());
        }
        if let What::Probe {
            event: "task.failed",
            id,
            ..
        } = &event.what
        {
            let times = self.failed.entry((event.node, *id)).or_default();
            times.push_back(event.at);
            while times.front().is_some_and(|t| *t + WINDOW <= event.at) {
                times.pop_front();
            }
            return Ok(());
        }
        if let What::Probe {
            event: "task.escalated",
            id,
            ..
        } = &event.what
        {
            self.escalated.insert((event.node, *id));
            return Ok(());
        }
        let What::Probe {
            event: "task.relaunched",
            id,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        let task = (event.node, *id);
        if let Some(failed) = self.failed.get(&task) {
            let waited = event.at - failed.back().copied().unwrap_or(event.at);
            if waited > COMES_BACK_WITHIN {
                return Err(format!("{detail} waited {waited:?} for its restart"));
            }
            if failed.len() > BUDGET && !self.escalated.contains(&task) {
                let times = failed.len();
                return Err(format!(
                    "{detail} failed {times} times in a minute and was not escalated"
                ));
            }
        }
        let times = self.relaunched.entry((event.node, *id)).or_default();
        while times.front().is_some_and(|t| *t + WINDOW < event.at) {
            times.pop_front();
        }
        let too_soon = times.back().is_some_and(|t| event.at < *t + SLOWEST);
        let over = times.len() >= BUDGET && too_soon;
        times.push_back(event.at);
        if over {
            return Err(format!(
                "{detail} was relaunched {} times in a minute",
                times.len()
            ));
        }
        Ok(())
    }
}
