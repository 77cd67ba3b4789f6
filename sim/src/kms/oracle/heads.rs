//! Versions of a key only grow, and no version is given twice.

use std::collections::BTreeMap;

use ron_kms::audit::record::{Event as Recorded, KeyChange};

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.heads_grow",
    law: "the versions of a key only grow: no two rotations give the same one, and the log tells them in order",
    premise: EVERYWHERE,
    make: || Box::new(Heads::default()),
};

#[derive(Default)]
struct Heads {
    /// By node and key: the newest version that was seen.
    seen: BTreeMap<(u32, String), u64>,
    /// Told to clients: by node and key, each version once.
    rotated: BTreeMap<(String, u64), u32>,
}

impl Oracle for Heads {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "kms.key_changed",
                id: head,
                detail: kid,
            } => {
                let node = event.node.unwrap_or_default();
                let seen = self.seen.entry((node, kid.clone())).or_default();
                if head < seen {
                    return Err(format!("the head of {kid} went from {seen} to {head}"));
                }
                *seen = *head;
            }
            What::Probe {
                event: "client.rotated",
                id: head,
                detail: key,
            } => {
                let times = self.rotated.entry((key.clone(), *head)).or_default();
                *times += 1;
                if *times > 1 {
                    return Err(format!("two rotations of {key} were answered with {head}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let mut heads: BTreeMap<String, u32> = BTreeMap::new();
            for record in records(node) {
                let Recorded::Key {
                    kid,
                    version,
                    change,
                    ..
                } = record.event
                else {
                    continue;
                };
                let made = matches!(
                    change,
                    KeyChange::Created { .. }
                        | KeyChange::Imported { .. }
                        | KeyChange::Rotated { .. }
                );
                let head = heads.entry(kid.clone()).or_default();
                if made && version <= *head {
                    return Err(format!(
                        "record {} makes version {version} of {kid}, which had {head}",
                        record.index
                    ));
                }
                *head = (*head).max(version);
            }
        }
        Ok(())
    }
}
