//! The log on every node's disk verifies from its bytes alone, by the code that an operator would use.

use ron_kms::{journal, offline::verify_directory};

use super::nodes;
use crate::{
    disk::Look,
    oracle::{Oracle, OracleKind, Verdict, WorldView},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.log_verifies",
    law: "at the end the audit log of every node verifies offline: signatures, root, tiles, indexes, numbers",
    make: || Box::new(LogVerifies),
};

struct LogVerifies;

impl Oracle for LogVerifies {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            // Before its first checkpoint a log has nothing to verify.
            if node.disk.read_file(journal::CHECKPOINT).is_none() {
                continue;
            }
            let look = Look(node.disk.clone());
            verify_directory(&look, journal::DIR, None, &mut |_| {})
                .map_err(|error| format!("{}: {error}", node.name))?;
        }
        Ok(())
    }
}
