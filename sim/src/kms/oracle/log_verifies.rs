//! The log on every node's disk verifies from its bytes alone, by the code that an operator would use.

use ron_kms::{journal, offline::verify_directory};

use std::collections::BTreeSet;

use super::nodes;
use crate::{
    disk::Look,
    oracle::{EVERYWHERE, NodeView, Oracle, OracleKind, Verdict, WorldView},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.log_verifies",
    law: "at the end, and whenever a node is down, its audit log verifies offline: signatures, root, tiles, indexes, numbers",
    premise: EVERYWHERE,
    make: || Box::new(LogVerifies::default()),
};

#[derive(Default)]
struct LogVerifies {
    /// Deaths whose remains were looked at: node and incarnation.
    looked: BTreeSet<(u32, u32)>,
}

impl Oracle for LogVerifies {
    fn name(&self) -> &'static str {
        KIND.name
    }

    /// What a crash left, before the next start could mend it.
    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view).filter(|node| !node.up) {
            if self.looked.insert((node.id, node.incarnation)) {
                verify(node)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        nodes(view).try_for_each(verify)
    }
}

fn verify(node: &NodeView) -> Verdict {
    // Before its first checkpoint a log has nothing to verify.
    if node.disk.read_file(journal::CHECKPOINT).is_none() {
        return Ok(());
    }
    let look = Look(node.disk.clone());
    verify_directory(&look, journal::DIR, None, &mut |_| {})
        .map(|_| ())
        .map_err(|error| format!("{}: {error}", node.name))
}
