//! Since when a node is left in peace: what it promises about time it promises only then.

use std::{collections::BTreeMap, time::Duration};

use crate::trace::{Event, What};

/// A question from the time of trouble may be answered when it is over, to somebody who waits no more.
const AFTERMATH: Duration = Duration::from_secs(3);

#[derive(Default)]
pub struct Calm {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    down: bool,
    /// Faults in force, by their text, and how many of each.
    lasting: BTreeMap<String, u32>,
    /// When the last trouble is over.
    last: Duration,
}

impl Calm {
    pub fn note(&mut self, event: &Event) {
        if let (None, What::Phase { text }) = (event.node, &event.what) {
            if text == "all faults healed" {
                for node in self.nodes.values_mut() {
                    node.lasting.clear();
                    node.last = event.at + AFTERMATH;
                }
            }
            return;
        }
        let Some(id) = event.node else { return };
        let node = self.nodes.entry(id).or_default();
        let mut over = event.at;
        match &event.what {
            // A clock that is wrong troubles nobody's network.
            What::Fault { text } if text.starts_with("clock.") => return,
            What::Fault { text } if lasts(text) => {
                *node.lasting.entry(text.clone()).or_default() += 1;
            }
            What::Fault { .. } => {}
            What::Healed { text } => {
                if let Some(count) = node.lasting.get_mut(text) {
                    *count = count.saturating_sub(1);
                }
                node.lasting.retain(|_, count| *count > 0);
                over += AFTERMATH;
            }
            What::Died { .. } | What::Stopped { .. } | What::ShutdownAsked => node.down = true,
            What::Started { .. } => node.down = false,
            _ => return,
        }
        node.last = node.last.max(over);
    }

    /// `None` while it is not.
    pub fn since(&self, node: u32) -> Option<Duration> {
        match self.nodes.get(&node) {
            None => Some(Duration::ZERO),
            Some(node) if node.down || !node.lasting.is_empty() => None,
            Some(node) => Some(node.last),
        }
    }

    /// Both of them.
    pub fn since_both(&self, one: u32, other: u32) -> Option<Duration> {
        Some(self.since(one)?.max(self.since(other)?))
    }
}

/// Ends with a word of its own; the others end with the process that they strike, or at once.
fn lasts(fault: &str) -> bool {
    let at_once = fault.starts_with("net.reset") || fault.starts_with("net.half_open");
    (fault.starts_with("net.") && !at_once) || fault.starts_with("node.pause")
}
