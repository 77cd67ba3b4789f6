//! A record does not wait for another one: where nothing fails it is under a checkpoint soon.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    oracle::{Oracle, OracleKind, Verdict, WorldView},
    scenario::Scenario,
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.covered_soon",
    law: "in a calm world every record is under a published checkpoint within the interval of checkpoints and a second",
    premise: Scenario::is_calm,
    make: || Box::new(CoveredSoon::default()),
};

/// Writing and signing take their time.
const AND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct CoveredSoon {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    interval: Duration,
    /// How many records there were, and since when.
    uncovered: Vec<(u64, Duration)>,
}

impl Oracle for CoveredSoon {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let node = self
            .nodes
            .entry(event.node.unwrap_or_default())
            .or_default();
        match &event.what {
            What::Probe {
                event: "kms.checkpoint_interval",
                id: ms,
                ..
            } => node.interval = Duration::from_millis(*ms),
            What::Probe {
                event: "kms.appended",
                id: records,
                ..
            } => node.uncovered.push((*records, event.at)),
            What::Probe {
                event: "kms.checkpointed",
                id: size,
                ..
            } => node.uncovered.retain(|(records, _)| records > size),
            // The last checkpoint is another law's.
            What::ShutdownAsked | What::Died { .. } => node.uncovered.clear(),
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in self.nodes.values() {
            let late = node.uncovered.first();
            let late = late.filter(|(_, at)| *at + node.interval + AND < view.at);
            if let Some((records, at)) = late {
                return Err(format!(
                    "{records} records since {:.3} s, and no checkpoint covers them",
                    at.as_secs_f64()
                ));
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }
}
