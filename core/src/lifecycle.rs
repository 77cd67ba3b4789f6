//! The life of a process, decided: which task starts, waits, stops or is aborted, and when all is over.
//!
//! Pure: the supervisor feeds it what happened and does what it says; the model checker steps the very
//! same machine. Always: no start once shutdown was asked for; phase i+1 is told to stop only after
//! phase i has ended; a phase lasts no longer than its deadline; each abort is counted; at `Stopped`
//! no task lives.
//!
//! ```text
//! Running --shutdown or escalation--> Draining(0) --> Draining(1) .. --> [Aborting] --> Stopped
//! ```
//! A phase ends when its tasks have ended, or at its deadline, when what is left is aborted. `Aborting`
//! is the wait, after the last phase, for aborted tasks to be gone.

mod terms;

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::terms::{
    Action, Ended, Escalate, Exit, PhaseRecord, Restart, Stage, TaskId, TaskRules, Timer,
};
use crate::view::TaskCounts;

/// Inputs are the `handle_*` methods; each returns what to do. The shell calls `handle_register` for each task,
/// reports the end of every start exactly once, and fires armed timers at or after their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    stage: Stage,
    exit: Exit,
    deadlines: Vec<Duration>,
    records: Vec<PhaseRecord>,
    /// Those that live or will; what has ended for good is forgotten.
    tasks: BTreeMap<TaskId, Task>,
    next_id: u64,
    counts: BTreeMap<&'static str, TaskCounts>,
}

/// What is known of a task that lives, or waits to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Shared by all tasks that have the same.
    pub rules: Arc<TaskRules>,
    pub state: TaskState,
    /// How often it has been restarted.
    pub incarnation: u32,
    /// Failures since it was last stable.
    attempt: u32,
    /// The times of the restarts that still count, at most `max_restarts`.
    #[expect(
        clippy::box_collection,
        reason = "tasks are many, and few ever fail: none is a pointer"
    )]
    recent: Option<Box<VecDeque<Instant>>>,
    gate: GateState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    Alive,
    /// It was told to stop and has not yet ended.
    Stopping,
    /// It was aborted and is not yet gone.
    Aborted,
    /// It failed and waits for its restart.
    Waiting,
}

/// Why a task holds readiness closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum GateState {
    Open,
    Restarting,
    Flapping,
}

impl Lifecycle {
    /// One deadline for each drain phase, in order.
    pub fn new(phase_deadlines: Vec<Duration>) -> Self {
        Lifecycle {
            stage: Stage::Running,
            exit: Exit::Clean,
            records: vec![PhaseRecord::default(); phase_deadlines.len()],
            deadlines: phase_deadlines,
            tasks: BTreeMap::new(),
            next_id: 0,
            counts: BTreeMap::new(),
        }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }

    pub fn counts(&self) -> &BTreeMap<&'static str, TaskCounts> {
        &self.counts
    }

    pub fn phases(&self) -> &[PhaseRecord] {
        &self.records
    }

    pub fn tasks(&self) -> &BTreeMap<TaskId, Task> {
        &self.tasks
    }

    /// Why the tasks of this name hold readiness closed, if one does.
    pub fn gate_reason(&self, name: &str) -> Option<&'static str> {
        let named = self.tasks.values().filter(|t| t.rules.name == name);
        let gates = named.map(|t| t.gate);
        match gates.max()? {
            GateState::Open => None,
            GateState::Restarting => Some("restarting"),
            GateState::Flapping => Some("failing again and again"),
        }
    }

    // ----------------------------------------------------------------------------------- inputs

    /// A new task, started at once. `None` if the process is draining, or has no such phase.
    pub fn handle_register(
        &mut self,
        rules: TaskRules,
        now: Instant,
    ) -> Option<(TaskId, Vec<Action>)> {
        if self.stage != Stage::Running || rules.phase >= self.deadlines.len() {
            return None;
        }
        let id = TaskId(self.next_id);
        self.next_id += 1;
        let alike = self.tasks.values().rev().find(|t| *t.rules == rules);
        let rules = alike.map_or_else(|| Arc::new(rules), |task| task.rules.clone());
        let task = Task {
            rules,
            state: TaskState::Waiting,
            incarnation: 0,
            attempt: 0,
            recent: None,
            gate: GateState::Open,
        };
        self.tasks.insert(id, task);
        let mut out = Vec::new();
        self.start(id, now, &mut out);
        Some((id, out))
    }

    /// Stops one task and lets the others run; it has the time of its phase. In a drain its phase will come.
    pub fn handle_stop(&mut self, id: TaskId, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        let Some(task) = self.tasks.get_mut(&id) else {
            return out;
        };
        if self.stage != Stage::Running {
            return out;
        }
        match task.state {
            TaskState::Alive => {
                task.state = TaskState::Stopping;
                let limit = self.deadlines[task.rules.phase];
                out.push(Action::Stop(id));
                out.push(arm(Timer::Stop(id), now, limit));
            }
            TaskState::Waiting => self.forget(id, &mut out),
            TaskState::Stopping | TaskState::Aborted => {}
        }
        out
    }

    /// Begins the drain. Asked again, it changes nothing.
    pub fn handle_shutdown(&mut self, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        if self.stage == Stage::Running {
            self.drain(now, &mut out);
        }
        out
    }

    /// The future of a started task is gone.
    pub fn handle_ended(
        &mut self,
        id: TaskId,
        how: Ended,
        now: Instant,
        rng: &mut impl rand_core::Rng,
    ) -> Vec<Action> {
        let mut out = Vec::new();
        let Some(task) = self.tasks.get(&id) else {
            return out;
        };
        let (state, rules) = (task.state, task.rules.clone());
        if state == TaskState::Waiting {
            return out;
        }
        let counts = self.counts.entry(rules.kind).or_default();
        counts.alive -= 1;
        if how == Ended::Panicked {
            counts.panicked += 1;
        }
        if state == TaskState::Stopping && how == Ended::Finished {
            counts.canceled += 1;
        }
        let done = how == Ended::Finished && !rules.long_lived;
        if self.stage == Stage::Running && state == TaskState::Alive && !done {
            self.fail(id, now, rng, &mut out);
        } else {
            if let Stage::Draining { phase } = self.stage
                && state != TaskState::Aborted
                && how == Ended::Finished
            {
                crate::sometimes!("lifecycle.drained_in_time");
                self.records[phase].drained += 1;
            }
            self.forget(id, &mut out);
            self.advance(now, &mut out);
        }
        out
    }

    pub fn handle_timer(&mut self, timer: Timer, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        match timer {
            Timer::Restart(id) => {
                if self.state_of(id) == Some(TaskState::Waiting) {
                    self.start(id, now, &mut out);
                }
            }
            Timer::Stable(id, incarnation) => self.settle(id, incarnation, &mut out),
            Timer::Stop(id) => {
                if self.state_of(id) == Some(TaskState::Stopping) {
                    self.abort(id, &mut out);
                    self.advance(now, &mut out);
                }
            }
            Timer::Phase(phase) => {
                if self.stage == (Stage::Draining { phase }) {
                    crate::sometimes!("lifecycle.abort_at_deadline");
                    for id in self.living_of(phase) {
                        self.abort(id, &mut out);
                    }
                    self.advance(now, &mut out);
                }
            }
        }
        out
    }

    // -------------------------------------------------------------------------------- decisions

    fn start(&mut self, id: TaskId, now: Instant, out: &mut Vec<Action>) {
        let task = self.tasks.get_mut(&id).expect("only a known task starts");
        let counts = self.counts.entry(task.rules.kind).or_default();
        counts.alive += 1;
        counts.spawned += 1;
        if task.attempt > 0 {
            task.incarnation = task.incarnation.saturating_add(1);
            counts.restarted += 1;
            crate::sometimes!("lifecycle.restarted");
            let stable = Timer::Stable(id, task.incarnation);
            out.push(arm(stable, now, task.rules.restart.stable_after));
        }
        task.state = TaskState::Alive;
        let incarnation = task.incarnation;
        out.push(Action::Start {
            task: id,
            incarnation,
        });
        if task.gate == GateState::Restarting {
            set_gate(id, task, GateState::Open, out);
        }
    }

    /// A task failed while the process runs: a restart within its budget, else escalation.
    fn fail(
        &mut self,
        id: TaskId,
        now: Instant,
        rng: &mut impl rand_core::Rng,
        out: &mut Vec<Action>,
    ) {
        let task = self.tasks.get_mut(&id).expect("only a known task fails");
        let Restart {
            backoff,
            max_restarts,
            window,
            ..
        } = task.rules.restart;
        let expired = |at: &Instant| now.saturating_duration_since(*at) >= window;
        let mut recent = task.recent.take().unwrap_or_default();
        while recent.front().is_some_and(expired) {
            recent.pop_front();
        }
        let over_budget = recent.len() >= max_restarts as usize;
        if over_budget && task.rules.escalate == Escalate::Exit {
            self.exit = Exit::Escalated(id);
            out.push(Action::Escalated(id));
            self.forget(id, out);
            self.drain(now, out);
            return;
        }
        let mut attempt = task.attempt;
        if over_budget {
            crate::sometimes!("lifecycle.over_budget");
            attempt = u32::MAX;
            recent.pop_front();
            if task.gate != GateState::Flapping {
                out.push(Action::Escalated(id));
                set_gate(id, task, GateState::Flapping, out);
            }
        } else if task.gate == GateState::Open && !task.rules.ready_while_restarting {
            set_gate(id, task, GateState::Restarting, out);
        }
        if max_restarts > 0 {
            recent.push_back(now);
        }
        task.recent = (!recent.is_empty()).then_some(recent);
        task.attempt = task.attempt.saturating_add(1);
        task.state = TaskState::Waiting;
        out.push(arm(Timer::Restart(id), now, backoff.delay(attempt, rng)));
    }

    /// It has lived long enough to be trusted again. Its recent restarts still count against the budget.
    fn settle(&mut self, id: TaskId, incarnation: u32, out: &mut Vec<Action>) {
        if let Some(task) = self.tasks.get_mut(&id)
            && task.state == TaskState::Alive
            && task.incarnation == incarnation
        {
            crate::sometimes!("lifecycle.stable_again");
            task.attempt = 0;
            set_gate(id, task, GateState::Open, out);
        }
    }

    fn drain(&mut self, now: Instant, out: &mut Vec<Action>) {
        out.push(Action::Unready);
        // A restart that is still due never comes.
        if (self.tasks.values()).any(|task| task.state == TaskState::Waiting) {
            crate::sometimes!("lifecycle.restart_given_up_in_drain");
        }
        self.tasks
            .retain(|_, task| task.state != TaskState::Waiting);
        self.enter(0, now, out);
    }

    fn enter(&mut self, phase: usize, now: Instant, out: &mut Vec<Action>) {
        if phase == self.deadlines.len() {
            self.stage = Stage::Aborting;
            return self.advance(now, out);
        }
        self.stage = Stage::Draining { phase };
        self.records[phase].entered = Some(now);
        out.push(Action::EnterPhase(phase));
        for id in self.living_of(phase) {
            let task = self.tasks.get_mut(&id).expect("it is among the living");
            if task.state == TaskState::Alive {
                task.state = TaskState::Stopping;
                out.push(Action::Stop(id));
            }
        }
        out.push(arm(Timer::Phase(phase), now, self.deadlines[phase]));
        self.advance(now, out);
    }

    /// Moves on once the present stage has nothing more to wait for.
    fn advance(&mut self, now: Instant, out: &mut Vec<Action>) {
        match self.stage {
            Stage::Draining { phase } if self.living_of(phase).is_empty() => {
                self.records[phase].ended = Some(now);
                self.enter(phase + 1, now, out);
            }
            Stage::Aborting if self.tasks.is_empty() => {
                self.stage = Stage::Stopped;
                out.push(Action::Stopped(self.exit));
            }
            _ => {}
        }
    }

    fn abort(&mut self, id: TaskId, out: &mut Vec<Action>) {
        let task = self
            .tasks
            .get_mut(&id)
            .expect("only a known task is aborted");
        task.state = TaskState::Aborted;
        let counts = self.counts.entry(task.rules.kind).or_default();
        counts.aborted += 1;
        if let Stage::Draining { phase } = self.stage {
            self.records[phase].aborted += 1;
        }
        out.push(Action::Abort(id));
    }

    /// The task has ended for good; whatever it held closed is released.
    fn forget(&mut self, id: TaskId, out: &mut Vec<Action>) {
        if let Some(task) = self.tasks.remove(&id)
            && task.gate != GateState::Open
        {
            out.push(Action::GateChanged(id));
        }
    }

    fn state_of(&self, id: TaskId) -> Option<TaskState> {
        self.tasks.get(&id).map(|task| task.state)
    }

    /// The tasks of a phase that it still waits for.
    fn living_of(&self, phase: usize) -> Vec<TaskId> {
        self.tasks
            .iter()
            .filter(|(_, task)| task.rules.phase == phase && task.state != TaskState::Aborted)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// A year at most: every sum of times stays inside what the clock can hold.
fn arm(timer: Timer, now: Instant, wait: Duration) -> Action {
    let at = now + wait.min(Duration::from_secs(365 * 24 * 3600));
    Action::Arm { timer, at }
}

fn set_gate(id: TaskId, task: &mut Task, gate: GateState, out: &mut Vec<Action>) {
    if task.gate != gate {
        task.gate = gate;
        out.push(Action::GateChanged(id));
    }
}

/// By hand, because the counts belong to the state and their type has no hash.
impl Hash for Lifecycle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.stage, self.exit, self.next_id).hash(state);
        (&self.deadlines, &self.records, &self.tasks).hash(state);
        for (kind, c) in &self.counts {
            (kind, c.alive, c.spawned, c.restarted).hash(state);
            (c.panicked, c.canceled, c.aborted).hash(state);
        }
    }
}
