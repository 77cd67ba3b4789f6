//! Verifying by what is known stops once that is too old.

use std::collections::BTreeMap;

use crate::{
    oracle::{Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.verify_in_time",
    law: "no answer to verify is by an index older than verify.cache_ttl_ms",
    make: || Box::new(VerifyInTime::default()),
};

#[derive(Default)]
struct VerifyInTime {
    limits_ms: BTreeMap<u32, u64>,
    nodes: BTreeMap<String, u32>,
}

impl Oracle for VerifyInTime {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Probe {
                event: "kms.verify_limit",
                id: limit_ms,
                ..
            } => {
                let node = event.node.unwrap_or_default();
                self.limits_ms.insert(node, *limit_ms);
            }
            What::Probe {
                event: "client.verified_stale",
                id: age_ms,
                detail: node,
            } => {
                let limit = self.nodes.get(node).and_then(|n| self.limits_ms.get(n));
                if let Some(limit) = limit.filter(|limit| age_ms > limit) {
                    return Err(format!(
                        "{node} verified by an index of {age_ms} ms, {limit} ms are allowed"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        if self.nodes.is_empty() {
            let named = view.nodes.iter().map(|node| (node.name.clone(), node.id));
            self.nodes = named.collect();
        }
        Ok(())
    }
}
