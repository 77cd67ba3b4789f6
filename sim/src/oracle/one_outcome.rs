//! Every request has exactly one outcome, and an outcome that nobody can know says so.

use std::collections::BTreeMap;

use super::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "http.one_outcome",
    law: "every request gets exactly one outcome",
    premise: EVERYWHERE,
    make: || Box::new(OneOutcome::default()),
};

#[derive(Default)]
struct OneOutcome {
    open: BTreeMap<u64, &'static str>,
    last_request: Option<u64>,
}

impl Oracle for OneOutcome {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Request { request, op, .. } => {
                if self.last_request.is_some_and(|last| *request <= last) {
                    return Err(format!("request #{request} was sent twice"));
                }
                self.last_request = Some(*request);
                self.open.insert(*request, op);
                Ok(())
            }
            What::Outcome { request, .. } => match self.open.remove(request) {
                Some(_) => Ok(()),
                None => Err(format!("request #{request} has a second outcome")),
            },
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        match self.open.first_key_value() {
            Some((request, op)) => {
                let others = self.open.len() - 1;
                Err(format!(
                    "request #{request} ({op}) never had an outcome, nor had {others} others"
                ))
            }
            None => Ok(()),
        }
    }
}
