//! What the records tell beside the tree: the keys' history and the results kept for replay.

use std::collections::BTreeMap;

use crate::{
    audit::{
        frames::Framed,
        record::{Event, OpId, Seq},
    },
    history::KeyHistory,
    op_ids::{Done, OpIds},
};

pub(super) struct Told {
    pub history: KeyHistory,
    pub op_ids: OpIds,
    wall_ms: u64,
    /// Strict: the intent has the id, the outcome has the result.
    intents: BTreeMap<Seq, (u64, String, OpId)>,
}

impl Told {
    pub fn new(op_ids: OpIds, wall_ms: u64) -> Told {
        Told {
            history: KeyHistory::default(),
            op_ids,
            wall_ms,
            intents: BTreeMap::new(),
        }
    }

    /// The next record of the log.
    pub fn record(&mut self, framed: &Framed<'_>) {
        let record = &framed.record;
        self.history.record(record.at_ms, &record.event);
        let (seq, found) = match &record.event {
            Event::Intent { seq, operation } => {
                if let Some(op_id) = &operation.op_id {
                    let found = (record.index, operation.tenant.clone(), op_id.clone());
                    self.intents.insert(*seq, found);
                }
                return;
            }
            Event::Outcome { seq, .. } => (*seq, self.intents.remove(seq)),
            Event::Operation { seq, operation, .. } => {
                let op_id = operation.op_id.clone();
                let found = |op_id| (record.index, operation.tenant.clone(), op_id);
                (*seq, op_id.map(found))
            }
            // Intents of an earlier life never have an outcome.
            Event::RestartGap { .. } | Event::Closed { .. } => {
                self.intents.clear();
                return;
            }
            _ => return,
        };
        if let Some((index, tenant, op_id)) = found
            && !framed.attachment.is_empty()
        {
            let done = Done {
                seq,
                index,
                result: framed.attachment.to_vec(),
            };
            let (at_ms, now) = (record.at_ms, self.wall_ms);
            self.op_ids
                .finish(&tenant, op_id.id, op_id.request, at_ms, done, now);
        }
    }
}
