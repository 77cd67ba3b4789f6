//! A request that names its deadline is answered by then, with whatever can be said by then.

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "http.deadline_kept",
    law: "an answer comes by the deadline that its request named",
    premise: EVERYWHERE,
    make: || Box::new(DeadlineKept),
};

/// For two ways over a healthy link, connecting and the scheduler.
const TOLERANCE_MS: u64 = 50;

struct DeadlineKept;

impl Oracle for DeadlineKept {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "client.hurried",
            id: asked_ms,
            detail: took_ms,
        } = &event.what
        else {
            return Ok(());
        };
        let took: u64 = took_ms.parse().unwrap_or(u64::MAX);
        if took > asked_ms + TOLERANCE_MS {
            return Err(format!(
                "a request that asked for {asked_ms} ms was answered after {took} ms"
            ));
        }
        Ok(())
    }
}
