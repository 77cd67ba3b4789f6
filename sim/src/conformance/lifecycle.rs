//! The life cycle of a process, followed: what the supervisor is told and does, against the checked model.
//!
//! What happens to it (an end, a timer, a request to stop) is a step. What it then does (start, stop, abort,
//! enter a phase) must be what the step called for, all of it, before anything else happens.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ron_core::{
    backoff::{Backoff, Jitter},
    lifecycle::{Escalate, Restart, TaskId, TaskRules, Timer},
    models::lifecycle::{LifecycleModel, Step, World},
};
use stateright::Model;

use super::{Conformance, Meaning, Reading, SpecEvent, offers};
use crate::oracle::{EVERYWHERE, OracleKind};

pub const KIND: OracleKind = OracleKind {
    name: Follow::ORACLE,
    law: "the supervisor does what the life-cycle model does, step by step",
    premise: EVERYWHERE,
    make: || Box::new(Conformance::<Follow>::new()),
};

pub struct Follow {
    model: LifecycleModel,
    /// What the last step called for and has not been seen.
    owed: BTreeSet<Deed>,
}

/// What a supervisor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Unready,
    Enter(u64),
    Start(TaskId, u32),
    Stop(TaskId),
    Abort(TaskId),
    Stopped,
}

impl Reading for Follow {
    type Model = LifecycleModel;
    const MODEL: &'static str = "lifecycle";
    const ORACLE: &'static str = "model.lifecycle";
    const STEPS: &'static [&'static str] = &[
        "shutdown",
        "stop_alone",
        "panic",
        "finish",
        "gone",
        "fire_restart",
        "fire_stable",
        "fire_stop",
        "fire_phase",
    ];

    fn begin(event: &SpecEvent<'_>) -> Option<(Self, World)> {
        let phases = (event.name == "began").then_some(event.id as usize)?;
        let (model, world) = LifecycleModel::following(phases, Instant::now());
        let owed = BTreeSet::new();
        Some((Follow { model, owed }, world))
    }

    fn model(&self) -> &LifecycleModel {
        &self.model
    }

    fn read(&mut self, world: &mut World, event: &SpecEvent<'_>) -> Result<Meaning<Step>, String> {
        let task = TaskId(event.id);
        let deed = match event.name {
            "start" => Deed::Start(task, event.words().word()?),
            "stop" => Deed::Stop(task),
            "abort" => Deed::Abort(task),
            "phase" => Deed::Enter(event.id),
            "unready" => Deed::Unready,
            "stopped" => Deed::Stopped,
            _ => return self.read_input(world, event),
        };
        if self.owed.remove(&deed) {
            Ok(Meaning::Agrees)
        } else {
            Err(format!("{deed:?} was not called for"))
        }
    }

    fn kind(step: &Step, _: &SpecEvent<'_>) -> &'static str {
        match step {
            Step::Shutdown => "shutdown",
            Step::StopAlone(_) => "stop_alone",
            Step::Panic { .. } => "panic",
            Step::Finish(_) => "finish",
            Step::Gone(_) => "gone",
            Step::Fire(Timer::Restart(_)) => "fire_restart",
            Step::Fire(Timer::Stable(..)) => "fire_stable",
            Step::Fire(Timer::Stop(_)) => "fire_stop",
            Step::Fire(Timer::Phase(_)) => "fire_phase",
        }
    }

    fn allows(&self, world: &World, step: &Step) -> bool {
        let step = match step {
            // The model tries two moments of many.
            Step::Panic { task, .. } => Step::Panic {
                task: *task,
                at: Duration::ZERO,
            },
            other => other.clone(),
        };
        offers(&self.model, world, &step)
    }

    fn stepped(
        &mut self,
        before: &World,
        after: &mut World,
        _: &SpecEvent<'_>,
    ) -> Result<(), String> {
        self.owe(before, after);
        // The laws of the model hold in a real run as well.
        let laws = self.model.properties();
        let always = |p: &&stateright::Property<LifecycleModel>| {
            p.expectation == stateright::Expectation::Always
                && p.name != "nothing waits for ever"
                && !(p.condition)(&self.model, after)
        };
        match laws.iter().find(always) {
            Some(broken) => Err(format!("the model's own law is broken: {}", broken.name)),
            None => Ok(()),
        }
    }
}

