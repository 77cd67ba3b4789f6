//! The parts of a connection to a peer; [`connection`](crate::connection) is the task that joins them.
//!
//! [`rules`] are its limits, [`answer`] is who answers what a peer asks, [`error`] is why a request has no answer,
//! [`stats`] is what it counts, [`hub`] is what all connections of a node share.

pub mod answer;
pub(crate) mod calls;
pub(crate) mod ending;
pub mod error;
pub mod hub;
pub mod line;
pub(crate) mod outbox;
pub(crate) mod pool;
pub mod rules;
pub mod stats;
pub(crate) mod timer;
