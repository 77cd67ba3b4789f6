//! Every task that was stopped by force is in the counters, and in the report of the stop.

use std::collections::BTreeMap;

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.aborts_counted",
    law: "every abort is counted",
    premise: EVERYWHERE,
    make: || Box::new(AbortsCounted::default()),
};

#[derive(Default)]
struct AbortsCounted {
    /// By node: aborts told by probe since the start.
    seen: BTreeMap<Option<u32>, u64>,
}

impl Oracle for AbortsCounted {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let seen = self.seen.entry(event.node).or_default();
        match &event.what {
            What::Started { .. } => *seen = 0,
            What::Probe {
                event: "task.aborted",
                ..
            } => *seen += 1,
            What::Stopped { report } if report.aborted != *seen => {
                return Err(format!(
                    "{seen} tasks were aborted, {} counted",
                    report.aborted
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
