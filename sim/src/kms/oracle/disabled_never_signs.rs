//! A version that was disabled signs nothing that was asked for afterwards.

use std::collections::BTreeMap;

use super::Told;
use crate::{
    oracle::{Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.disabled_never_signs",
    law: "once a client was told that a version is disabled, nothing it asks for later is signed by it",
    make: || Box::new(DisabledNeverSigns::default()),
};

#[derive(Default)]
struct DisabledNeverSigns {
    /// By node and version: since when.
    disabled: BTreeMap<String, u64>,
    /// Enables under way, or whose end nobody knows: they may take effect at any time.
    enabling: BTreeMap<String, u32>,
    /// When an enable last ended: one that overlapped a disable may have been the later of the two.
    enabled: BTreeMap<String, u64>,
}

impl Oracle for DisabledNeverSigns {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let now = event.at.as_micros() as u64;
        let What::Probe { event, id, detail } = &event.what else {
            return Ok(());
        };
        match *event {
            "client.disabled" => {
                let before = |ended: &u64| ended < id;
                if self.enabling.get(detail).is_none_or(|n| *n == 0)
                    && self.enabled.get(detail).is_none_or(before)
                {
                    self.disabled.insert(detail.clone(), now);
                }
            }
            "client.enabling" => {
                self.disabled.remove(detail);
                *self.enabling.entry(detail.clone()).or_default() += 1;
            }
            "client.enable_ended" => {
                *self.enabling.entry(detail.clone()).or_insert(1) -= 1;
                self.enabled.insert(detail.clone(), now);
            }
            "client.signed" => {
                let Some(told) = Told::parse(detail) else {
                    return Ok(());
                };
                let name = format!("{} {}", told.node, told.key);
                let since = self.disabled.get(&name);
                if let Some(since) = since.filter(|since| told.began_us > **since) {
                    return Err(format!(
                        "{name} was disabled at {since} us and signed what was asked for at {} us",
                        told.began_us
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
