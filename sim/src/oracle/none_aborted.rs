//! Where nothing hinders a drain, every task ends by itself: an abort means that one never heard.

use super::{Oracle, OracleKind, Verdict};
use crate::{
    scenario::Scenario,
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.none_aborted",
    law: "an unhindered drain aborts nobody",
    premise: unhindered,
    make: || Box::new(NoneAborted),
};

/// What can keep a task from its end for longer than a drain waits.
const HINDERS: &[&str] = &["net.", "backend.", "cpu.", "disk.stall", "node.pause"];

fn unhindered(scenario: &Scenario) -> bool {
    let hinders = |kind: &str| HINDERS.iter().any(|name| kind.starts_with(name));
    !scenario.fault.iter().any(|fault| hinders(&fault.kind))
}

struct NoneAborted;

impl Oracle for NoneAborted {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Stopped { report } if report.aborted > 0 => {
                Err(format!("{} tasks had to be aborted", report.aborted))
            }
            _ => Ok(()),
        }
    }
}
