//! A job that a service accepted is finished, failed, or counted as lost: none just disappears.
//!
//! Jobs tell their steps by probe (`job.accepted`, `job.done`, `job.failed`, `job.lost`). A process that
//! dies takes its jobs with it; their clients know nothing, which is an outcome of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "job.nothing_lost",
    law: "an accepted job is done, failed or counted as lost, exactly once",
    premise: EVERYWHERE,
    make: || Box::new(NothingLost::default()),
};

#[derive(Default)]
struct NothingLost {
    /// By node: jobs accepted and not yet settled.
    open: BTreeMap<Option<u32>, BTreeSet<u64>>,
}

impl Oracle for NothingLost {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let open = self.open.entry(event.node).or_default();
        match &event.what {
            What::Probe {
                event: "job.accepted",
                id,
                ..
            } if !open.insert(*id) => Err(format!("job {id} was accepted twice")),
            What::Probe {
                event: "job.done" | "job.failed" | "job.lost",
                id,
                ..
            } if !open.remove(id) => Err(format!("job {id} was settled twice, or never accepted")),
            What::Died { .. } => {
                open.clear();
                Ok(())
            }
            What::Stopped { .. } if !open.is_empty() => {
                let (count, first) = (open.len(), open.first().copied().unwrap_or_default());
                Err(format!(
                    "{count} accepted jobs vanished in an orderly stop, the first is {first}"
                ))
            }
            _ => Ok(()),
        }
    }
}
