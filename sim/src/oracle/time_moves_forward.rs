//! A sleep lasts at least its time and not much longer on the sleeper's own clock, however the wall
//! clock jumps.

use std::{collections::BTreeMap, time::Duration};

use super::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "clock.sleeps_are_true",
    law: "a sleep of 100 ms lasts 100 ms by `now`, whatever the wall clock does",
    premise: EVERYWHERE,
    make: || Box::new(TimeMovesForward::default()),
};

/// How long `clock.tick` sleeps, and how late a wake-up may be.
pub const TICK: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(5);

#[derive(Default)]
struct TimeMovesForward {
    paused: BTreeMap<u32, bool>,
}

impl Oracle for TimeMovesForward {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let Some(node) = event.node else {
            return Ok(());
        };
        match &event.what {
            // A tick that spans a pause may be as late as the pause is long.
            What::Fault { text } if text.starts_with("node.pause") => {
                self.paused.insert(node, true);
            }
            What::Probe {
                event: "clock.tick",
                id: lasted_ns,
                ..
            } => {
                let lasted = Duration::from_nanos(*lasted_ns);
                let paused = self.paused.remove(&node).unwrap_or(false);
                if lasted < TICK || (lasted > TICK + LATE && !paused) {
                    return Err(format!("a sleep of {TICK:?} lasted {lasted:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
