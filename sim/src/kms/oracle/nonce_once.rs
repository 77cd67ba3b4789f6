//! No nonce is used twice with one version of a key, whatever crashed or was restored; and only a restored store
//! is ever found behind its log.

use std::collections::BTreeSet;

use crate::{
    oracle::{Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.nonce_once",
    law: "no nonce is used twice with one version of a key, across crashes and restored backups too; a store that was not restored is not behind its log",
    make: || Box::new(NonceOnce::default()),
};

#[derive(Default)]
struct NonceOnce {
    used: BTreeSet<(u32, String, u64)>,
    restored: bool,
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
            What::Fault { text } if text.contains("restore") => {
                self.restored = true;
                return Ok(());
            }
            What::Probe {
                event: "kms.nonces_behind_log",
                ..
            } if !self.restored => {
                return Err("a store that was not restored is behind its log".to_owned());
            }
            _ => return Ok(()),
        };
        let node = event.node.unwrap_or_default();
        match self.used.insert((node, key.clone(), *nonce)) {
            true => Ok(()),
            false => Err(format!("nonce {nonce} was used twice with {key}")),
        }
    }
}
