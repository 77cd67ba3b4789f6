//! A version that was disabled, scheduled for destruction or put below the minimum signs, wraps and opens nothing that
//! was asked for afterwards; below the minimum it still opens.

use std::collections::BTreeMap;

use super::Told;
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.disabled_never_signs",
    law: "once a client was told that a version is disabled, to be destroyed or below the minimum, nothing it asks for later is signed, wrapped or opened by it, nor is it shown as enabled",
    premise: EVERYWHERE,
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
    /// By node and key: the minimum, which only rises, and since when it was known.
    minimum: BTreeMap<String, Vec<(u64, u64)>>,
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
            "client.minimum" => {
                let known = self.minimum.entry(detail.clone()).or_default();
                known.push((*id, now));
            }
            "client.enabling" => {
                self.disabled.remove(detail);
                *self.enabling.entry(detail.clone()).or_default() += 1;
            }
            "client.enable_ended" => {
                *self.enabling.entry(detail.clone()).or_insert(1) -= 1;
                self.enabled.insert(detail.clone(), now);
            }
            used @ ("client.signed" | "client.used" | "client.opened" | "client.shown_enabled")
                if !detail.ends_with(" kept") =>
            {
                let Some(told) = Told::parse(detail) else {
                    return Ok(());
                };
                // What was wrapped must come back, also below the minimum.
                if matches!(used, "client.signed" | "client.used") {
                    self.check_minimum(&told)?;
                }
                let name = format!("{} {}", told.node, told.key);
                let since = self.disabled.get(&name);
                if let Some(since) = since.filter(|since| told.began_us > **since) {
                    return Err(format!(
                        "{name} was disabled at {since} us and did what was asked for at {} us",
                        told.began_us
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl DisabledNeverSigns {
    fn check_minimum(&self, told: &Told<'_>) -> Verdict {
        let Some((kid, Ok(version))) = told
            .key
            .split_once("#v")
            .map(|(kid, n)| (kid, n.parse::<u64>()))
        else {
            return Ok(());
        };
        let known = self.minimum.get(&format!("{} {kid}", told.node));
        let broken = known
            .into_iter()
            .flatten()
            .find(|(minimum, since)| version < *minimum && told.began_us > *since);
        match broken {
            None => Ok(()),
            Some((minimum, since)) => Err(format!(
                "{} signed what was asked for at {} us; the minimum was {minimum} at {since} us",
                told.key, told.began_us
            )),
        }
    }
}
