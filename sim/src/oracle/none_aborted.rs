//! Where nothing hinders a drain, every task ends by itself: an abort means that one never heard.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "tasks.none_aborted",
    law: "an unhindered drain aborts nobody",
    premise: EVERYWHERE,
    make: || Box::new(NoneAborted),
};

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
