//! A service that declares itself unready while a task restarts is unready from the failure on; and every
//! service is from the moment it is asked to stop.

use std::{collections::BTreeMap, time::Duration};

use super::{Oracle, OracleKind, Verdict, WorldView};
use crate::{
    scenario::{NodeSpec, Scenario},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "ready.off_while_down",
    law: "not ready while a task is down, nor while draining",
    premise: declares_unready,
    make: || Box::new(ReadyOffWhileDown::default()),
};

/// Where tasks fail on purpose, each node must say that it is not ready meanwhile.
fn declares_unready(scenario: &Scenario) -> bool {
    let says = |node: &NodeSpec| node.config.get("ready_while_restarting") == Some(&false.into());
    !scenario.has_fault("task.panic") || scenario.node.iter().all(says)
}

/// For the scheduler between what happened and the gate that follows it.
const TOLERANCE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct ReadyOffWhileDown {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    ready: bool,
    down: i64,
    draining: bool,
    /// Since when it is ready and should not be.
    wrong_since: Option<(Duration, &'static str)>,
}

impl Node {
    fn settle(&mut self, at: Duration) {
        let why = match self {
            Node { draining: true, .. } => "it is asked to stop",
            Node { down, .. } if *down > 0 => "a task is down",
            _ => "",
        };
        if !self.ready || why.is_empty() {
            self.wrong_since = None;
        } else {
            self.wrong_since.get_or_insert((at, why));
        }
    }
}

impl Oracle for ReadyOffWhileDown {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let Some(id) = event.node else { return Ok(()) };
        let node = self.nodes.entry(id).or_default();
        match &event.what {
            What::Probe {
                event: "readiness",
                id: ready,
                ..
            } => node.ready = *ready == 1,
            What::Probe {
                event: "task.failed",
                ..
            } => node.down += 1,
            What::Probe {
                event: "task.relaunched",
                ..
            } => node.down -= 1,
            What::ShutdownAsked => node.draining = true,
            What::Started { .. } | What::Stopped { .. } | What::Died { .. } => {
                *node = Node::default();
            }
            _ => {}
        }
        node.settle(event.at);
        late(node, event.at)
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        self.nodes.values().try_for_each(|node| late(node, view.at))
    }
}

fn late(node: &Node, now: Duration) -> Verdict {
    match node.wrong_since {
        Some((since, why)) if now > since + TOLERANCE => Err(format!(
            "ready, although {why} since {:.3}s",
            since.as_secs_f64()
        )),
        _ => Ok(()),
    }
}
