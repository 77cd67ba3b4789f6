//! A service that declares itself ready while workers restart keeps its word: once ready, it stays ready
//! until it is asked to stop or dies.

use std::collections::BTreeSet;

use super::{Oracle, OracleKind, Verdict};
use crate::{
    scenario::Scenario,
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "ready.never_drops",
    law: "once ready, ready until the process is asked to stop",
    premise: Scenario::only_tasks_fail,
    make: || Box::new(ReadyNeverDrops::default()),
};

#[derive(Default)]
struct ReadyNeverDrops {
    ready: BTreeSet<Option<u32>>,
}

impl Oracle for ReadyNeverDrops {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Ready { ready: true, .. } => {
                self.ready.insert(event.node);
            }
            What::Ready {
                ready: false,
                missing,
            } if self.ready.contains(&event.node) => {
                return Err(format!("readiness dropped: {}", missing.join(", ")));
            }
            What::ShutdownAsked | What::Died { .. } => {
                self.ready.remove(&event.node);
            }
            _ => {}
        }
        Ok(())
    }
}
