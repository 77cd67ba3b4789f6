//! Where nothing is wrong, nothing is refused: every right request has its answer, and soon.

use std::collections::BTreeMap;

use ron_kms::audit::record::Event as Told;

use super::{nodes, records};
use crate::{
    kms::calls::WRONG,
    oracle::{Oracle, OracleKind, Verdict, WorldView},
    scenario::Scenario,
    trace::{Event, Outcome, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.all_served",
    law: "in a calm world every right request is answered with a success, within a second, and no record is missing",
    premise: Scenario::is_calm,
    make: || Box::new(AllServed::default()),
};

#[derive(Default)]
struct AllServed {
    /// Requests under way: what they ask for, since when.
    asked: BTreeMap<u64, (&'static str, u64)>,
}

const SOON_US: u64 = 1_000_000;

/// Of the moment, and no fault of anybody: the caller's own change, or a record that is not under a checkpoint yet.
const THE_CALLERS_OWN: &[u16] = &[404, 409];

impl Oracle for AllServed {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let now = event.at.as_micros() as u64;
        match &event.what {
            What::Request { request, op, .. } if *op != WRONG => {
                self.asked.insert(*request, (op, now));
                Ok(())
            }
            What::Outcome { request, outcome } => self.ended(*request, outcome, now),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        for node in nodes(view) {
            let missing =
                |event: &Told| matches!(event, Told::Gap { .. } | Told::RestartGap { .. });
            let records = records(node);
            if let Some(gap) = records.iter().find(|record| missing(&record.event)) {
                let index = gap.index;
                return Err(format!("nothing failed, and record {index} tells of a gap"));
            }
        }
        Ok(())
    }
}

impl AllServed {
    fn ended(&mut self, request: u64, outcome: &Outcome, now: u64) -> Verdict {
        let Some((op, began)) = self.asked.remove(&request) else {
            return Ok(());
        };
        match outcome {
            Outcome::Answered(status @ 200..300) if now - began > SOON_US => {
                let took = (now - began) / 1000;
                Err(format!("{op} was answered with {status} after {took} ms"))
            }
            Outcome::Answered(200..300) => Ok(()),
            Outcome::Answered(status) if THE_CALLERS_OWN.contains(status) => Ok(()),
            other => Err(format!("{op} was not served: {other:?}")),
        }
    }
}
