//! What was acknowledged outlives its first record: its publisher publishes it again in time.

use std::collections::BTreeSet;

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.republished",
    law: "at the end every value and every key with a provider that was ever acknowledged is held by somebody, with time left",
    premise: EVERYWHERE,
    make: || Box::new(Republished::default()),
};

/// For worlds in which every publisher lives, or lives again, long before its records end.
#[derive(Default)]
struct Republished {
    /// Keys and kinds.
    acked: BTreeSet<(String, String)>,
}

impl Oracle for Republished {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.dht_put",
            detail,
            ..
        } = &event.what
        {
            let mut words = detail.split(' ').map(str::to_owned);
            let acked = words.next().zip(words.next());
            self.acked
                .insert(acked.ok_or_else(|| format!("{detail:?}"))?);
        }
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        let now_ms = crate::clock::wall_ms_at(view.at);
        let alive: BTreeSet<(String, String)> = nodes(view)
            .flat_map(records)
            .filter(|record| record.ends_ms() > now_ms)
            .map(|record| (record.key.to_string(), record.kind.name().to_owned()))
            .collect();
        match self.acked.difference(&alive).next() {
            None => Ok(()),
            Some((key, kind)) => Err(format!(
                "the {kind} {key} was acknowledged, and nobody holds it any more"
            )),
        }
    }
}
