//! A body that is larger than the service allows is refused for that reason, and no other one is.

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "http.body_cap",
    law: "413 exactly for bodies larger than the cap",
    premise: EVERYWHERE,
    make: || Box::new(BodyCap::default()),
};

#[derive(Default)]
struct BodyCap {
    /// As the services told it; all of a world have the same.
    cap: Option<u64>,
}

impl Oracle for BodyCap {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "pool.body_cap",
                id,
                ..
            } => self.cap = Some(*id),
            What::Probe {
                event: "client.sized",
                id: bytes,
                detail: status,
            } => {
                let cap = self.cap.unwrap_or(u64::MAX);
                let refused = status == "413";
                // What is not even looked at is neither: busy, draining, late.
                let looked_at = refused || status == "200";
                if looked_at && refused != (*bytes > cap) {
                    return Err(format!(
                        "a body of {bytes} bytes was answered {status}, the cap is {cap}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
