//! The seam and the kernel: what every service stands on.
pub mod admission;
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
        "admission.busy_before_rate",
        "admission.deadline_ignored",
        "admission.handler_sees_full_grant",
        "admission.no_retry_after",
        "admission.permit_lost_at_deadline",
        "auth.cooldown_ignored",
        "auth.expired_accepted",
        "auth.never_dropped",
        "auth.revoked_key_cached",
        "backoff.no_cap",
        "bus.lag_uncounted",
        "bus.wakes_one",
        "config.reload_ignored",
        "config.second_reload_applies_all",
        "corr.long_id_kept",
        "db.found_file_not_settled",
        "db.name_not_settled",
        "db.never_reopened",
        "deadline.grows",
        "durable.cut_believed",
        "durable.directory_unsynced",
        "durable.unsynced",
        "in_flight.permit_leaked",
        "lifecycle.abort_uncounted",
        "lifecycle.budget_ignored",
        "lifecycle.deadline_ignored",
        "lifecycle.forgotten_gate_stays",
        "lifecycle.gate_of_the_best",
        "lifecycle.gate_stuck",
        "lifecycle.panic_uncounted",
        "lifecycle.restart_forgotten",
        "lifecycle.restart_in_drain",
        "lifecycle.return_is_done",
        "lifecycle.stable_clears_budget",
        "lifecycle.stale_stable_timer",
        "lifecycle.stop_alone_untimed",
        "lifecycle.waiting_task_not_stopped",
        "lifecycle.window_ignored",
        "ops.draining_says_not_ready",
        "ops.scope_unchecked",
        "queue.cancelled_pop_keeps_wake",
        "queue.cap_off_by_one",
        "queue.close_drops",
        "queue.delivery_uncounted",
        "queue.drops_newest",
        "queue.lost_wakeup",
        "queue.newcomer_overtakes",
        "queue.turn_lost",
        "rate.refills_twice",
        "readiness.gate_not_closed",
        "serve.body_limit_of_whole",
        "serve.busy_kept_open",
        "serve.no_close_header",
        "serve.one_connection_more",
        "serve.quick_requests_are_idle",
        "serve.second_head_untimed",
        "serve.stop_unheard",
        "serve.write_limit_of_whole",
        "shutdown.edge",
        "snapshot.stale",
        "supervisor.bus_shutdown_skips_latch",
        "supervisor.restarted_deaf",
        "supervisor.stop_not_told",
        "telemetry.dropped_without_refused",
        "telemetry.one_series_more",
        "telemetry.same_name_replaces",
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
