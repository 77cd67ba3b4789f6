//! Once the last failed task is running again, readiness is back within a second.

use std::{collections::BTreeMap, time::Duration};

use super::{Oracle, OracleKind, Verdict, WorldView};
use crate::{
    scenario::Scenario,
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "ready.back_after_relaunch",
    law: "readiness is back within 1 s of the relaunch",
    premise: Scenario::only_tasks_fail,
    make: || Box::new(ReadyAgain::default()),
};

/// The second of the law, and what a poll of `/readyz` may add.
const WITHIN: Duration = Duration::from_millis(1000 + 250);

#[derive(Default)]
struct ReadyAgain {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    down: i64,
    not_ready: bool,
    /// Since when nothing is down although it is not ready.
    waiting_since: Option<Duration>,
}

impl Node {
    fn settle(&mut self, at: Duration) {
        if self.down > 0 || !self.not_ready {
            self.waiting_since = None;
        } else {
            self.waiting_since.get_or_insert(at);
        }
    }
}

impl Oracle for ReadyAgain {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let Some(id) = event.node else { return Ok(()) };
        let node = self.nodes.entry(id).or_default();
        match &event.what {
            What::Probe {
                event: "task.failed",
                ..
            } => node.down += 1,
            What::Probe {
                event: "task.relaunched",
                ..
            } => node.down -= 1,
            What::Ready { ready, .. } => node.not_ready = !ready,
            // A process that ends, for whatever reason, is judged anew when it starts.
            What::ShutdownAsked
            | What::Died { .. }
            | What::Stopped { .. }
            | What::Started { .. } => {
                *node = Node::default();
                return Ok(());
            }
            _ => return Ok(()),
        }
        node.settle(event.at);
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for (id, node) in &self.nodes {
            if let Some(since) = node.waiting_since
                && view.at > since + WITHIN
            {
                let name = &view.nodes[*id as usize].name;
                return Err(format!(
                    "{name}: every task runs since {:.3}s, still not ready",
                    since.as_secs_f64()
                ));
            }
        }
        Ok(())
    }
}
