//! The life cycle in a small world: tasks that panic, return or hang whenever they like, timers that fire
//! in any order, shutdown at any moment and more than once.
//!
//! Time is abstract. An armed timer may fire at any step, before or after any other, so what holds here
//! holds for all backoffs, windows and deadlines. `now` is one of two moments a window apart, so that the
//! restart budget both fills and empties.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rand_chacha::rand_core::SeedableRng;
use stateright::{Model, Property};

use crate::{
    Rng,
    backoff::{Backoff, Jitter},
    lifecycle::{Action, Ended, Escalate, Lifecycle, Restart, Stage, TaskId, TaskRules, Timer},
};

/// A fault built into the stepping, to see the checker find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    /// A task that panics while draining is started again.
    RestartsWhileDraining,
    /// The drain deadlines never fire.
    ForgetsPhaseDeadlines,
    /// All phases are told to stop at once.
    StopsAllPhasesAtOnce,
    /// The end of the drain does not wait for aborted tasks to be gone.
    DoesNotWaitForAborted,
    /// A restart that was due at shutdown still happens.
    KeepsPendingRestarts,
    /// A phase's deadline aborts the tasks of all phases, and only its own are counted.
    AbortsUncounted,
}

pub struct LifecycleModel {
    pub defect: Defect,
    /// One task each.
    pub tasks: Vec<TaskRules>,
    pub phases: usize,
    /// This one ignores that it is told to stop: only force ends it.
    pub hangs: Option<TaskId>,
    /// Failures in the whole run: enough to go over the budget.
    pub failures: u32,
    /// Requests to shut down; more than one shows that the others change nothing.
    pub shutdowns: u32,
    /// Tasks stopped alone.
    pub stops_alone: u32,
    /// Any moment: only differences count.
    pub origin: Instant,
}

const WINDOW: Duration = Duration::from_secs(60);

impl LifecycleModel {
    /// Two phases. In the first a worker that keeps readiness while it restarts; in the second one whose failure
    /// ends the process. One restart each is allowed.
    pub fn new(defect: Defect, origin: Instant) -> Self {
        let restart = Restart {
            backoff: Backoff {
                min: Duration::from_millis(100),
                max: Duration::from_secs(5),
                jitter: Jitter::None,
            },
            max_restarts: 1,
            window: WINDOW,
            stable_after: Duration::from_secs(5),
        };
        let worker = TaskRules {
            name: "worker",
            kind: "worker",
            worker: None,
            phase: 0,
            long_lived: true,
            ready_while_restarting: false,
            restart,
            escalate: Escalate::ReadinessOff,
        };
        let appender = TaskRules {
            name: "appender",
            kind: "appender",
            phase: 1,
            escalate: Escalate::Exit,
            ..worker
        };
        LifecycleModel {
            defect,
            tasks: vec![worker, worker, appender],
            phases: 2,
            hangs: Some(TaskId(0)),
            failures: 2,
            shutdowns: 2,
            stops_alone: 1,
            origin,
        }
    }

    /// A process without tasks and without bounds, to be stepped along with one that runs.
    pub fn following(phases: usize, origin: Instant) -> (Self, World) {
        let model = LifecycleModel {
            defect: Defect::None,
            tasks: Vec::new(),
            phases,
            hangs: None,
            failures: u32::MAX,
            shutdowns: u32::MAX,
            stops_alone: u32::MAX,
            origin,
        };
        let world = model.empty();
        (model, world)
    }

    /// Adds a task to a process that runs; `None` if it is draining, or has no such phase.
    pub fn register(&mut self, world: &mut World, rules: TaskRules) -> Option<TaskId> {
        let (task, actions) = world.machine.handle_register(rules, self.origin)?;
        self.tasks.push(rules);
        self.obey(world, actions);
        Some(task)
    }

    fn empty(&self) -> World {
        World {
            machine: Lifecycle::new(vec![Duration::from_secs(3); self.phases]),
            alive: BTreeSet::new(),
            told: BTreeSet::new(),
            aborting: BTreeSet::new(),
            timers: BTreeSet::new(),
            aborts: 0,
            failures: 0,
            shutdowns: 0,
            stops_alone: 0,
            phases_entered: 0,
            stops: 0,
            stopping: false,
            started_late: false,
            stopped_early: false,
            entered_out_of_order: false,
        }
    }

