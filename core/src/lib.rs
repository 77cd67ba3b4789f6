//! The seam and the kernel: what every service stands on.
pub mod env;
pub mod seam;
pub mod view;

pub use env::{Elapsed, Env, Join, Lost, Rng};
