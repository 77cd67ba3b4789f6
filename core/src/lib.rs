//! The seam and the kernel: what every service stands on.
pub mod admission;
pub mod api;
pub mod app;
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
pub mod journal;
pub mod lifecycle;
pub mod lock;
#[cfg(feature = "models")]
pub mod models;
pub mod ops;
pub mod outbound;
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

/// The kernel's marks and buggify points; see [`points`].
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
        "serve.made_room",
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
