//! What the audit log must tell, in order: every use and change of a key, with its number.
//!
//! The log's own records (reservations, checkpoints, its end) are the service's business and not foretold. Always: a
//! number follows the one before it; what housekeeping tells at once may come in any order.

use serde_json::{Value, json};

use super::key::Key;
use crate::kms::plain_log::sha256;

pub struct Log {
    strict: bool,
    /// The next number.
    pub next: u64,
    pub told: Vec<Told>,
    /// Where receipts said that a number's record stands.
    pub places: Vec<(u64, u64)>,
    /// By number: where processes ended in order.
    pub ends: Vec<u64>,
}

/// One record.
#[derive(Clone, Debug)]
pub struct Told {
    pub event: Value,
    /// When it must have been written, from and to.
    pub at_ms: (u64, u64),
    /// Told by housekeeping at one time with others of this number.
    pub group: Option<u64>,
}

/// A use of a key.
pub struct Use<'a> {
    pub action: &'static str,
    pub key: &'a Key,
    pub version: u32,
    pub actor: &'a str,
    pub digests: Vec<[u8; 32]>,
    /// The caller's id and the request's bytes.
    pub op_id: Option<(&'a str, &'a [u8])>,
    pub failed: Option<&'static str>,
    /// The mark that is set before a number is sealed with.
    pub mark: Option<u64>,
}

/// A plain record may be written this much after its answer.
pub const GATHERED_MS: u64 = 60;

impl Log {
    pub fn new(strict: bool) -> Log {
        Log {
            strict,
            next: 0,
            told: Vec::new(),
            places: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Returns its number.
    pub fn used(&mut self, used: &Use<'_>, at_ms: (u64, u64)) -> u64 {
        let seq = self.number();
        let outcome = used
            .failed
            .map_or(json!("done"), |code| json!({ "failed": code }));
        let operation = used.operation();
        let mark = used.mark.map(|next| {
            json!({ "nonce_mark": { "kid": used.key.kid, "version": used.version, "next": next } })
        });
        let events = match self.strict {
            true => {
                let intent = json!({ "intent": { "seq": seq, "operation": operation } });
                let outcome = json!({ "outcome": { "seq": seq, "outcome": outcome } });
                [Some(intent), mark, Some(outcome)]
            }
            false => {
                let whole = json!({ "operation": { "seq": seq, "operation": operation, "outcome": outcome } });
                [None, mark, Some(whole)]
            }
        };
        let at_ms = match self.strict || used.op_id.is_some() {
            true => at_ms,
            false => (at_ms.0, at_ms.1 + GATHERED_MS),
        };
        for event in events.into_iter().flatten() {
            self.tell(event, at_ms, None);
        }
        seq
    }

    /// Returns the number of the last.
    pub fn changed(
        &mut self,
        key: &Key,
        actor: &str,
        changes: Vec<(u32, Value)>,
        at_ms: (u64, u64),
    ) -> u64 {
        for (version, change) in changes {
            let seq = self.number();
            let event = change_event(key, version, actor, &change, Some(seq));
            self.tell(event, at_ms, None);
        }
        self.next - 1
    }

    /// What the service did by itself, some time in between, with whatever else it did in the round of `group`.
    pub fn kept_house(
        &mut self,
        key: &Key,
        changes: Vec<(u32, Value)>,
        at_ms: (u64, u64),
        group: u64,
    ) {
        for (version, change) in changes {
            self.number();
            let event = change_event(key, version, HOUSEKEEPER, &change, None);
            self.tell(event, at_ms, Some(group));
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn tell(&mut self, event: Value, at_ms: (u64, u64), group: Option<u64>) {
        self.told.push(Told {
            event,
            at_ms,
            group,
        });
    }
}

const HOUSEKEEPER: &str = "ron-kms";

impl Use<'_> {
    fn operation(&self) -> Value {
        let key = self.key;
        let digests: Vec<String> = self.digests.iter().map(|digest| hex(digest)).collect();
        let mut operation = json!({
            "action": self.action, "tenant": key.tenant, "kid": key.kid, "version": self.version,
            "alg": key.alg.name, "actor": self.actor, "digests": digests,
        });
        if let Some((id, body)) = self.op_id {
            let length = (key.tenant.len() as u64).to_be_bytes();
            let id = sha256(&[&length, key.tenant.as_bytes(), id.as_bytes()]);
            operation["op_id"] = json!({ "id": hex(&id), "request": hex(&sha256(&[body])) });
        }
        operation
    }
}

fn change_event(key: &Key, version: u32, actor: &str, change: &Value, seq: Option<u64>) -> Value {
    let mut event = json!({
        "tenant": key.tenant, "kid": key.kid, "version": version, "actor": actor, "change": change,
    });
    if let Some(seq) = seq {
        event["seq"] = json!(seq);
    }
    json!({ "key": event })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
