//! No task is restarted more often than its budget allows in a minute.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.restart_budget",
    law: "a task is relaunched at most 10 times a minute, then at the slowest pace only",
    make: || Box::new(RestartBudget::default()),
};

const WINDOW: Duration = Duration::from_secs(60);
const BUDGET: usize = 10;
/// Past its budget a task is retried at the cap of its backoff (5 s, jittered down to 1.25 s).
const SLOWEST: Duration = Duration::from_millis(1_200);

#[derive(Default)]
struct RestartBudget {
    /// By node and task: when it was relaunched.
    relaunched: BTreeMap<(Option<u32>, u64), VecDeque<Duration>>,
}

impl Oracle for RestartBudget {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if matches!(event.what, What::Started { .. }) {
            self.relaunched.retain(|(node, _), _| *node != event.node);
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
