//! Rotten bytes do not pass: the log does not verify, and a start that finds its records changed signs nothing.

use std::collections::{BTreeMap, BTreeSet};

use ron_kms::{journal, offline::verify_directory};

use super::nodes;
use crate::{
    disk::Look,
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.rot_noticed",
    law: "a flipped bit in the records or in a full tile keeps the log from verifying until a start mends the tile; a process that refuses to sign signs nothing",
    premise: EVERYWHERE,
    make: || Box::new(RotNoticed::default()),
};

#[derive(Default)]
struct RotNoticed {
    /// By node: files that must no longer verify.
    rotten: BTreeMap<u32, String>,
    refusing: BTreeSet<u32>,
}

impl Oracle for RotNoticed {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let node = event.node.unwrap_or_default();
        match &event.what {
            What::Fault { text } if text.starts_with("bit ") => {
                let path = text.rsplit(' ').next().unwrap_or_default();
                // Partial tiles are left behind by the full one; two flips of one bit undo each other.
                let counts = path == journal::LOG || !path.contains(".p/");
                if counts && self.rotten.insert(node, path.to_owned()).is_some() {
                    self.rotten.remove(&node);
                }
            }
            What::Started { .. } => {
                self.refusing.remove(&node);
            }
            // The records are the truth: a start makes their copies whole again.
            What::Probe {
                event: "kms.tiles_mended",
                ..
            } => self
                .rotten
                .retain(|at, path| *at != node || path == journal::LOG),
            What::Probe {
                event: "kms.refuses_to_sign",
                ..
            } => {
                self.refusing.insert(node);
            }
            What::Probe {
                event: "kms.signed",
                id,
                ..
            } if self.refusing.contains(&node) => {
                return Err(format!("operation {id} was signed over a broken log"));
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
            let Some(path) = self.rotten.get(&node.id) else {
                continue;
            };
            let look = Look(node.disk.clone());
            if verify_directory(&look, journal::DIR, None, &mut |_| {}).is_ok() {
                return Err(format!(
                    "{}: {path} rotted, and the log verifies",
                    node.name
                ));
            }
        }
        Ok(())
    }
}
