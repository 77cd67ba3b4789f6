//! The record of a signature names what was signed: the digests of all its messages, in order.

use std::fmt::Write;

use ron_kms::audit::record::Event as Told;

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.digests_told",
    law: "the record of an answered signature names the SHA-256 of every message that was signed, in order",
    premise: EVERYWHERE,
    make: || Box::new(DigestsTold::default()),
};

#[derive(Default)]
struct DigestsTold {
    /// Node, number, digests.
    answered: Vec<(String, u64, String)>,
}

impl Oracle for DigestsTold {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.message",
            id,
            detail,
        } = &event.what
            && let Some((node, digests)) = detail.split_once(' ')
        {
            self.answered
                .push((node.to_owned(), *id, digests.to_owned()));
        }
        Ok(())
    }

    /// A record that is not there is another law's matter.
    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let records = records(node);
            let told = records.iter().filter_map(|record| match &record.event {
                Told::Operation { seq, operation, .. } | Told::Intent { seq, operation } => {
                    Some((*seq, shown(operation.digests.iter().copied())))
                }
                _ => None,
            });
            let told: std::collections::BTreeMap<_, _> = told.collect();
            let own = self.answered.iter().filter(|(on, ..)| *on == node.name);
            for (_, seq, signed) in own {
                if let Some(recorded) = told.get(seq).filter(|recorded| *recorded != signed) {
                    return Err(format!(
                        "operation {seq} signed {signed}, and its record tells {recorded}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// How many, and the beginning of each: enough to tell them apart.
pub fn shown(digests: impl Iterator<Item = [u8; 32]>) -> String {
    let (mut text, mut count) = (String::new(), 0);
    for digest in digests {
        count += 1;
        for byte in &digest[..4] {
            let _ = write!(text, "{byte:02x}");
        }
    }
    format!("{count}:{text}")
}
