//! An orderly end leaves a checkpoint over everything that was appended.

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.checkpoint_covers_all",
    law: "after an orderly stop without aborts the last checkpoint covers every record",
    premise: EVERYWHERE,
    make: || Box::new(CoveredAtStop::default()),
};

#[derive(Default)]
struct CoveredAtStop {
    /// By node: records and how many of them are covered.
    ended: std::collections::BTreeMap<u32, (u64, u64)>,
}

impl Oracle for CoveredAtStop {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "kms.ended",
                id,
                detail,
            } => {
                let covered = detail.parse().unwrap_or(0);
                self.ended
                    .insert(event.node.unwrap_or_default(), (*id, covered));
            }
            What::Started { .. } => {
                self.ended.remove(&event.node.unwrap_or_default());
            }
            What::Stopped { report } if report.aborted == 0 => {
                let ended = self.ended.get(&event.node.unwrap_or_default());
                if let Some((records, covered)) = ended.filter(|(r, c)| r != c) {
                    return Err(format!(
                        "stopped in order with {records} records, {covered} of them covered"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
