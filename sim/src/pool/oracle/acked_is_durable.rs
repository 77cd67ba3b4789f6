//! An item whose `put` was answered with 200 is on a disk, whatever died since.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};
use crate::{
    pool,
    trace::{Event, Outcome, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "pool.acked_is_durable",
    law: "an item answered with 200 is found on disk at the end",
    premise: EVERYWHERE,
    make: || Box::new(AckedIsDurable::default()),
};

#[derive(Default)]
struct AckedIsDurable {
    asked: BTreeMap<u64, u64>,
    acked: BTreeSet<u64>,
}

impl Oracle for AckedIsDurable {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        match &event.what {
            What::Request {
                request,
                op: "pool.put",
                key,
            } => {
                self.asked.insert(*request, *key);
            }
            What::Outcome { request, outcome } => {
                if let Some(key) = self.asked.remove(request)
                    && *outcome == Outcome::Answered(200)
                {
                    self.acked.insert(key);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        let mut stored = BTreeSet::new();
        for node in view.nodes.iter().filter(|n| n.service == pool::NAME) {
            let bytes = node.disk.read_file(pool::LOG_FILE).unwrap_or_default();
            stored.extend(pool::log::read(&bytes).into_iter().map(|record| record.key));
        }
        match self.acked.difference(&stored).next() {
            Some(lost) => {
                let count = self.acked.difference(&stored).count();
                Err(format!(
                    "item {lost} was answered with 200 and is on no disk ({count} such items)"
                ))
            }
            None => Ok(()),
        }
    }
}
