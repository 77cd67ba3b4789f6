//! Whoever asks for the checkpoint gets the newest one that was published.

use std::collections::BTreeMap;

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.newest_served",
    law: "a checkpoint that is served is no older than the newest that was published before it was asked for",
    premise: EVERYWHERE,
    make: || Box::new(NewestServed::default()),
};

#[derive(Default)]
struct NewestServed {
    /// By node: size and moment of each checkpoint.
    published: BTreeMap<u32, Vec<(u64, u64)>>,
    names: BTreeMap<String, u32>,
}

impl Oracle for NewestServed {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: name,
            id: size,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        match *name {
            "kms.checkpointed" => {
                let at_us = event.at.as_micros() as u64;
                let published = self.published.entry(event.node.unwrap_or_default());
                published.or_default().push((*size, at_us));
                Ok(())
            }
            "client.checkpoint_asked" => self.served(*size, detail),
            _ => Ok(()),
        }
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        if self.names.is_empty() {
            let named = view.nodes.iter().map(|node| (node.name.clone(), node.id));
            self.names = named.collect();
        }
        Ok(())
    }
}

impl NewestServed {
    fn served(&self, size: u64, detail: &str) -> Verdict {
        let (node, began_us) = detail.split_once(' ').unwrap_or((detail, ""));
        let began_us: u64 = began_us.parse().unwrap_or(0);
        let published = self.names.get(node).and_then(|id| self.published.get(id));
        let newest = published.into_iter().flatten();
        let newest = newest.filter(|(_, at_us)| *at_us < began_us);
        match newest.map(|(size, _)| *size).max() {
            Some(newest) if newest > size => Err(format!(
                "{node} serves a checkpoint of {size} records, and one of {newest} was published before"
            )),
            _ => Ok(()),
        }
    }
}
