//! The words of the life cycle: what a task is, what can happen to it, what is to be done.
//!
//! Plain values; the machine in the parent module gives them their meaning.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// One task for the whole life of the machine, through all its restarts. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct TaskId(pub u64);

/// What a task is and what becomes of it when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskRules {
    pub name: &'static str,
    /// The label under which it is counted.
    pub kind: &'static str,
    /// Which one of several identical workers it is.
    pub worker: Option<u32>,
    /// The drain phase in which it is told to stop.
    pub phase: usize,
    /// It never returns of its own accord: if it does, that is a failure like a panic. Otherwise a return
    /// means that its work is done.
    pub long_lived: bool,
    /// Whether the process stays ready while the task waits for a restart within its budget. If not,
    /// the task's gate is closed from the failure until the relaunch.
    pub ready_while_restarting: bool,
    pub restart: Restart,
    pub escalate: Escalate,
}

/// When a failed task runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    pub backoff: Backoff,
    /// So many restarts are allowed in any `window`; the next failure escalates.
    pub max_restarts: u32,
    pub window: Duration,
    /// A task that has lived this long counts as well again: the next backoff starts from the
    /// beginning, and the gate that escalation closed opens.
    pub stable_after: Duration,
}

impl Default for Restart {
    /// 100 to 400 ms at first, 5 s at most, ten times a minute.
    fn default() -> Self {
        Restart {
            backoff: Backoff::band(
                Duration::from_millis(100),
                Duration::from_millis(400),
                Duration::from_secs(5),
            ),
            max_restarts: 10,
            window: Duration::from_secs(60),
            stable_after: Duration::from_secs(5),
        }
    }
}

/// What a task over its budget does to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Escalate {
    /// Its gate closes. It is still restarted, each time after the longest backoff, and the gate opens
    /// once it has been stable.
    ReadinessOff,
    /// The process drains and exits with failure.
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Running,
    Draining { phase: usize },
    Aborting,
    Stopped,
}

/// How the process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    Clean,
    /// This task failed beyond its budget.
    Escalated(TaskId),
}

/// How a task's future ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    Finished,
    Panicked,
}

/// Something to be told of at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    Restart(TaskId),
    /// This incarnation of the task has lived for its stable period.
    Stable(TaskId, u32),
    /// A task that was stopped alone has had its time.
    Stop(TaskId),
    Phase(usize),
}

/// What the shell has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Incarnation 0 is the first; a greater one is a restart.
    Start {
        task: TaskId,
        incarnation: u32,
    },
    /// Call `handle_timer` at that time. A timer that no longer matters is ignored then.
    Arm {
        timer: Timer,
        at: Instant,
    },
    /// The phase begins: its hook runs.
    EnterPhase(usize),
    /// The task's stop latch fires.
    Stop(TaskId),
    /// The task is stopped by force. Its end is still to be reported.
    Abort(TaskId),
    /// The process is no longer ready, whatever the tasks' gates say.
    Unready,
    /// The task's reason to hold readiness closed has come or gone: see `gate_reason`.
    GateChanged(TaskId),
    Escalated(TaskId),
    Stopped(Exit),
}

/// When a drain phase began and ended, and what became of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PhaseRecord {
    pub entered: Option<Instant>,
    pub ended: Option<Instant>,
    /// Tasks that ended by themselves while the phase lasted.
    pub drained: u64,
    pub aborted: u64,
}