impl Follow {
    /// What happened to the supervisor, once it has done all that was called for before.
    fn read_input(
        &mut self,
        world: &mut World,
        event: &SpecEvent<'_>,
    ) -> Result<Meaning<Step>, String> {
        if let Some(deed) = self.owed.first() {
            return Err(format!("{deed:?} was called for and has not been done"));
        }
        let task = TaskId(event.id);
        let mut words = event.words();
        Ok(Meaning::Step(match event.name {
            "register" => {
                let before = world.clone();
                let rules = read_rules(event)?;
                if self.model.register(world, rules) != Some(task) {
                    return Err("the model registers no such task here".to_owned());
                }
                self.owe(&before, world);
                return Ok(Meaning::Agrees);
            }
            "shutdown" => Step::Shutdown,
            "stop_alone" if !world.alive.contains(&task) || world.aborting.contains(&task) => {
                // At most a restart that is due is forgotten: nothing is to be done.
                let _ = world.machine.handle_stop(task, self.model.origin);
                return Ok(Meaning::Agrees);
            }
            "stop_alone" => Step::StopAlone(task),
            "ended" if world.aborting.contains(&task) => Step::Gone(task),
            "ended" => {
                let panicked: bool = words.word()?;
                let at = Duration::from_nanos(words.word()?);
                let done = !panicked
                    && (world.told.contains(&task)
                        || self
                            .model
                            .tasks
                            .get(event.id as usize)
                            .is_some_and(|t| !t.long_lived));
                match done {
                    true => Step::Finish(task),
                    false => Step::Panic { task, at },
                }
            }
            "fire" => Step::Fire(match words.word::<String>()?.as_str() {
                "restart" => Timer::Restart(task),
                "stable" => Timer::Stable(task, words.word()?),
                "stop" => Timer::Stop(task),
                "phase" => Timer::Phase(event.id as usize),
                other => return Err(format!("no timer {other:?}")),
            }),
            other => return Err(format!("no event {other:?} of this model")),
        }))
    }

    /// What changed between two states is what the supervisor has to do.
    fn owe(&mut self, before: &World, after: &World) {
        let incarnation = |world: &World, task: &TaskId| {
            let task = world.machine.tasks().get(task)?;
            Some(task.incarnation)
        };
        for task in after.alive.difference(&before.alive) {
            let incarnation = incarnation(after, task).unwrap_or(0);
            self.owed.insert(Deed::Start(*task, incarnation));
        }
        let told = after.told.difference(&before.told);
        self.owed.extend(told.copied().map(Deed::Stop));
        let aborted = after.aborting.difference(&before.aborting);
        self.owed.extend(aborted.copied().map(Deed::Abort));
        let entered = u64::from(before.phases_entered)..u64::from(after.phases_entered);
        self.owed.extend(entered.map(Deed::Enter));
        if after.stopping && !before.stopping {
            self.owed.insert(Deed::Unready);
        }
        if after.stops > before.stops {
            self.owed.insert(Deed::Stopped);
        }
    }
}

/// The rules of a task as far as they decide anything here; names and backoffs do not.
fn read_rules(event: &SpecEvent<'_>) -> Result<TaskRules, String> {
    let mut words = event.words();
    let (phase, long_lived) = (words.word()?, words.word()?);
    let (ready_while_restarting, exits): (bool, bool) = (words.word()?, words.word()?);
    let (max_restarts, window) = (words.word()?, Duration::from_nanos(words.word()?));
    Ok(TaskRules {
        name: "task",
        kind: "task",
        worker: None,
        phase,
        long_lived,
        ready_while_restarting,
        restart: Restart {
            backoff: Backoff {
                min: Duration::ZERO,
                max: Duration::ZERO,
                jitter: Jitter::None,
            },
            max_restarts,
            window,
            stable_after: Duration::ZERO,
        },
        escalate: if exits {
            Escalate::Exit
        } else {
            Escalate::ReadinessOff
        },
    })
}
