//! The audit log of ron-kms, followed: every number, batch, checkpoint and start, against the checked model.
//!
//! The model runs the shipped machine beside the shipped shell and is told what the shell did, never what the
//! machine said: which numbers were given, how long a batch is and what a start found must come out the same.
//! Bytes of records differ, their count and order do not; so sizes and numbers are compared, roots are not. The
//! state outlives a crash, as the log does: a start is a step of the model too.

use ron_kms::{
    audit::{
        log::{Limits, Policy},
        sequence::Missing,
    },
    models::audit::{Action, AuditWorld, Item, World},
};
use stateright::Model;

use crate::conformance::{Conformance, Meaning, Reading, SpecEvent};
use crate::oracle::{EVERYWHERE, OracleKind};

pub const KIND: OracleKind = OracleKind {
    name: Follow::ORACLE,
    law: "the audit log gives numbers, writes, publishes and recovers as its model does, across crashes",
    premise: EVERYWHERE,
    make: || Box::new(Conformance::<Follow>::new()),
};

pub struct Follow {
    model: AuditWorld,
}

impl Reading for Follow {
    type Model = AuditWorld;
    const MODEL: &'static str = "kms.audit";
    const ORACLE: &'static str = "model.kms.audit";
    const STEPS: &'static [&'static str] = &[
        "begin",
        "submit",
        "submit_kept",
        "drop",
        "abandon",
        "append",
        "appended",
        "append_failed",
        "truncated",
        "checkpoint",
        "checkpointed",
        "checkpoint_failed",
        "overdue",
        "close",
        "start",
        "start_crashed",
    ];
    const SURVIVES: bool = true;

    /// The first start of a node: an empty log.
    fn begin(event: &SpecEvent<'_>) -> Option<(Self, World)> {
        if event.name != "recovered" || event.id != 0 {
            return None;
        }
        let mut words = event.words();
        let strict: bool = words.word().ok()?;
        let reserve = words.word().ok()?;
        let policy = if strict { Policy::Strict } else { Policy::Shed };
        let limits = Limits {
            reserve,
            ..Limits::default()
        };
        let model = AuditWorld::following(policy, limits);
        let world = model.init_states().pop()?;
        Some((Follow { model }, world))
    }

    fn model(&self) -> &AuditWorld {
        &self.model
    }

    fn read(
        &mut self,
        world: &mut World,
        event: &SpecEvent<'_>,
    ) -> Result<Meaning<Action>, String> {
        let id = event.id;
        Ok(Meaning::Step(match event.name {
            "admit" => Action::Begin,
            "submit" => {
                let may_be_shed: bool = event.words().word()?;
                match may_be_shed || self.model.policy == Policy::Strict {
                    // Who comes once the log is closing was told as lost already.
                    _ if !world.holds(id) && world.is_closing() => return Ok(Meaning::Agrees),
                    true => Action::Submit(id),
                    false => Action::SubmitKept(id),
                }
            }
            "drop" if !world.is_queued(id) && world.is_closing() => return Ok(Meaning::Agrees),
            "drop" => Action::Drop(id),
            "abandon" => Action::Abandon(id),
            "append" => {
                let words = event.detail.split(' ').filter(|word| !word.is_empty());
                let items: Result<Vec<Item>, String> = words.map(item).collect();
                let items = items?;
                world.line_up(&items)?;
                Action::Append(items.len())
            }
            "batch" => return in_flight(world, id),
            "appended" => Action::Appended,
            // An appender that starts anew calls off a batch that it cannot know of.
            "append_failed" if !world.is_writing() => return Ok(Meaning::Agrees),
            "append_failed" => Action::AppendFailed,
            "truncated" if !world.has_remains() => return Ok(Meaning::Agrees),
            "truncated" => Action::Truncated,
            "checkpoint" => Action::Checkpoint,
            "checkpointed" => Action::Checkpointed,
            "checkpoint_failed" if !world.is_publishing() => return Ok(Meaning::Agrees),
            "checkpoint_failed" => Action::CheckpointFailed,
            "overdue" if !world.is_publishing() => return Ok(Meaning::Agrees),
            "overdue" => Action::Overdue,
            "close" => Action::Close,
            "recovered" => {
                let covered = Recovered::read(event)?.covered;
                world.crash_that_leaves(id, covered)
            }
            other => return Err(format!("no event {other:?} of this model")),
        }))
    }

    fn kind(action: &Action, event: &SpecEvent<'_>) -> &'static str {
        match action {
            Action::Begin => "begin",
            Action::Submit(_) => "submit",
            Action::SubmitKept(_) => "submit_kept",
            Action::Drop(_) => "drop",
            Action::Abandon(_) => "abandon",
            Action::Append(_) => "append",
            Action::Appended => "appended",
            Action::AppendFailed => "append_failed",
            Action::Truncated => "truncated",
            Action::Checkpoint => "checkpoint",
            Action::Checkpointed => "checkpointed",
            Action::CheckpointFailed => "checkpoint_failed",
            Action::Overdue => "overdue",
            Action::Close | Action::AbandonAll => "close",
            Action::Crash { .. } if event.detail.ends_with(" 0 0 0") => "start",
            Action::Crash { .. } => "start_crashed",
        }
    }

    fn allows(&self, world: &World, action: &Action) -> bool {
        // A number that is lost twice is counted once.
        matches!(action, Action::Abandon(_)) || self.model.may(world, action)
    }

    /// In place: the world holds the right edge of the tree and a window of the file.
    fn take(
        &mut self,
        world: &mut World,
        action: &Action,
        event: &SpecEvent<'_>,
    ) -> Result<(), String> {
        let nowhere = || format!("{action:?} leads nowhere");
        let expected = world.log().next();
        if let Action::Close = action {
            // Signers are gone and the queue is empty: every number has come back.
            if world.left_behind() > 0 {
                return Err(format!(
                    "{} numbers never came back before the log was closed",
                    world.left_behind()
                ));
            }
            self.model
                .step(world, Action::AbandonAll)
                .ok_or_else(nowhere)?;
        }
        self.model.step(world, *action).ok_or_else(nowhere)?;
        let log = world.log();
        let same = |what: &str, is: u64, model: u64| match is == model {
            true => Ok(()),
            false => Err(format!("{what} is {is}, in the model {model}")),
        };
        match action {
            Action::Begin if !world.holds(event.id) => Err(format!(
                "the model does not give number {}; its next is {expected}",
                event.id
            )),
            Action::Appended => same("the size", event.id, log.size()),
            Action::Checkpoint => same(
                "the size of the checkpoint",
                event.id,
                world.publishes().unwrap_or(0),
            ),
            Action::Checkpointed => {
                same("what is covered", event.id, log.covered())?;
                ready(world, event)
            }
            Action::CheckpointFailed | Action::Overdue => ready(world, event),
            Action::Crash { .. } => {
                let told = Recovered::read(event)?;
                same("the size", event.id, log.size())?;
                same("what is covered", told.covered, log.covered())?;
                same("the next number", told.next, log.next())?;
                let missing = log.restart_gap().unwrap_or(NOTHING);
                if told.missing != missing {
                    return Err(format!(
                        "a restart gap of {:?}, in the model {missing:?}",
                        told.missing
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn describe(world: &World) -> String {
        world.to_string()
    }
}

const NOTHING: Missing = Missing {
    first: 0,
    end: 0,
    at_most: 0,
};

/// What a start found.
struct Recovered {
    covered: u64,
    next: u64,
    missing: Missing,
}

impl Recovered {
    fn read(event: &SpecEvent<'_>) -> Result<Recovered, String> {
        let mut words = event.words();
        let (_strict, _reserve): (bool, u64) = (words.word()?, words.word()?);
        let (covered, next) = (words.word()?, words.word()?);
        let ready: bool = words.word()?;
        if !ready {
            return Err("the start found a log that it cannot go on with".to_owned());
        }
        let missing = Missing {
            first: words.word()?,
            end: words.word()?,
            at_most: words.word()?,
        };
        Ok(Recovered {
            covered,
            next,
            missing,
        })
    }
}

fn item(word: &str) -> Result<Item, String> {
    Ok(match word {
        "i" => Item::Intent,
        "k" => Item::KeyChange,
        "n" => Item::NonceMark,
        number => {
            let number = number.parse();
            Item::Numbered(number.map_err(|_| format!("{word:?} is no item"))?)
        }
    })
}

fn in_flight(world: &World, records: u64) -> Result<Meaning<Action>, String> {
    let in_model = world.log().in_flight();
    match records == in_model {
        true => Ok(Meaning::Agrees),
        false => Err(format!(
            "a batch of {records} records, in the model {in_model}"
        )),
    }
}

fn ready(world: &World, event: &SpecEvent<'_>) -> Result<(), String> {
    let ready: bool = event.words().word()?;
    match ready == world.log().is_ready() {
        true => Ok(()),
        false => Err(format!("readiness is {ready}, in the model it is not")),
    }
}
