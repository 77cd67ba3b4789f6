//! The seam on Tokio: TCP, TLS, outbound HTTP, files, threads, signals and OS randomness.
//!
//! Start at [`cli`]: what a service's commands are made of; [`run`] is below it. Each file implements one idea of
//! [`ron_core::seam`]; nothing here knows a service.

// This crate is one side of the seam: it is where the clock, the sockets, the threads and the files are.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod cli;
mod clock;
mod disk;
mod entropy;
mod http;
mod memory_disk;
mod net;
mod pools;
mod run;
mod runtime;
mod secret_file;
mod signals;
mod tls;

pub use disk::FileDisk;
pub use memory_disk::MemoryDisk;
pub use run::{Fatal, Logs, RunOptions, Running, run};
pub use runtime::{Data, TokioOptions, TokioRuntime};
pub use secret_file::{SecretFileError, make_secret_file, read_secret_file};
pub use signals::watch_signals;
pub use tls::{Renewed, Tls, TlsPem};
