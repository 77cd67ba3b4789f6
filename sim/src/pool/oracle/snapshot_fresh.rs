//! Whoever loads a snapshot sees what was published last.

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "snapshot.fresh",
    law: "a load sees the value that was published last",
    premise: EVERYWHERE,
    make: || Box::new(SnapshotFresh),
};

struct SnapshotFresh;

impl Oracle for SnapshotFresh {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "snapshot.loaded",
                id: loaded,
                detail: published,
            } if loaded.to_string() != *published => Err(format!(
                "version {published} was published, a load saw {loaded}"
            )),
            _ => Ok(()),
        }
    }
}
