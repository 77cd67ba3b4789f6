//! The laws of svc-dht, one file each, and what they have in common: who opened by which rules, and what lies on disks.

mod acked_is_held;
mod bounds;
mod lookup_ends;
mod network_apart;
mod one_writer;
mod republished;
mod returned_is_valid;
mod subnets;
mod table_sound;

use std::collections::BTreeMap;

use svc_dht::{
    id::Id,
    record::Record,
    record_journal::{self, Entry},
    topology,
};

use crate::{
    oracle::{NodeView, OracleKind, WorldView},
    trace::{Event, What},
};

pub const LAWS: &[OracleKind] = &[
    one_writer::KIND,
    republished::KIND,
    table_sound::KIND,
    lookup_ends::KIND,
    bounds::KIND,
    acked_is_held::KIND,
    returned_is_valid::KIND,
    network_apart::KIND,
    subnets::KIND,
];

/// The nodes that run svc-dht.
fn nodes(view: &WorldView) -> impl Iterator<Item = &NodeView> {
    view.nodes.iter().filter(|n| n.service == topology::NAME)
}

/// The records in the journal of a node's disk, the newest of each name last.
fn records(node: &NodeView) -> Vec<Record> {
    let bytes = node.disk.read_file("records.journal").unwrap_or_default();
    let mut records = Vec::new();
    let _ = record_journal::scan(&bytes, |entry| {
        if let Entry::Held(record) | Entry::Published(record) = entry {
            records.push(record);
        }
    });
    records
}

/// Who began, and by which rules it plays: what the probe `dht.opened` tells.
#[derive(Clone, Debug)]
struct Opened {
    id: Id,
    network: String,
    k: usize,
    hop_budget: u64,
    beta: usize,
    hedge_percent: u64,
    per_bucket: usize,
    per_table: usize,
    skew_ms: u64,
}

impl Opened {
    fn parse(detail: &str) -> Option<Opened> {
        let mut words = detail.split(' ');
        let id = Id::parse(words.next()?)?;
        let _addr = words.next()?;
        let network = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Opened {
            id,
            network,
            k: number()? as usize,
            hop_budget: number()?,
            beta: number()? as usize,
            hedge_percent: number()?,
            per_bucket: number()? as usize,
            per_table: number()? as usize,
            skew_ms: number()?,
        })
    }
}

/// Who runs on which node now.
#[derive(Default)]
struct Running(BTreeMap<u32, Opened>);

impl Running {
    /// True if a life of the node ended or began with this event: what was known of its inside is void.
    fn event(&mut self, event: &Event) -> Option<u32> {
        let node = event.node?;
        match &event.what {
            What::Started { .. } | What::Died { .. } | What::Stopped { .. } => {
                self.0.remove(&node);
                Some(node)
            }
            What::Probe {
                event: "dht.opened",
                detail,
                ..
            } => {
                self.0.insert(node, Opened::parse(detail)?);
                None
            }
            _ => None,
        }
    }

    fn get(&self, node: u32) -> Option<&Opened> {
        self.0.get(&node)
    }
}

/// A change of a table: bucket, id, address.
struct Changed<'a> {
    bucket: u8,
    id: Id,
    addr: &'a str,
}

impl<'a> Changed<'a> {
    fn parse(detail: &'a str) -> Option<Changed<'a>> {
        let mut words = detail.split(' ');
        Some(Changed {
            bucket: words.next()?.parse().ok()?,
            id: Id::parse(words.next()?)?,
            addr: words.next()?,
        })
    }
}

/// The number after `name=` in a detail.
fn number(detail: &str, name: &str) -> Option<u64> {
    let mut words = detail.split(' ');
    let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found?.parse().ok()
}
