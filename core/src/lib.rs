//! The seam and the kernel: what every service stands on.
pub mod env;
#[cfg(feature = "models")]
pub mod models;
pub mod queue;
pub mod seam;
pub mod shutdown;
pub mod snapshot;
pub mod sync;
pub mod view;

pub use env::{Elapsed, Env, Join, Lost, Rng};
pub use queue::{
    DropOldest, Queue, Refusal, Refused, RejectNew, RetryOnce, WaitFor, WaitThenDropOldest,
};
pub use shutdown::Shutdown;
pub use snapshot::{SnapshotReader, SnapshotWriter, snapshot};
