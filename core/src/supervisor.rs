//! Runs the tasks of a process: starts them, restarts what fails, drains them in order, and leaves none.
//!
//! A thin shell around [`Lifecycle`], which takes every decision. Always: no panic of a task reaches the
//! runtime; `run` returns only when every task's future has been dropped; dropping `run` aborts what
//! lives, without waiting.

mod commands;
mod crew;
mod late_rng;
mod report;
mod status;
mod tracked;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use self::commands::{Command, Start};
pub use self::{
    report::{Exit, PhaseReport, Report},
    status::{SupervisorStatus, SupervisorView, TaskStatus},
};
use crate::{
    Env,
    bus::Bus,
    lifecycle::{Escalate, Restart, TaskId, TaskRules},
    readiness::Readiness,
    seam::BoxFuture,
    shutdown::Shutdown,
    supervisor::crew::Crew,
};

/// What a task is: `TaskSpec { escalate: Escalate::Exit, ..TaskSpec::new("listener", "listener", intake) }`.
#[derive(Clone, Copy, Debug)]
pub struct TaskSpec {
    /// Unique among the tasks, except that workers share theirs. Its gate is `task:NAME`.
    pub name: &'static str,
    /// The label under which it is counted.
    pub kind: &'static str,
    /// When it is told to stop.
    pub phase: PhaseId,
    /// A return before it is told to stop is a failure.
    pub long_lived: bool,
    pub ready_while_restarting: bool,
    pub restart: Restart,
    pub escalate: Escalate,
}

impl TaskSpec {
    /// Long-lived, restarted by the default schedule, ready meanwhile, and unready once over budget.
    pub fn new(name: &'static str, kind: &'static str, phase: PhaseId) -> Self {
        TaskSpec {
            name,
            kind,
            phase,
            long_lived: true,
            ready_while_restarting: true,
            restart: Restart::default(),
            escalate: Escalate::ReadinessOff,
        }
    }

    fn rules(&self, worker: Option<u32>) -> TaskRules {
        TaskRules {
            name: self.name,
            kind: self.kind,
            worker,
            phase: self.phase.0,
            long_lived: self.long_lived,
            ready_while_restarting: self.ready_while_restarting,
            restart: self.restart,
            escalate: self.escalate,
        }
    }
}

/// A drain phase of the supervisor that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(usize);

/// What every incarnation of a task is given.
#[derive(Clone, Debug)]
pub struct TaskContext {
    pub env: Env,
    /// Fires when the task's phase begins, or when it is stopped alone.
    pub stop: Shutdown,
    /// 0 at first, one more with each restart.
    pub incarnation: u32,
    /// Which of several identical workers this is; 0 for a single task.
    pub worker: u32,
}

pub struct Supervisor {
    env: Env,
    bus: Bus,
    readiness: Readiness,
    phases: Vec<Phase>,
    planned: Vec<(TaskRules, Factory)>,
    view: SupervisorView,
    handle: SupervisorHandle,
    commands: commands::Receiver,
}

impl Supervisor {
    pub fn new(env: Env, bus: Bus, readiness: Readiness) -> Self {
        let (sender, commands) = commands::channel();
        readiness.gate(PROCESS_GATE);
        Supervisor {
            env,
            bus,
            readiness,
            phases: Vec::new(),
            planned: Vec::new(),
            view: SupervisorView::new(),
            handle: SupervisorHandle { sender },
            commands,
        }
    }

    /// Declares the next drain phase. Phases begin in the order of their declaration; the hook runs when
    /// the phase begins, before its tasks are told to stop: the place to close a queue.
    pub fn phase(
        &mut self,
        name: &'static str,
        deadline: Duration,
        on_enter: impl FnOnce() + Send + 'static,
    ) -> PhaseId {
        self.phases.push(Phase {
            name,
            deadline,
            on_enter: Some(Box::new(on_enter)),
        });
        PhaseId(self.phases.len() - 1)
    }

    /// Declares a task; `factory` makes one future for each incarnation.
    pub fn task<F>(
        &mut self,
        spec: TaskSpec,
        factory: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.planned.push((spec.rules(None), boxed(factory)));
    }

    /// Declares `count` identical tasks, each restarted on its own.
    pub fn workers<F>(
        &mut self,
        count: u32,
        spec: TaskSpec,
        factory: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let factory = boxed(factory);
        for worker in 0..count {
            self.planned
                .push((spec.rules(Some(worker)), factory.clone()));
        }
    }

    /// What the tasks are doing, for telemetry and status.
    pub fn view(&self) -> SupervisorView {
        self.view.clone()
    }

    /// Starts and stops tasks while it runs.
    pub fn handle(&self) -> SupervisorHandle {
        self.handle.clone()
    }

    /// Starts every declared task and returns once all have ended: after `shutdown` fires, or
    /// `KernelEvent::Shutdown` is published, or a task escalates to exit. All holders of `shutdown` are told.
    pub async fn run(self, shutdown: Shutdown) -> Report {
        let mut crew = Crew::new(
            self.env,
            self.bus,
            self.readiness,
            self.view,
            self.phases,
            shutdown,
        );
        for (rules, factory) in self.planned {
            let started = crew.register(rules, factory);
            assert!(
                started.is_some(),
                "{} names a phase of another supervisor",
                rules.name
            );
        }
        crew.run(self.commands).await
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// The process is draining: nothing is started any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process is shutting down")]
pub struct Draining;

/// Starts and stops tasks of a running supervisor.
#[derive(Clone)]
pub struct SupervisorHandle {
    sender: commands::Sender,
}

impl SupervisorHandle {
    /// Waits until the supervisor runs.
    pub async fn start<F>(
        &self,
        spec: TaskSpec,
        factory: impl Fn(TaskContext) -> F + Send + Sync + 'static,
    ) -> Result<TaskId, Draining>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (reply, started) = oneshot::channel();
        let command = Command::Start(Box::new(Start {
            rules: spec.rules(None),
            factory: boxed(factory),
            reply,
        }));
        self.sender.send(command).await?;
        started.await.ok().flatten().ok_or(Draining)
    }

    /// Tells one task to stop; it has the time of its phase and is aborted after that. Does not wait for it.
    pub async fn stop(&self, task: TaskId) {
        let _ = self.sender.send(Command::Stop(task)).await;
    }
}

/// The gate that the supervisor itself holds: open while the process runs.
const PROCESS_GATE: &str = "process";

type Factory = Arc<dyn Fn(TaskContext) -> BoxFuture<'static, ()> + Send + Sync>;

fn boxed<F>(factory: impl Fn(TaskContext) -> F + Send + Sync + 'static) -> Factory
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |context| Box::pin(factory(context)))
}

struct Phase {
    name: &'static str,
    deadline: Duration,
    on_enter: Option<Box<dyn FnOnce() + Send>>,
}
