//! What is returned was put by its publisher, and has not expired.

use std::collections::BTreeSet;

use super::Running;
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.returned_is_valid",
    law: "a value or provider that is returned was published by its owner and has not ended, by more than clocks may differ, on the clock of the node that returns it",
    premise: EVERYWHERE,
    make: || Box::new(Valid::default()),
};

#[derive(Default)]
struct Valid {
    running: Running,
    /// What clients have put, as they wrote it.
    values: BTreeSet<String>,
    /// Key and id.
    providers: BTreeSet<String>,
}

impl Oracle for Valid {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        self.running.event(event);
        let node = event.node.unwrap_or(u32::MAX);
        let What::Probe { event, id, detail } = &event.what else {
            return Ok(());
        };
        match *event {
            "client.dht_putting" => {
                self.values.insert(detail.clone());
            }
            "client.dht_providing" => {
                self.providers.insert(detail.clone());
            }
            "client.dht_got" => {
                let (key, value) = detail.split_once(' ').unwrap_or((detail, ""));
                if !self.values.contains(value) {
                    return Err(format!(
                        "{key} was answered with {value:?} ({id}), which nobody put"
                    ));
                }
            }
            "client.dht_provider" if !self.providers.contains(detail) => {
                return Err(format!("a provider that never provided: {detail}"));
            }
            "dht.value_returned" => {
                let mut words = detail.split(' ').skip(2).map(str::parse::<u64>);
                let (Some(Ok(ends)), Some(Ok(now))) = (words.next(), words.next()) else {
                    return Err(format!("{detail:?}"));
                };
                let skew = self.running.get(node).map_or(0, |o| o.skew_ms);
                if now >= ends + skew {
                    return Err(format!(
                        "a record that ended {} ms ago was returned",
                        now - ends
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
