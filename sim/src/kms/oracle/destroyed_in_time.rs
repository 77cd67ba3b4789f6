//! Nothing is destroyed before its time: until then its destruction can be cancelled.

use std::collections::BTreeMap;

use ron_kms::audit::record::{Event as Told, KeyChange};

use super::{nodes, records};
use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};

pub const KIND: OracleKind = OracleKind {
    name: "kms.destroyed_in_time",
    law: "a version that was scheduled for destruction is destroyed no earlier, by the clock of its own log",
    premise: EVERYWHERE,
    make: || Box::new(DestroyedInTime),
};

struct DestroyedInTime;

impl Oracle for DestroyedInTime {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let mut scheduled = BTreeMap::new();
            let mut latest = 0;
            for record in records(node) {
                latest = record.at_ms.max(latest);
                let Told::Key {
                    kid,
                    version,
                    change,
                    ..
                } = record.event
                else {
                    continue;
                };
                let name = format!("{kid}#v{version}");
                match change {
                    KeyChange::DestroyScheduled { at_ms } => _ = scheduled.insert(name, at_ms),
                    KeyChange::DestroyCancelled => _ = scheduled.remove(&name),
                    KeyChange::Destroyed => {
                        let at_ms = scheduled.remove(&name).unwrap_or(0);
                        if at_ms > latest {
                            return Err(format!(
                                "{name} was to be destroyed at {at_ms} ms, and was before {latest} ms"
                            ));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