    /// Does what the machine says, and keeps its own account of it.
    fn obey(&self, world: &mut World, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start { task, .. } => {
                    world.started_late |= world.stopping;
                    world.alive.insert(task);
                }
                Action::Arm { timer, .. } => {
                    let forgotten = self.defect == Defect::ForgetsPhaseDeadlines
                        && matches!(timer, Timer::Phase(_));
                    if !forgotten {
                        world.timers.insert(timer);
                    }
                }
                Action::Stop(task) => self.stop(world, task),
                Action::Abort(task) => {
                    world.aborting.insert(task);
                    world.aborts += 1;
                }
                Action::Unready => world.stopping = true,
                Action::EnterPhase(phase) => {
                    world.entered_out_of_order |= phase != usize::from(world.phases_entered);
                    world.phases_entered += 1;
                }
                Action::Stopped(_) => world.stops += 1,
                Action::GateChanged(_) | Action::Escalated(_) => {}
            }
        }
    }

    /// A task may be told to stop only when every task of an earlier phase has ended or been aborted.
    fn stop(&self, world: &mut World, task: TaskId) {
        let phase = self.phase_of(task);
        let waits_for =
            (world.alive.difference(&world.aborting)).any(|other| self.phase_of(*other) < phase);
        world.stopped_early |= world.stopping && waits_for;
        world.told.insert(task);
        if self.defect == Defect::StopsAllPhasesAtOnce {
            let untold: Vec<_> = world.alive.difference(&world.told).copied().collect();
            for other in untold {
                self.stop(world, other);
            }
        }
    }

    fn phase_of(&self, task: TaskId) -> usize {
        self.tasks[task.0 as usize].phase
    }

    fn end(&self, world: &mut World, task: TaskId, how: Ended, at: Duration) {
        world.alive.remove(&task);
        world.aborting.remove(&task);
        let mut rng = Rng::seed_from_u64(0);
        let now = self.origin + at;
        let actions = world.machine.handle_ended(task, how, now, &mut rng);
        self.obey(world, actions);
        if self.defect == Defect::RestartsWhileDraining && how == Ended::Panicked && world.stopping
        {
            let incarnation = 1;
            self.obey(world, vec![Action::Start { task, incarnation }]);
        }
    }

    /// Applies the defects that spoil what a timer does.
    fn spoil(&self, world: &mut World, timer: Timer, stage: Stage, actions: &mut Vec<Action>) {
        match (self.defect, timer) {
            (Defect::KeepsPendingRestarts, Timer::Restart(task)) if stage != Stage::Running => {
                let incarnation = 1;
                actions.push(Action::Start { task, incarnation });
            }
            (Defect::DoesNotWaitForAborted, Timer::Phase(_))
                if world.machine.stage() == Stage::Aborting =>
            {
                actions.push(Action::Stopped(world.machine.exit()));
            }
            (Defect::AbortsUncounted, Timer::Phase(_)) => {
                let others = world.alive.difference(&world.aborting).copied();
                actions.extend(others.map(Action::Abort));
            }
            _ => {}
        }
    }
}

/// The machine, and what an onlooker saw of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub machine: Lifecycle,
    /// Started and not yet ended, by the onlooker's own account.
    pub alive: BTreeSet<TaskId>,
    /// Told to stop.
    pub told: BTreeSet<TaskId>,
    /// Aborted and not yet gone.
    pub aborting: BTreeSet<TaskId>,
    pub timers: BTreeSet<Timer>,
    pub aborts: u64,
    pub failures: u32,
    pub shutdowns: u32,
    pub stops_alone: u32,
    pub phases_entered: u8,
    pub stops: u8,
    /// The process has been asked to stop, or gave up.
    pub stopping: bool,
    pub started_late: bool,
    pub stopped_early: bool,
    pub entered_out_of_order: bool,
}

