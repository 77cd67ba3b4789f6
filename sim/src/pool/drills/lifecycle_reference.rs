//! The life of a process as a list of tasks, each with what it was told and when it failed.
//!
//! Nothing is ever thrown away early: all failures are kept and counted anew each time they matter. Each input answers
//! what is to be done, in order; when a failed task comes back is a span, for it is drawn.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ron_core::{
    lifecycle::{
        Action, Ended, Escalate, Exit, PhaseRecord, Stage, TaskId, TaskRules, TaskState, Timer,
    },
    view::TaskCounts,
};

use super::backoff::bounds;

const RESTARTING: &str = "restarting";
const FLAPPING: &str = "failing again and again";

/// No wait is longer.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Known {
    pub rules: TaskRules,
    pub state: TaskState,
    pub restarts: u32,
    /// Failures since it was last well.
    in_a_row: u32,
    /// All failures after which it was to come back.
    failed: Vec<Instant>,
    pub closed: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub enum Expect {
    Do(Action),
    /// The timer of a restart, at some time of this span.
    Restart(TaskId, Instant, Instant),
}

pub struct Reference {
    pub stage: Stage,
    pub exit: Exit,
    pub deadlines: Vec<Duration>,
    pub phases: Vec<PhaseRecord>,
    pub tasks: BTreeMap<TaskId, Known>,
    pub counts: BTreeMap<&'static str, TaskCounts>,
    next: u64,
    out: Vec<Expect>,
    pub now: Instant,
}

impl Reference {
    pub fn new(deadlines: Vec<Duration>, now: Instant) -> Self {
        Reference {
            stage: Stage::Running,
            exit: Exit::Clean,
            phases: vec![PhaseRecord::default(); deadlines.len()],
            deadlines,
            tasks: BTreeMap::new(),
            counts: BTreeMap::new(),
            next: 0,
            out: Vec::new(),
            now,
        }
    }

    /// What is to be done about what was put in since it was last asked.
    pub fn done(&mut self) -> Vec<Expect> {
        std::mem::take(&mut self.out)
    }

