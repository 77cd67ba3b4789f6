//! After an orderly stop no task of the process is alive.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.none_alive_after_stop",
    law: "after Stopped no task is alive",
    premise: EVERYWHERE,
    make: || Box::new(NoneAlive),
};

struct NoneAlive;

impl Oracle for NoneAlive {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Stopped { report } if !report.alive.is_empty() => Err(format!(
                "{} tasks outlived the stop: {}",
                report.alive.len(),
                report.alive.join(", ")
            )),
            _ => Ok(()),
        }
    }
}