impl World {
    fn is_stopped(&self) -> bool {
        self.machine.stage() == Stage::Stopped
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Shutdown,
    /// A task is stopped alone.
    StopAlone(TaskId),
    /// A task fails so long after the origin: the checker tries the origin itself, and when earlier failures
    /// no longer count.
    Panic {
        task: TaskId,
        at: Duration,
    },
    /// A task that was told to stop does so, or one that is not long-lived is done.
    Finish(TaskId),
    /// An aborted task is gone.
    Gone(TaskId),
    Fire(Timer),
}

impl Model for LifecycleModel {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = self.empty();
        for rules in &self.tasks {
            let registered = world.machine.handle_register(*rules, self.origin);
            let (_, actions) = registered.expect("a running process takes tasks");
            self.obey(&mut world, actions);
        }
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.shutdowns < self.shutdowns {
            steps.push(Step::Shutdown);
        }
        for task in world.alive.difference(&world.aborting) {
            if world.stops_alone < self.stops_alone {
                steps.push(Step::StopAlone(*task));
            }
            if world.failures < self.failures {
                for at in [Duration::ZERO, WINDOW] {
                    steps.push(Step::Panic { task: *task, at });
                }
            }
            let ends = world.told.contains(task) || !self.tasks[task.0 as usize].long_lived;
            if ends && self.hangs != Some(*task) {
                steps.push(Step::Finish(*task));
            }
        }
        steps.extend(world.aborting.iter().copied().map(Step::Gone));
        steps.extend(world.timers.iter().copied().map(Step::Fire));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Shutdown => {
                next.shutdowns += 1;
                let actions = next.machine.handle_shutdown(self.origin);
                self.obey(&mut next, actions);
            }
            Step::StopAlone(task) => {
                next.stops_alone += 1;
                let actions = next.machine.handle_stop(task, self.origin);
                self.obey(&mut next, actions);
            }
            Step::Panic { task, at } => {
                next.failures += 1;
                self.end(&mut next, task, Ended::Panicked, at);
            }
            Step::Finish(task) | Step::Gone(task) => {
                self.end(&mut next, task, Ended::Finished, Duration::ZERO);
            }
            Step::Fire(timer) => {
                next.timers.remove(&timer);
                let stage = next.machine.stage();
                let mut actions = next.machine.handle_timer(timer, self.origin);
                self.spoil(&mut next, timer, stage, &mut actions);
                self.obey(&mut next, actions);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no task starts after shutdown", |_, w: &World| {
                !w.started_late
            }),
            Property::always("at the end no task lives", |_, w: &World| {
                w.stops == 0 || (w.alive.is_empty() && w.is_stopped())
            }),
            Property::always("a phase waits for the one before", |_, w: &World| {
                !w.stopped_early && !w.entered_out_of_order
            }),
            Property::always("every abort is counted", |_, w: &World| {
                w.aborts == w.machine.counts().values().map(|c| c.aborted).sum::<u64>()
            }),
            Property::always("the living are counted", |_, w: &World| {
                let counted: u64 = w.machine.counts().values().map(|c| c.alive).sum();
                counted == w.alive.len() as u64
            }),
            Property::always("it stops once", |_, w: &World| w.stops <= 1),
            Property::eventually("the drain completes", |_, w: &World| w.is_stopped()),
            // The same as a safety law, for the checker may lose an `eventually` where paths join:
            // no run goes round in a circle, so each ends where nothing more can happen.
            Property::always("nothing waits for ever", |model: &Self, w: &World| {
                let mut steps = Vec::new();
                model.actions(w, &mut steps);
                w.is_stopped() || !steps.is_empty()
            }),
            Property::sometimes("a task restarts", |_, w: &World| {
                w.machine.counts().values().any(|c| c.restarted > 0)
            }),
            Property::sometimes("a task over budget recovers", |_, w: &World| {
                w.machine.gate_reason("worker").is_none()
                    && w.machine.counts()["worker"].restarted > 1
            }),
            Property::sometimes("a task escalates to exit", |_, w: &World| {
                w.shutdowns == 0 && w.stopping
            }),
            Property::sometimes("a straggler is aborted", |_, w: &World| {
                w.is_stopped() && w.aborts > 0
            }),
        ]
    }
}
