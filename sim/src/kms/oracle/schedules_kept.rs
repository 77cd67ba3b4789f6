//! What a schedule does by itself, read from the log: nothing is destroyed late, and nothing that is out of use comes back.

use std::collections::BTreeMap;

use ron_kms::audit::record::{Event as Told, KeyChange, Record};

use super::{nodes, records};
use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};

pub const KIND: OracleKind = OracleKind {
    name: "kms.schedules_kept",
    law: "a version that is due is destroyed soon, and no schedule gives a new version to a key whose newest one is out of use",
    premise: EVERYWHERE,
    make: || Box::new(SchedulesKept),
};

/// Who acts when the service acts by itself.
const HOUSEKEEPER: &str = "ron-kms";
/// An outage, the pause after it, and a look at all keys.
const SOON_MS: u64 = 3_500;
/// A longer step between two records is a jump of the clock: it tells nothing about how long somebody took.
const STEP_MS: u64 = 1_000;

struct SchedulesKept;

impl Oracle for SchedulesKept {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        nodes(view).try_for_each(|node| {
            let mut log = Log::default();
            records(node).iter().try_for_each(|record| log.read(record))
        })
    }
}

#[derive(Default)]
struct Log {
    at_ms: u64,
    /// By key: the states of its versions.
    keys: BTreeMap<String, BTreeMap<u32, State>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Enabled,
    Disabled,
    /// When it is due, and for how long it has been.
    Scheduled {
        due_ms: u64,
        waits_ms: u64,
    },
    Destroyed,
}

impl Log {
    fn read(&mut self, record: &Record) -> Verdict {
        self.pass(record.at_ms)?;
        let Told::Key {
            kid,
            version,
            change,
            actor,
            ..
        } = &record.event
        else {
            return Ok(());
        };
        let versions = self.keys.entry(kid.clone()).or_default();
        let head = versions.values().next_back().copied();
        let state = match change {
            KeyChange::Rotated { .. } => {
                let out = head.is_some_and(|head| head != State::Enabled);
                if actor == HOUSEKEEPER && out {
                    return Err(format!(
                        "{kid} is out of use, and was given version {version} by its schedule"
                    ));
                }
                State::Enabled
            }
            KeyChange::Created { .. } | KeyChange::Imported { .. } | KeyChange::Enabled => {
                State::Enabled
            }
            KeyChange::Disabled | KeyChange::DestroyCancelled => State::Disabled,
            KeyChange::DestroyScheduled { at_ms } => State::Scheduled {
                due_ms: *at_ms,
                waits_ms: 0,
            },
            KeyChange::Destroyed => State::Destroyed,
            _ => return Ok(()),
        };
        versions.insert(*version, state);
        Ok(())
    }

    /// Time passes, by the log's own clock.
    fn pass(&mut self, now_ms: u64) -> Verdict {
        let step = now_ms.saturating_sub(self.at_ms);
        let before = self.at_ms;
        self.at_ms = self.at_ms.max(now_ms);
        if step == 0 || step > STEP_MS {
            return Ok(());
        }
        for (kid, versions) in &mut self.keys {
            for (number, state) in versions {
                let State::Scheduled { due_ms, waits_ms } = state else {
                    continue;
                };
                if *due_ms <= before {
                    *waits_ms += step;
                }
                if *waits_ms > SOON_MS {
                    return Err(format!(
                        "{kid}#v{number} was due at {due_ms} ms, and is there {waits_ms} ms later"
                    ));
                }
            }
        }
        Ok(())
    }
}
