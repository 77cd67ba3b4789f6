//! One way to be a service: what each of them would otherwise write again.
//!
//! A service brings its settings, its topology, drain phases, routes, and `open` and `run`; it gets the rest from
//! here, and its command line from `ron_io::cli`.

mod live;
mod settings;

pub use live::{Commit, Live};
pub use settings::{AppSettings, ReloadConfig, TlsConfig};
