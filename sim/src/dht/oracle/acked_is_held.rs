//! What was acknowledged lies on the disks of those who said so.

use std::collections::BTreeMap;

use svc_dht::{id::Id, record::RecordKind};

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.acked_is_held",
    law: "a record that was acknowledged and has not expired lies, as it is or newer, on as many disks as its publisher was told",
    premise: EVERYWHERE,
    make: || Box::new(Held::default()),
};

#[derive(Default)]
struct Held {
    acked: BTreeMap<Name, Acked>,
}

/// Key, and whose it is if many may have one.
type Name = (String, String);

#[derive(Clone, Copy)]
struct Acked {
    seq: u64,
    ends_ms: u64,
    replicas: usize,
}

/// Clocks differ, and a record that is about to end may be gone already.
const SOON_MS: u64 = 3_000;

impl Oracle for Held {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "client.dht_put",
            id: seq,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        let mut words = detail.split(' ');
        let mut word = || words.next().ok_or_else(|| format!("{detail:?}"));
        let (key, _kind, ends) = (word()?, word()?, word()?);
        let (replicas, owner) = (word()?, word()?);
        let acked = Acked {
            seq: *seq,
            ends_ms: ends.parse().map_err(|_| format!("{detail:?}"))?,
            replicas: replicas.parse().map_err(|_| format!("{detail:?}"))?,
        };
        let known = self
            .acked
            .entry((key.to_owned(), owner.to_owned()))
            .or_insert(acked);
        if acked.seq > known.seq {
            *known = acked;
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        let now_ms = crate::clock::wall_ms_at(view.at);
        // The newest of each on each disk.
        let mut held: BTreeMap<Name, BTreeMap<u32, u64>> = BTreeMap::new();
        for node in nodes(view) {
            for record in records(node) {
                let owner = match record.kind {
                    RecordKind::Value => "-".to_owned(),
                    RecordKind::Provider => Id::of_node(&record.publisher).to_string(),
                };
                let name = (record.key.to_string(), owner);
                let newest = held.entry(name).or_default().entry(node.id).or_insert(0);
                *newest = (*newest).max(record.seq);
            }
        }
        for (name, acked) in &self.acked {
            if acked.ends_ms < now_ms + SOON_MS {
                continue;
            }
            let holders = held.get(name).into_iter().flatten();
            let holders = holders.filter(|(_, seq)| **seq >= acked.seq).count();
            if holders < acked.replicas {
                let ((key, _), seq) = (name, acked.seq);
                return Err(format!(
                    "{key} was acknowledged as number {seq} on {} nodes; it is on {holders} disks",
                    acked.replicas
                ));
            }
        }
        Ok(())
    }
}
