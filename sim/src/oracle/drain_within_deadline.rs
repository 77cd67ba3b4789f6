//! From the request to stop until the process has stopped, no more time passes than its drain phases
//! allow together, and nothing is started any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "drain.within_deadline",
    law: "a drain never outlasts its deadline and starts nothing",
    premise: EVERYWHERE,
    make: || Box::new(DrainWithinDeadline::default()),
};

/// For the scheduler between a deadline and what it sets off, and for a drifting clock.
const TOLERANCE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct DrainWithinDeadline {
    asked: BTreeMap<Option<u32>, Duration>,
    draining: BTreeSet<Option<u32>>,
}

impl Oracle for DrainWithinDeadline {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::ShutdownAsked => {
                self.asked.entry(event.node).or_insert(event.at);
            }
            What::Probe {
                event: "shutdown", ..
            } => {
                self.draining.insert(event.node);
            }
            What::Probe {
                event: "task.relaunched",
                detail,
                ..
            } if self.draining.contains(&event.node) => {
                return Err(format!("{detail} was restarted in a drain"));
            }
            What::Died { .. } | What::Started { .. } => {
                self.asked.remove(&event.node);
                self.draining.remove(&event.node);
            }
            // A paused process cannot drain: its clock starts again when it may run.
            What::Healed { text } if text.starts_with("node.pause") => {
                if let Some(asked) = self.asked.get_mut(&event.node) {
                    *asked = event.at;
                }
            }
            What::Stopped { report } => {
                if let Some(asked) = self.asked.remove(&event.node) {
                    let took = event.at - asked;
                    if took > report.allowed + TOLERANCE {
                        return Err(format!(
                            "the drain took {took:?}, its deadlines allow {:?}",
                            report.allowed
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, view: &super::WorldView) -> Verdict {
        match self.asked.first_key_value() {
            Some((node, asked)) => {
                let name = node.map_or("world", |n| view.nodes[n as usize].name.as_str());
                Err(format!(
                    "{name} was asked to stop at {:.3}s and never did",
                    asked.as_secs_f64()
                ))
            }
            None => Ok(()),
        }
    }
}
