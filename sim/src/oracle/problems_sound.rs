//! Every refusal is a problem document that a caller can act on.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "http.problems_sound",
    law: "every refusal is a problem with a code, its status, a correlation id, and honest advice about trying again",
    premise: EVERYWHERE,
    make: || Box::new(ProblemsSound),
};

struct ProblemsSound;

impl Oracle for ProblemsSound {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.unsound_problem",
                detail,
                ..
            } => Err(detail.clone()),
            _ => Ok(()),
        }
    }
}
