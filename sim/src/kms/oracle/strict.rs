//! Under the policy `strict` no answer leaves without a durable record.

use super::{Told, sets};
use crate::{
    oracle::{Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.strict_has_record",
    law: "every answered use of a key names its durable record (policy strict)",
    premise: |scenario| sets(scenario, "audit.policy", Some("strict")),
    make: || Box::new(Strict),
};

struct Strict;

impl Oracle for Strict {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.signed" | "client.used",
                id,
                detail,
            } if Told::parse(detail).is_none_or(|told| told.index.is_none()) => {
                Err(format!("operation {id} was answered without a record"))
            }
            _ => Ok(()),
        }
    }
}
