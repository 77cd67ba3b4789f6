//! Somebody puts an older log back, or an older checkpoint, or takes the checkpoint away: no key is used under it.
//!
//! The store knows how long the log was at its last change and at the last orderly stop, and the log's records tell of the
//! checkpoints before them. Always: what nobody can know (an older copy that lacks neither) is not asked for.

use std::{collections::BTreeMap, time::Duration};

use super::Told;
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.old_log_refused",
    law: "a start that finds fewer records than its store knows of, or an older checkpoint than its records tell of, uses and changes no key",
    premise: EVERYWHERE,
    make: || Box::new(OldLog::default()),
};

#[derive(Default)]
struct OldLog {
    nodes: BTreeMap<u32, Node>,
    names: BTreeMap<String, u32>,
}

#[derive(Default)]
struct Node {
    /// Records that the store knows of.
    known: u64,
    /// When a checkpoint of which size was published.
    checkpoints: Vec<(Duration, u64)>,
    /// Batches since the last of them: the second one tells of it at the latest.
    batches_since: u32,
    /// The checkpoint that the records tell of, at least.
    told: u64,
    /// What a backup made of the checkpoint.
    put_back: Option<u64>,
    /// Since when, and why, it must use no key.
    behind: Option<(Duration, String)>,
}

const CHECKPOINT: &str = "audit/checkpoint";
const BATCHES_TELL: u32 = 2;

impl Oracle for OldLog {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.changed",
            detail,
            ..
        } = &event.what
        {
            return self.changed(detail);
        }
        let node = self
            .nodes
            .entry(event.node.unwrap_or_default())
            .or_default();
        match &event.what {
            What::Fault { text } => node.struck(event.at, text),
            What::Probe {
                event: name, id, ..
            } => match *name {
                "kms.ended" => node.known = node.known.max(*id),
                "kms.checkpointed" => {
                    node.checkpoints.push((event.at, *id));
                    node.batches_since = 0;
                }
                "kms.appended" => node.appended(),
                "kms.opened" => node.opened(event.at, *id),
                "kms.signed" => return node.used(event.at, &format!("operation {id}")),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        if self.names.is_empty() {
            let named = view.nodes.iter().map(|node| (node.name.clone(), node.id));
            self.names = named.collect();
        }
        Ok(())
    }
}

impl OldLog {
    /// The store was changed with this record.
    fn changed(&mut self, detail: &str) -> Verdict {
        let told = Told::parse(detail).ok_or_else(|| format!("no receipt in {detail:?}"))?;
        let Some(id) = self.names.get(told.node) else {
            return Ok(());
        };
        let node = self.nodes.entry(*id).or_default();
        let began = Duration::from_micros(told.began_us);
        node.used(began, &format!("a change of {}", told.key))?;
        if let Some(index) = told.index {
            node.known = node.known.max(index + 1);
        }
        Ok(())
    }
}

impl Node {
    fn struck(&mut self, at: Duration, text: &str) {
        let Some((path, rest)) = text.split_once(" is what it was ") else {
            return;
        };
        let ago = rest.split(' ').next().and_then(|ms| ms.parse().ok());
        let then = at.saturating_sub(Duration::from_millis(ago.unwrap_or(0)));
        if path == CHECKPOINT {
            let then = self.checkpoints.iter().rev().find(|(at, _)| *at <= then);
            self.put_back = Some(then.map_or(0, |(_, size)| *size));
        }
    }

    fn appended(&mut self) {
        self.batches_since += 1;
        if self.batches_since >= BATCHES_TELL
            && let Some((_, size)) = self.checkpoints.last()
        {
            self.told = self.told.max(*size);
        }
    }

    fn opened(&mut self, at: Duration, records: u64) {
        let checkpoint = self.put_back.take().filter(|size| *size < self.told);
        let why = match checkpoint {
            Some(size) => Some(format!(
                "a checkpoint of {} is told of, and {size} is there",
                self.told
            )),
            None => (records < self.known)
                .then(|| format!("{} records were known, and {records} are there", self.known)),
        };
        // Nobody brings back what is gone, so it stays so.
        if self.behind.is_none() {
            self.behind = why.map(|why| (at, why));
        }
    }

    fn used(&self, at: Duration, what: &str) -> Verdict {
        match &self.behind {
            Some((since, why)) if at > *since => Err(format!("{what} under an older log: {why}")),
            _ => Ok(()),
        }
    }
}
