//! ron-kms: keys that never leave, and an audit log anyone can verify.
//!
//! Here so far is its pure core: the [audit log](audit) with its formats, proofs and the machine that
//! decides what is written and what may be answered, and the [keys] with their algorithms, versions and
//! nonces. Nothing in it reads a clock, a file or a socket. Not here yet: backends, the HTTP service, the
//! tasks that append and checkpoint, the command line.
//!
//! Start with [`audit`] or [`keys`].

pub mod ask;
pub mod audit;
pub mod backend;
pub mod engine;
pub mod error;
pub mod index;
pub mod keys;
pub mod keystore;
#[cfg(feature = "models")]
pub mod models;
pub mod offline;
