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
pub mod env;
pub mod hyper_seam;
pub mod lifecycle;
pub mod lock;
#[cfg(feature = "models")]
pub mod models;
pub mod ops;
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
