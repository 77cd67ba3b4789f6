//! A routing table holds nobody twice, not the node itself, nobody that cannot be reached and nobody in the wrong
//! bucket; the same holds for the table as it is saved.

use std::collections::{BTreeMap, BTreeSet};

use svc_dht::{
    id::Id,
    identity::NetworkId,
    routing::saved::{self, SavedPeer},
};

use super::{Changed, Opened, Running, nodes};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.table_sound",
    law: "a table has no entry twice, not the node itself, none without an address, none in the wrong bucket, at most k in a bucket",
    premise: EVERYWHERE,
    make: || Box::new(TableSound::default()),
};

#[derive(Default)]
struct TableSound {
    running: Running,
    /// By node and bucket: who is in it, and where.
    tables: BTreeMap<(u32, u8), BTreeMap<Id, String>>,
    last: BTreeMap<u32, Opened>,
}

impl TableSound {
    fn added(&mut self, node: u32, changed: &Changed<'_>) -> Verdict {
        let Some(me) = self.running.get(node) else {
            return Err(format!("node {node} has a table before it has opened"));
        };
        let Changed { bucket, id, addr } = *changed;
        let place = me.id.bucket_of(&id);
        let entries = self.tables.entry((node, bucket)).or_default();
        if place.is_none() {
            return Err(format!("node {node} has itself in its table"));
        }
        if place != Some(bucket) {
            return Err(format!(
                "{id} is in bucket {bucket} of node {node}, not {place:?}"
            ));
        }
        if !reachable(addr) {
            return Err(format!("{id} at {addr} in a table cannot be reached"));
        }
        if entries.insert(id, addr.to_owned()).is_some() {
            return Err(format!("{id} is twice in bucket {bucket} of node {node}"));
        }
        if entries.len() > me.k {
            let len = entries.len();
            return Err(format!(
                "bucket {bucket} of node {node} has {len} entries of {}",
                me.k
            ));
        }
        Ok(())
    }
}

fn reachable(addr: &str) -> bool {
    let addr = addr.parse::<std::net::SocketAddr>();
    addr.is_ok_and(|a| a.port() != 0 && !a.ip().is_unspecified() && !a.ip().is_multicast())
}

impl Oracle for TableSound {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let Some(node) = self.running.event(event) {
            self.tables.retain(|(on, _), _| *on != node);
            return Ok(());
        }
        let (Some(node), What::Probe { event, detail, .. }) = (event.node, &event.what) else {
            return Ok(());
        };
        if *event == "dht.opened" {
            let opened = Opened::parse(detail).ok_or_else(|| format!("{detail:?}"))?;
            self.last.insert(node, opened);
            return Ok(());
        }
        let parsed = || Changed::parse(detail).ok_or_else(|| format!("{detail:?}"));
        match *event {
            "dht.bucket_added" => self.added(node, &parsed()?),
            "dht.bucket_removed" => {
                let Changed { bucket, id, .. } = parsed()?;
                let entries = self.tables.entry((node, bucket)).or_default();
                match entries.remove(&id) {
                    Some(_) => Ok(()),
                    None => Err(format!(
                        "{id} left bucket {bucket} of node {node} without being in it"
                    )),
                }
            }
            "dht.bucket_moved" => {
                let Changed { bucket, id, addr } = parsed()?;
                let entries = self.tables.entry((node, bucket)).or_default();
                entries.insert(id, addr.to_owned());
                match reachable(addr) {
                    true => Ok(()),
                    false => Err(format!("{id} moved to {addr}, which cannot be reached")),
                }
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let Some(me) = self.last.get(&node.id) else {
                continue;
            };
            let Some(bytes) = node.disk.read_file("table.saved") else {
                continue;
            };
            let network = NetworkId::of_name(&me.network);
            let peers = saved::decode(&bytes, &network.0)
                .map_err(|error| format!("{}: the saved table: {error}", node.name))?;
            let mut seen = BTreeSet::new();
            for SavedPeer { contact, .. } in &peers {
                if contact.id == me.id || !contact.addr.is_usable() || !seen.insert(contact.id) {
                    return Err(format!("{}: {contact:?} in the saved table", node.name));
                }
            }
        }
        Ok(())
    }
}
