//! The simulator: the seam on a virtual clock, and everything that makes a seed into a verdict.
//!
//! Start reading at [`run`]: seed → options → [`plan`] → [`world`] → [`trace`] and verdict. The seam's
//! side is [`runtime`] with [`net`], [`disk`], [`clock`]; laws are in [`oracle`]; words that a scenario
//! may use are in [`catalogue`].
#![allow(clippy::disallowed_methods, reason = "sim is one side of the seam")]

#[cfg(not(madsim))]
compile_error!(
    "sim simulates only with `--cfg madsim`, which .cargo/config.toml sets; RUSTFLAGS in the environment replaces it: unset RUSTFLAGS"
);

/// The points of the exemplar service; each service crate has a table like this one.
pub const POINTS: ron_core::points::Points = ron_core::points::Points {
    marks: &["pool.tail_cut", "pool.tail_suspect"],
    buggify: &["pool.slow_job"],
};

pub mod bug;
pub mod calls;
pub mod catalogue;
pub mod chaos;
pub mod cli;
pub mod clock;
pub mod conformance;
pub mod coverage;
pub mod detail;
pub mod dht;
pub mod disk;
pub mod executor;
pub mod explain;
pub mod faults;
pub mod felt;
pub mod flaky;
pub mod http_client;
pub mod issuer;
pub mod kms;
pub mod linear;
mod metrics_page;
pub mod models;
pub mod mutants;
pub mod net;
mod offload;
pub mod ops;
pub mod oracle;
pub mod perfetto;
pub mod plan;
pub mod planted;
pub mod pool;
mod problems;
pub mod promise;
pub mod recorder;
pub mod run;
pub mod runtime;
pub mod say;
pub mod scenario;
pub mod seed;
pub mod service;
pub mod services;
pub mod shrink;
mod steps;
pub mod swarm;
pub mod sweep;
pub mod timeline;
pub mod timer;
pub mod trace;
mod watcher;
pub mod workload;
pub mod world;
