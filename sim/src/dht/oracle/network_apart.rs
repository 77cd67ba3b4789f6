//! Two networks never meet: nobody of one is in a table of the other.

use std::collections::BTreeMap;

use svc_dht::id::Id;

use super::{Changed, Opened, Running};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.networks_apart",
    law: "no node of one network is in the table of a node of another",
    premise: EVERYWHERE,
    make: || Box::new(Apart::default()),
};

#[derive(Default)]
struct Apart {
    running: Running,
    networks: BTreeMap<Id, String>,
}

impl Oracle for Apart {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        self.running.event(event);
        let (Some(node), What::Probe { event, detail, .. }) = (event.node, &event.what) else {
            return Ok(());
        };
        match *event {
            "dht.opened" => {
                let Opened { id, network, .. } =
                    Opened::parse(detail).ok_or_else(|| format!("{detail:?}"))?;
                self.networks.insert(id, network);
                Ok(())
            }
            "dht.bucket_added" | "dht.bucket_moved" => {
                let peer = Changed::parse(detail).ok_or_else(|| format!("{detail:?}"))?;
                let own = self.running.get(node).map(|o| &o.network);
                let its = self.networks.get(&peer.id);
                match (own, its) {
                    (Some(own), Some(its)) if own != its => Err(format!(
                        "{} of network {its} is in the table of node {node} of network {own}",
                        peer.id
                    )),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
