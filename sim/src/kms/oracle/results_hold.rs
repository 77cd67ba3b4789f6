//! What the service gave out is good: signatures verify, blobs open to what was wrapped, lists are whole.

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.results_hold",
    law: "a signature that was answered verifies, for its message alone and whatever its version may still do, and a wrapped blob opens to what went in",
    premise: EVERYWHERE,
    make: || Box::new(ResultsHold),
};

struct ResultsHold;

impl Oracle for ResultsHold {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.verified",
                id: 0,
                detail,
            } => Err(format!("a signature by {detail} does not verify")),
            What::Probe {
                event: "client.verify_refused",
                detail,
                ..
            } if detail.starts_with("version_disabled") || detail.starts_with("below_min") => {
                Err(format!("a signature is not verified: {detail}"))
            }
            What::Probe {
                event: "client.unwrapped",
                id: 0,
                detail,
            } => Err(format!("a blob under {detail} opened to something else")),
            What::Probe {
                event: "client.verified_wrong",
                id: 1,
                detail,
            } => Err(format!("{detail} is said to have signed what it never saw")),
            What::Probe {
                event: "client.checked",
                id: 0,
                detail,
            } => Err(format!("a customer found otherwise: {detail}")),
            _ => Ok(()),
        }
    }
}
