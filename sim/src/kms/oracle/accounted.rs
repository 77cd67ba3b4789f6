//! What was answered is in the log, or the log admits that it may be missing.

use super::{Accounts, Told, nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.answers_accounted",
    law: "every answered use or change of a key has its record at the place it was told, or is within what gap and restart-gap records admit",
    premise: EVERYWHERE,
    make: || Box::new(Accounted::default()),
};

#[derive(Default)]
struct Accounted {
    /// Node, number, place.
    answered: Vec<(String, u64, Option<u64>)>,
}

impl Oracle for Accounted {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.signed" | "client.used" | "client.changed",
            id,
            detail,
        } = &event.what
        {
            let told = Told::parse(detail).ok_or_else(|| format!("no receipt in {detail:?}"))?;
            self.answered.push((told.node.to_owned(), *id, told.index));
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let records = records(node);
            let accounts = Accounts::of(&records);
            let own = self.answered.iter().filter(|(on, ..)| *on == node.name);
            for (_, seq, index) in own {
                match (accounts.recorded.get(seq), index) {
                    (Some(found), Some(told)) if found != told => {
                        return Err(format!(
                            "operation {seq} was told to be record {told}, but is record {found}"
                        ));
                    }
                    (Some(_), _) => {}
                    // A place is told only once the record is durable.
                    (None, Some(told)) => {
                        return Err(format!(
                            "operation {seq} was answered as record {told}, which is not there"
                        ));
                    }
                    (None, None) if accounts.admits(*seq) => {}
                    (None, None) => {
                        return Err(format!(
                            "operation {seq} was answered, has no record, and no gap admits it ({} records)",
                            records.len()
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
