//! The seam and the kernel: what every service stands on.
pub mod admission;
pub mod auth;
pub mod config;
pub mod corr;
pub mod deadline;
pub mod env;
pub mod lock;
pub mod ops;
pub mod problem;
pub mod readiness;
pub mod seam;
pub mod serve;
pub mod telemetry;
#[cfg(test)]
#[allow(dead_code, reason = "each test uses a part of it")]
mod test_env;
pub mod topology;
pub mod view;

pub use env::{Elapsed, Env, Join, Lost, Rng};