    pub fn gate(&self, name: &str) -> Option<&'static str> {
        let named = || self.tasks.values().filter(|task| task.rules.name == name);
        let worst = [FLAPPING, RESTARTING];
        worst
            .into_iter()
            .find(|reason| named().any(|task| task.closed == Some(*reason)))
    }

    // ------------------------------------------------------------------------------------ inputs

    pub fn register(&mut self, rules: TaskRules) -> Option<TaskId> {
        if self.stage != Stage::Running || rules.phase >= self.deadlines.len() {
            return None;
        }
        let id = TaskId(self.next);
        self.next += 1;
        let task = Known {
            rules,
            state: TaskState::Alive,
            restarts: 0,
            in_a_row: 0,
            failed: Vec::new(),
            closed: None,
        };
        self.tasks.insert(id, task);
        self.started(id);
        self.push(Action::Start {
            task: id,
            incarnation: 0,
        });
        Some(id)
    }

    pub fn stop(&mut self, id: TaskId) {
        if self.stage != Stage::Running {
            return;
        }
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        match task.state {
            TaskState::Alive => {
                task.state = TaskState::Stopping;
                let limit = self.deadlines[task.rules.phase];
                self.push(Action::Stop(id));
                self.arm(Timer::Stop(id), limit);
            }
            TaskState::Waiting => self.forget(id),
            TaskState::Stopping | TaskState::Aborted => {}
        }
    }

    pub fn shutdown(&mut self) {
        if self.stage == Stage::Running {
            self.drain();
        }
    }

    pub fn ended(&mut self, id: TaskId, how: Ended) {
        let Some(task) = self.tasks.get(&id) else {
            return;
        };
        if task.state == TaskState::Waiting {
            return;
        }
        let (state, rules) = (task.state, task.rules);
        let counts = self.counts.entry(rules.kind).or_default();
        counts.alive -= 1;
        counts.panicked += u64::from(how == Ended::Panicked);
        let obeyed = state == TaskState::Stopping && how == Ended::Finished;
        counts.canceled += u64::from(obeyed);
        let well = how == Ended::Finished && !rules.long_lived;
        if self.stage == Stage::Running && state == TaskState::Alive && !well {
            return self.failed(id);
        }
        if let Stage::Draining { phase } = self.stage
            && how == Ended::Finished
            && state != TaskState::Aborted
        {
            self.phases[phase].drained += 1;
        }
        self.forget(id);
        self.go_on();
    }

    pub fn fired(&mut self, timer: Timer) {
        let state = |id| self.tasks.get(&id).map(|task: &Known| task.state);
        match timer {
            Timer::Restart(id) if state(id) == Some(TaskState::Waiting) => self.restart(id),
            Timer::Stable(id, restarts) if state(id) == Some(TaskState::Alive) => {
                self.well_again(id, restarts);
            }
            Timer::Stop(id) if state(id) == Some(TaskState::Stopping) => {
                self.abort(id);
                self.go_on();
            }
            Timer::Phase(phase) if self.stage == (Stage::Draining { phase }) => {
                for id in self.living(phase) {
                    self.abort(id);
                }
                self.go_on();
            }
            _ => {}
        }
    }

    // --------------------------------------------------------------------------------- what follows

    fn push(&mut self, action: Action) {
        self.out.push(Expect::Do(action));
    }

    fn arm(&mut self, timer: Timer, wait: Duration) {
        let at = self.now + wait.min(YEAR);
        self.push(Action::Arm { timer, at });
    }

    fn started(&mut self, id: TaskId) {
        let counts = self.counts.entry(self.tasks[&id].rules.kind).or_default();
        counts.alive += 1;
        counts.spawned += 1;
    }

    fn restart(&mut self, id: TaskId) {
        self.started(id);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.state = TaskState::Alive;
        task.restarts += 1;
        let (incarnation, rules, closed) = (task.restarts, task.rules, task.closed);
        self.counts.entry(rules.kind).or_default().restarted += 1;
        self.arm(Timer::Stable(id, incarnation), rules.restart.stable_after);
        self.push(Action::Start {
            task: id,
            incarnation,
        });
        if closed == Some(RESTARTING) {
            self.set_gate(id, None);
        }
    }

    /// Only for the life that the timer was set for.
    fn well_again(&mut self, id: TaskId, restarts: u32) {
        if let Some(task) = self.tasks.get_mut(&id)
            && task.restarts == restarts
        {
            task.in_a_row = 0;
            self.set_gate(id, None);
        }
    }

    fn failed(&mut self, id: TaskId) {
        let now = self.now;
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let (rules, restart) = (task.rules, task.rules.restart);
        let counts = |at: &&Instant| now - **at < restart.window;
        let beyond = task.failed.iter().filter(counts).count() >= restart.max_restarts as usize;
        if beyond && rules.escalate == Escalate::Exit {
            self.exit = Exit::Escalated(id);
            self.push(Action::Escalated(id));
            self.forget(id);
            return self.drain();
        }
        let attempt = if beyond { u32::MAX } else { task.in_a_row };
        task.failed.push(now);
        task.in_a_row += 1;
        task.state = TaskState::Waiting;
        let closed = task.closed;
        if beyond && closed != Some(FLAPPING) {
            self.push(Action::Escalated(id));
            self.set_gate(id, Some(FLAPPING));
        } else if closed.is_none() && !rules.ready_while_restarting {
            self.set_gate(id, Some(RESTARTING));
        }
        let (low, high) = bounds(&restart.backoff, attempt);
        self.out.push(Expect::Restart(id, now + low, now + high));
    }

    fn set_gate(&mut self, id: TaskId, closed: Option<&'static str>) {
        if let Some(task) = self.tasks.get_mut(&id)
            && task.closed != closed
        {
            task.closed = closed;
            self.push(Action::GateChanged(id));
        }
    }

    /// Who held a gate closed lets it go.
    fn forget(&mut self, id: TaskId) {
        if self.tasks.remove(&id).is_some_and(|t| t.closed.is_some()) {
            self.push(Action::GateChanged(id));
        }
    }

    fn abort(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.state = TaskState::Aborted;
        self.counts.entry(task.rules.kind).or_default().aborted += 1;
        if let Stage::Draining { phase } = self.stage {
            self.phases[phase].aborted += 1;
        }
        self.push(Action::Abort(id));
    }

    /// Who waits for a restart never comes back.
    fn drain(&mut self) {
        self.push(Action::Unready);
        self.tasks
            .retain(|_, task| task.state != TaskState::Waiting);
        self.enter(0);
    }

    fn enter(&mut self, phase: usize) {
        if phase == self.deadlines.len() {
            self.stage = Stage::Aborting;
            return self.go_on();
        }
        self.stage = Stage::Draining { phase };
        self.phases[phase].entered = Some(self.now);
        self.push(Action::EnterPhase(phase));
        for id in self.living(phase) {
            if let Some(task) = self.tasks.get_mut(&id)
                && task.state == TaskState::Alive
            {
                task.state = TaskState::Stopping;
                self.push(Action::Stop(id));
            }
        }
        self.arm(Timer::Phase(phase), self.deadlines[phase]);
        self.go_on();
    }

    fn go_on(&mut self) {
        match self.stage {
            Stage::Draining { phase } if self.living(phase).is_empty() => {
                self.phases[phase].ended = Some(self.now);
                self.enter(phase + 1);
            }
            Stage::Aborting if self.tasks.is_empty() => {
                self.stage = Stage::Stopped;
                self.push(Action::Stopped(self.exit));
            }
            _ => {}
        }
    }

    fn living(&self, phase: usize) -> Vec<TaskId> {
        let living = |(id, task): (&TaskId, &Known)| {
            let waited_for = task.rules.phase == phase && task.state != TaskState::Aborted;
            waited_for.then_some(*id)
        };
        self.tasks.iter().filter_map(living).collect()
    }
}
