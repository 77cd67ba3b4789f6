//! Verifying by what is known stops once that is too old, and not before; an operator may say anew how old that is.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.verify_in_time",
    law: "verifying goes on by an index up to verify.cache_ttl_ms old, and no older; a reload changes that",
    premise: EVERYWHERE,
    make: || Box::new(VerifyInTime::default()),
};

/// From the answer on a reload until it is in force.
const TAKES: Duration = Duration::from_millis(500);

#[derive(Default)]
struct VerifyInTime {
    /// By node: the limits that can be in force, each with when it may have ended.
    limits_ms: BTreeMap<u32, Vec<(u64, Option<Duration>)>>,
    nodes: BTreeMap<String, u32>,
}

impl Oracle for VerifyInTime {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: name,
            id,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        if *name == "kms.verify_limit" {
            let node = event.node.unwrap_or_default();
            self.limits_ms.insert(node, vec![(*id, None)]);
            return Ok(());
        }
        let (node, began_us) = detail.split_once(' ').unwrap_or((detail, ""));
        let began = Duration::from_micros(began_us.parse().unwrap_or(0));
        let id_of = self.nodes.get(node);
        let Some(limits) = id_of.and_then(|id| self.limits_ms.get_mut(id)) else {
            return Ok(());
        };
        let in_force = limits
            .iter()
            .filter(|(_, gone)| gone.is_none_or(|gone| gone > began));
        let in_force: Vec<u64> = in_force.map(|(limit, _)| *limit).collect();
        let (Some(least), Some(most)) = (in_force.iter().min(), in_force.iter().max()) else {
            return Ok(());
        };
        match *name {
            "client.verified_stale" if id > most => Err(format!(
                "{node} verified by an index of {id} ms, {most} ms are allowed"
            )),
            "client.verify_expired" if id < least => Err(format!(
                "{node} did not verify by an index of {id} ms, {least} ms are allowed"
            )),
            "client.ttl_set" | "client.ttl_unsure" => {
                if *name == "client.ttl_set" {
                    for (_, gone) in limits.iter_mut().filter(|(_, gone)| gone.is_none()) {
                        *gone = Some(event.at + TAKES);
                    }
                }
                limits.push((*id, None));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        if self.nodes.is_empty() {
            let named = view.nodes.iter().map(|node| (node.name.clone(), node.id));
            self.nodes = named.collect();
        }
        Ok(())
    }
}
