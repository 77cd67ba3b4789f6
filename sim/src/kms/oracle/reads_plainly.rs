//! The log holds for a reader that shares no code with its writer, and for whoever saw it earlier.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes;
use crate::{
    kms::plain_log::{self, Hash},
    oracle::{EVERYWHERE, NodeView, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.log_reads_plainly",
    law: "by the formats alone: the checkpoint's root is that of the records, every tile holds what it must, every checkpoint that was shown still covers the same, and every proof leads to its root",
    premise: EVERYWHERE,
    make: || Box::new(ReadsPlainly::default()),
};

#[derive(Default)]
struct ReadsPlainly {
    /// Shown to clients, by node: the root of each size.
    shown: BTreeMap<String, BTreeMap<u64, Hash>>,
    /// Deaths whose remains were looked at: node and incarnation.
    looked: BTreeSet<(u32, u32)>,
}

impl Oracle for ReadsPlainly {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "client.checkpoint",
                id: size,
                detail,
            } => self.showed(*size, detail),
            What::Probe {
                event: "client.proof",
                id: 0,
                detail,
            } => Err(format!("a proof leads nowhere: {detail}")),
            _ => Ok(()),
        }
    }

    /// What a crash left, before the next start could mend it.
    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view).filter(|node| !node.up) {
            if self.looked.insert((node.id, node.incarnation)) {
                self.check(node)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        nodes(view).try_for_each(|node| self.check(node))
    }
}

impl ReadsPlainly {
    fn showed(&mut self, size: u64, detail: &str) -> Verdict {
        let (node, root) = detail.split_once(' ').unwrap_or_default();
        let root = hash(root).ok_or_else(|| format!("no root in {detail:?}"))?;
        let shown = self.shown.entry(node.to_owned()).or_default();
        match shown.insert(size, root) {
            Some(before) if before != root => {
                Err(format!("{node} showed two checkpoints over {size} records"))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, node: &NodeView) -> Verdict {
        let none = BTreeMap::new();
        let shown = self.shown.get(&node.name).unwrap_or(&none);
        plain_log::check(&node.disk, shown).map_err(|why| format!("{}: {why}", node.name))
    }
}

fn hash(hex: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if hex.len() != 2 * hash.len() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}
