//! Once a new process of a node has written, nothing of an older one appears on its disk.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};
use crate::pool;

pub const KIND: OracleKind = OracleKind {
    name: "disk.stale_changes_nothing",
    law: "a stale incarnation changes nothing on disk",
    premise: EVERYWHERE,
    make: || Box::new(StaleChangesNothing),
};

struct StaleChangesNothing;

impl Oracle for StaleChangesNothing {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in view.nodes.iter().filter(|n| n.service == pool::NAME) {
            let bytes = node.disk.read_file(pool::LOG_FILE).unwrap_or_default();
            let records = pool::log::read(&bytes);
            for pair in records.windows(2) {
                let (before, after) = (pair[0].incarnation, pair[1].incarnation);
                if after < before {
                    let (name, key) = (&node.name, pair[1].key);
                    return Err(format!(
                        "{name}: item {key} of incarnation {after} stands after one of {before}"
                    ));
                }
            }
        }
        Ok(())
    }
}
