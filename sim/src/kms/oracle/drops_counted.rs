//! What the log tells as lost, the operator sees in a counter.

use std::collections::BTreeMap;

use ron_kms::audit::record::{Event as Told, GapReason};

use super::{nodes, records};
use crate::{
    oracle::{EVERYWHERE, NodeView, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.drops_counted",
    law: "after an orderly stop `audit_dropped_total` is no less than the gap records tell that the process wrote",
    premise: EVERYWHERE,
    make: || Box::new(DropsCounted::default()),
};

#[derive(Default)]
struct DropsCounted {
    lives: BTreeMap<u32, Life>,
}

#[derive(Default)]
struct Life {
    /// Records that it found.
    found: u64,
    /// At its end.
    counted: Option<u64>,
    /// In order, and nothing of it was looked at yet.
    stopped: bool,
}

impl Oracle for DropsCounted {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let Some(id) = event.node else { return Ok(()) };
        let life = self.lives.entry(id).or_default();
        match &event.what {
            What::Started { .. } => *life = Life::default(),
            What::Probe {
                event: "kms.opened",
                id: found,
                ..
            } => life.found = *found,
            What::Probe {
                event: "kms.dropped",
                id: counted,
                ..
            } => life.counted = Some(*counted),
            What::Stopped { report } => life.stopped = report.aborted == 0,
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            if let Some(life) = self.lives.get_mut(&node.id)
                && std::mem::take(&mut life.stopped)
                && let Some(counted) = life.counted
            {
                check(node, life.found, counted)?;
            }
        }
        Ok(())
    }
}

fn check(node: &NodeView, found: u64, counted: u64) -> Verdict {
    let written = records(node).into_iter().skip(found as usize);
    let lost = |event: Told| match event {
        Told::Gap {
            count,
            reason: GapReason::QueueFull | GapReason::AppendFailed,
            ..
        } => count,
        _ => 0,
    };
    let told: u64 = written.map(|record| lost(record.event)).sum();
    match counted < told {
        true => Err(format!(
            "{}: the log tells of {told} lost records, the counter of {counted}",
            node.name
        )),
        false => Ok(()),
    }
}
