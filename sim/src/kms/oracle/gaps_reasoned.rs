//! A gap says why: what a full queue lost is told as that, and nothing else is.

use std::collections::BTreeSet;

use ron_kms::audit::record::{Event as Told, GapReason};

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.gaps_reasoned",
    law: "a gap record gives a full queue as its reason for those operations whose event the queue dropped, and for no others",
    premise: EVERYWHERE,
    make: || Box::new(GapsReasoned::default()),
};

#[derive(Default)]
struct GapsReasoned {
    /// Node and number.
    dropped: BTreeSet<(u32, u64)>,
}

impl Oracle for GapsReasoned {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "kms.audit_dropped",
            id: seq,
            ..
        } = &event.what
        {
            let node = event.node.unwrap_or_default();
            self.dropped.insert((node, *seq));
        }
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            for record in records(node) {
                let Told::Gap {
                    first,
                    count,
                    reason,
                    ..
                } = record.event
                else {
                    continue;
                };
                let full = reason == GapReason::QueueFull;
                let other = (first..first + count)
                    .find(|seq| self.dropped.contains(&(node.id, *seq)) != full);
                if let Some(seq) = other {
                    return Err(format!(
                        "{} gives {reason:?} as the reason for {seq}, which a full queue dropped: {}",
                        record.index, !full
                    ));
                }
            }
        }
        Ok(())
    }
}
