//! No neighbourhood of addresses fills a table: at most so many of one /24 in a bucket and in a table.

use std::collections::BTreeMap;

use svc_dht::{
    contact::{Addr, Subnet},
    id::Id,
};

use super::{Changed, Running};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.subnets_limited",
    law: "a bucket and a table hold no more nodes of one /24 than they may",
    premise: EVERYWHERE,
    make: || Box::new(Subnets::default()),
};

#[derive(Default)]
struct Subnets {
    running: Running,
    /// By node and id: which bucket, which subnet.
    entries: BTreeMap<u32, BTreeMap<Id, (u8, Subnet)>>,
}

impl Oracle for Subnets {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let Some(node) = self.running.event(event) {
            self.entries.remove(&node);
            return Ok(());
        }
        let (Some(node), What::Probe { event, detail, .. }) = (event.node, &event.what) else {
            return Ok(());
        };
        let parsed = || Changed::parse(detail).ok_or_else(|| format!("{detail:?}"));
        match *event {
            "dht.bucket_removed" => {
                let entries = self.entries.entry(node).or_default();
                entries.remove(&parsed()?.id);
                Ok(())
            }
            "dht.bucket_added" | "dht.bucket_moved" => {
                let Changed { bucket, id, addr } = parsed()?;
                let addr: std::net::SocketAddr = addr.parse().map_err(|_| format!("{detail:?}"))?;
                let subnet = Addr::from(addr).subnet();
                let entries = self.entries.entry(node).or_default();
                entries.insert(id, (bucket, subnet));
                let Some(rules) = self.running.get(node) else {
                    return Ok(());
                };
                let same = entries.values().filter(|(_, s)| *s == subnet);
                let (in_table, in_bucket) = same.fold((0, 0), |(table, of_bucket), (b, _)| {
                    (table + 1, of_bucket + usize::from(*b == bucket))
                });
                if in_bucket > rules.per_bucket || in_table > rules.per_table {
                    return Err(format!(
                        "node {node} has {in_bucket} nodes of the network of {addr} in bucket {bucket} and {in_table} in its table; {} and {} are allowed",
                        rules.per_bucket, rules.per_table
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
