//! The seam and the kernel: what every service stands on.
pub mod env;
pub mod hyper_seam;
pub mod seam;
pub mod serve;
pub mod shutdown;
pub mod view;

pub use env::{Elapsed, Env, Join, Lost, Rng};
pub use shutdown::Shutdown;
