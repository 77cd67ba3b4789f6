//! What one tenant asks of another's keys is refused.

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.tenants_apart",
    law: "no tenant signs with, rotates or sees a key of another",
    premise: EVERYWHERE,
    make: || Box::new(TenantsApart),
};

struct TenantsApart;

impl Oracle for TenantsApart {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.crossed_tenants",
                id: status,
                detail,
            } => Err(format!("{detail} was answered {status}")),
            _ => Ok(()),
        }
    }
}
