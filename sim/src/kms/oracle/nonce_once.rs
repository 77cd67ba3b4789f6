//! No nonce is used twice with one version of a key, whatever crashed or was restored; and only a restored store
//! is ever found behind its log.

use std::collections::BTreeMap;

use ron_kms::audit::record::Event as Told;

use super::{nodes, records};

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.nonce_once",
    law: "no nonce is used twice with one version of a key, across crashes and restored backups too, and none that the log has no mark above; a store that was not restored is not behind its log",
    premise: EVERYWHERE,
    make: || Box::new(NonceOnce::default()),
};

#[derive(Default)]
struct NonceOnce {
    /// Node, key and nonce, and how many records were durable then.
    used: BTreeMap<(u32, String, u64), u64>,
    /// By node: records that are durable.
    records: BTreeMap<u32, u64>,
    restored: bool,
    /// The log was put back or has rotten: it does not tell all that it was told.
    log_lost: bool,
}

impl Oracle for NonceOnce {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let (nonce, key) = match &event.what {
            What::Probe {
                event: "kms.sealed",
                id: nonce,
                detail: key,
            } => (nonce, key),
            What::Fault { text } => {
                self.restored |= text.contains("restore");
                self.log_lost |= text.contains("audit");
                return Ok(());
            }
            What::Probe {
                event: "kms.nonces_behind_log",
                ..
            } if !self.restored => {
                return Err("a store that was not restored is behind its log".to_owned());
            }
            What::Probe {
                event: "kms.appended" | "kms.opened",
                id: records,
                ..
            } => {
                let node = event.node.unwrap_or_default();
                self.records.insert(node, *records);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let node = event.node.unwrap_or_default();
        let records = self.records.get(&node).copied().unwrap_or(0);
        let used = (node, key.clone(), *nonce);
        match self.used.insert(used, records) {
            None => Ok(()),
            Some(_) => Err(format!("nonce {nonce} was used twice with {key}")),
        }
    }

    /// Marks are durable before a nonce is used: the log's highest is above all that were.
    fn finish(&mut self, view: &WorldView) -> Verdict {
        if self.log_lost {
            return Ok(());
        }
        for node in nodes(view) {
            // By key: marks, and where they stand.
            let mut marks: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
            for record in records(node) {
                if let Told::NonceMark { kid, version, next } = record.event {
                    let marks = marks.entry(format!("{kid}#v{version}")).or_default();
                    marks.push((record.index, next));
                }
            }
            let own = self.used.iter().filter(|((id, ..), _)| *id == node.id);
            for ((_, key, nonce), durable) in own {
                let mut marks = marks.get(key).into_iter().flatten();
                if !marks.any(|(index, next)| index < durable && nonce < next) {
                    return Err(format!(
                        "nonce {nonce} of {key} was used before a mark above it was in the log"
                    ));
                }
            }
        }
        Ok(())
    }
}
