//! No nonce is used twice with one version of a key, whatever crashed or was restored.

use std::collections::BTreeSet;

use crate::{
    oracle::{Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.nonce_once",
    law: "no nonce is used twice with one version of a key, across crashes and restored backups too",
    make: || Box::new(NonceOnce::default()),
};

#[derive(Default)]
struct NonceOnce {
    used: BTreeSet<(u32, String, u64)>,
}

impl Oracle for NonceOnce {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "kms.sealed",
            id: nonce,
            detail: key,
        } = &event.what
        else {
            return Ok(());
        };
        let node = event.node.unwrap_or_default();
        match self.used.insert((node, key.clone(), *nonce)) {
            true => Ok(()),
            false => Err(format!("nonce {nonce} was used twice with {key}")),
        }
    }
}
