//! The seam and the kernel: what every service stands on.
pub mod admission;
pub mod auth;
pub mod backoff;
pub mod bus;
pub mod config;
pub mod corr;
pub mod db;
pub mod deadline;
pub mod disk_path;
pub mod durable;
pub mod env;
pub mod front;
pub mod hyper_seam;
pub mod lifecycle;
pub mod lock;
#[cfg(feature = "models")]
pub mod models;
pub mod ops;
pub mod points;
pub mod problem;
pub mod queue;
pub mod readiness;
pub mod seam;
pub mod serve;
pub mod shutdown;
pub mod snapshot;
pub mod supervisor;
pub mod sync;
pub mod telemetry;
pub mod topology;
pub mod view;

/// The kernel's marks, buggify points and planted bugs; see [`points`].
pub const POINTS: points::Points = points::Points {
    marks: &[
        "admission.busy",
        "admission.deadline_passed",
        "admission.draining",
        "admission.too_large",
        "backoff.at_cap",
        "bus.lagged",
        "env.offload_abandoned",
        "env.timed_out",
        "lifecycle.abort_at_deadline",
        "lifecycle.drained_in_time",
        "lifecycle.over_budget",
        "lifecycle.restart_given_up_in_drain",
        "lifecycle.restarted",
        "lifecycle.stable_again",
        "queue.closed_refuses",
        "queue.consumer_waits",
        "queue.drained_after_close",
        "queue.full",
        "queue.overtaken",
        "queue.wake_passed_on",
        "readiness.lost",
        "serve.cut_at_close",
        "serve.panicked",
        "shutdown.asked_late",
        "shutdown.asked_twice",
    ],
    buggify: &[
        "offload.slow",
        "queue.pop_yields",
        "queue.wakes_twice",
        "serve.accept_late",
        "serve.short_read",
        "serve.short_write",
        "shutdown.wakes_for_nothing",
        "supervisor.restart_late",
        "timer.late",
    ],
    mutants: &[
        "admission.body_cap_off_by_one",
        "admission.deadline_ignored",
        "admission.no_retry_after",
        "admission.permit_lost_at_deadline",
        "auth.cooldown_ignored",
        "auth.expired_accepted",
        "auth.never_dropped",
        "backoff.no_cap",
        "bus.lag_uncounted",
        "bus.wakes_one",
        "config.reload_ignored",
        "db.never_reopened",
        "deadline.grows",
        "durable.directory_unsynced",
        "durable.unsynced",
        "in_flight.permit_leaked",
        "lifecycle.abort_uncounted",
        "lifecycle.budget_ignored",
        "lifecycle.deadline_ignored",
        "lifecycle.gate_of_the_best",
        "lifecycle.gate_stuck",
        "lifecycle.panic_uncounted",
        "lifecycle.restart_forgotten",
        "lifecycle.restart_in_drain",
        "lifecycle.return_is_done",
        "queue.cap_off_by_one",
        "queue.close_drops",
        "queue.delivery_uncounted",
        "queue.drops_newest",
        "queue.lost_wakeup",
        "queue.turn_lost",
        "rate.refills_twice",
        "readiness.gate_not_closed",
        "serve.busy_kept_open",
        "serve.stop_unheard",
        "shutdown.edge",
        "snapshot.stale",
        "supervisor.restarted_deaf",
        "supervisor.stop_not_told",
    ],
};

pub use env::{Elapsed, Env, Join, Lost, Rng};
pub use queue::{
    DropOldest, Queue, Refusal, Refused, RejectNew, RetryOnce, WaitFor, WaitThenDropOldest,
};
pub use shutdown::Shutdown;
pub use snapshot::{SnapshotReader, SnapshotWriter, snapshot};

// The unit tests share one world with the tests in `tests/`, which name this crate from outside.
#[cfg(test)]
extern crate self as ron_core;
#[cfg(test)]
#[path = "../tests/world/mod.rs"]
mod test_env;
