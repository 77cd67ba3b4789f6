//! The pedant has nothing to say: every answer, count and record was exactly what its reference expected.
//!
//! What it compares is in [`crate::kms::pedant`]. Always: the first difference is the verdict, with what was asked, what
//! was expected and what came.

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.pedant_content",
    law: "asked anything at all in a calm world, the service answers, counts and records exactly what a plain reference of it expects",
    premise: EVERYWHERE,
    make: || Box::new(PedantContent),
};

struct PedantContent;

impl Oracle for PedantContent {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.pedant",
                id: 0,
                detail,
            } => Err(detail.clone()),
            _ => Ok(()),
        }
    }
}
