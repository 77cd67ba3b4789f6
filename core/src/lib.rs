//! The seam and the kernel: what every service stands on.
pub mod backoff;
pub mod bus;
pub mod deadline;
pub mod env;
pub mod lifecycle;
#[cfg(feature = "models")]
pub mod models;
pub mod readiness;
pub mod seam;
pub mod shutdown;
pub mod supervisor;
pub mod view;

pub use env::{Elapsed, Env, Join, Lost, Rng};
