//! No two operations are told the same number: not before a crash, and not after it.

use std::collections::BTreeMap;

use super::Told;
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.numbers_once",
    law: "the number in a receipt stands for one operation, across crashes too",
    premise: EVERYWHERE,
    make: || Box::new(NumbersOnce::default()),
};

#[derive(Default)]
struct NumbersOnce {
    /// By node and number: when the operation was asked for, and with which version.
    told: BTreeMap<(String, u64), (u64, String)>,
}

impl Oracle for NumbersOnce {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "client.signed" | "client.used" | "client.changed",
            id: seq,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        // A kept result has the number of the first answer.
        let Some(told) = Told::parse(detail).filter(|_| !detail.ends_with(" kept")) else {
            return Ok(());
        };
        let this = (told.began_us, told.key.to_owned());
        match self.told.insert((told.node.to_owned(), *seq), this.clone()) {
            None => Ok(()),
            Some(before) => Err(format!(
                "number {seq} of {} was told for {} asked at {} us and for {} asked at {} us",
                told.node, before.1, before.0, this.1, this.0
            )),
        }
    }
}
