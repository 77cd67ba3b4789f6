//! ron-kms: keys that never leave, and an audit log anyone can verify.
//!
//! Here so far is the pure core of the [audit log](audit): formats, proofs and the machine that decides
//! what is written and what may be answered. Nothing in it reads a clock, a file or a socket. Not here
//! yet: keys and backends, the HTTP service, the tasks that append and checkpoint, the command line.
//!
//! Start with [`audit`].

pub mod audit;
pub mod keys;
