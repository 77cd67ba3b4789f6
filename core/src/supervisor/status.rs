//! What the supervisor and its tasks are doing, for metrics, `/api/v1/status` and chaos tests.
//!
//! A view shares the machine that decides, so what it tells cannot differ from what is done.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use super::tracked::Killer;
use crate::{
    lifecycle::{Lifecycle, Stage, TaskId, TaskRules, TaskState},
    view::{TaskCounts, TaskView},
};

#[derive(Clone)]
pub struct SupervisorView {
    shared: Arc<Mutex<Shared>>,
}

pub(super) struct Shared {
    pub machine: Lifecycle,
    pub phases: Vec<&'static str>,
    pub started: bool,
    pub killers: BTreeMap<TaskId, Killer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SupervisorStatus {
    /// `starting`, `running`, `draining`, `aborting` or `stopped`.
    pub state: &'static str,
    /// The drain phase, while draining.
    pub phase: Option<&'static str>,
    /// Those that live or wait for their restart, in the order of their start.
    pub tasks: Vec<TaskStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskStatus {
    pub id: TaskId,
    pub name: String,
    pub kind: &'static str,
    /// `alive`, `stopping`, `aborted` or `waiting`.
    pub state: &'static str,
    pub restarts: u32,
}

impl SupervisorView {
    pub(super) fn new() -> Self {
        SupervisorView {
            shared: Arc::new(Mutex::new(Shared {
                machine: Lifecycle::new(Vec::new()),
                phases: Vec::new(),
                started: false,
                killers: BTreeMap::new(),
            })),
        }
    }

    pub fn status(&self) -> SupervisorStatus {
        let shared = self.lock();
        let (state, phase) = match shared.machine.stage() {
            Stage::Running if !shared.started => ("starting", None),
            Stage::Running => ("running", None),
            Stage::Draining { phase } => ("draining", shared.phases.get(phase).copied()),
            Stage::Aborting => ("aborting", None),
            Stage::Stopped => ("stopped", None),
        };
        let tasks = shared.machine.tasks().iter().map(|(id, task)| TaskStatus {
            id: *id,
            name: label(&task.rules),
            kind: task.rules.kind,
            state: match task.state {
                TaskState::Alive => "alive",
                TaskState::Stopping => "stopping",
                TaskState::Aborted => "aborted",
                TaskState::Waiting => "waiting",
            },
            restarts: task.incarnation,
        });
        SupervisorStatus {
            state,
            phase,
            tasks: tasks.collect(),
        }
    }

    /// Makes a live task fail as if it had panicked at its present await; false if it does not live.
    /// For chaos tests: no service calls it.
    pub fn kill(&self, task: TaskId) -> bool {
        let killer = self.lock().killers.get(&task).cloned();
        killer.inspect(Killer::kill).is_some()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskView for SupervisorView {
    fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
        self.lock().machine.counts().clone()
    }
}

impl fmt::Debug for SupervisorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SupervisorView")
            .field(&self.status())
            .finish()
    }
}

/// The task's name, told apart from its fellow workers.
pub(super) fn label(rules: &TaskRules) -> String {
    match rules.worker {
        Some(worker) => format!("{}-{worker}", rules.name),
        None => rules.name.to_owned(),
    }
}
