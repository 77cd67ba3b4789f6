//! ron-kms: keys that never leave, and an audit log anyone can verify.
//!
//! Here so far is its pure core: the [audit log](audit) with its formats, proofs and the machine that
//! decides what is written and what may be answered, and the [keys] with their algorithms, versions and
//! nonces. Nothing in it reads a clock, a file or a socket. Not here yet: backends, the HTTP service, the
//! tasks that append and checkpoint, the command line.
//!
//! Start with [`audit`] or [`keys`].

pub mod api;
pub mod appender;
pub mod ask;
pub mod attester;
pub mod audit;
pub mod auditor;
pub mod backend;
pub mod changes;
pub mod checkpointer;
pub mod config;
pub mod config_watch;
pub mod engine;
pub mod error;
pub mod history;
pub mod index;
pub mod journal;
pub mod keeper;
pub mod keys;
pub mod keystore;
pub mod metrics;
#[cfg(feature = "models")]
pub mod models;
pub mod nonces;
pub mod offline;
pub mod op_ids;
pub mod quota;
pub mod replay;
pub mod ring;
pub mod service;
pub mod signer;
pub mod topology;
pub mod verify_cache;

/// Marks that simulated runs must reach, points that they bend, bugs that they must catch.
pub const POINTS: ron_core::points::Points = ron_core::points::Points {
    marks: &[],
    buggify: &[],
    mutants: &[],
};
