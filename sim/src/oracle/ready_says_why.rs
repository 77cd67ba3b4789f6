//! `/readyz` that says "no" names the gates that are missing.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "ready.says_why",
    law: "a /readyz that says no names what is missing",
    premise: EVERYWHERE,
    make: || Box::new(ReadySaysWhy),
};

struct ReadySaysWhy;

impl Oracle for ReadySaysWhy {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::ReadyUnexplained { body } => {
                Err(format!("not ready, and no gate is named: {body:?}"))
            }
            What::Ready {
                ready: false,
                missing,
            } if missing.is_empty() => Err("not ready, and no gate is named".to_owned()),
            _ => Ok(()),
        }
    }
}
