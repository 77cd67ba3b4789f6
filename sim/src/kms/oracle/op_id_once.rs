//! One operation id stands for one operation: whoever asks again gets the same answer.

use std::collections::BTreeMap;

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.op_id_once",
    law: "every answer to one operation id is the same: number and signatures, across crashes too",
    premise: EVERYWHERE,
    make: || Box::new(OpIdOnce::default()),
};

#[derive(Default)]
struct OpIdOnce {
    answers: BTreeMap<(u64, String), String>,
}

impl Oracle for OpIdOnce {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "client.signed_op",
            id,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        let (node, answer) = detail.split_once(' ').unwrap_or(("", detail));
        let known = self
            .answers
            .entry((*id, node.to_owned()))
            .or_insert_with(|| answer.to_owned());
        match known == answer {
            true => Ok(()),
            false => Err(format!(
                "operation id {id} was answered with {known}, then with {answer}"
            )),
        }
    }
}
