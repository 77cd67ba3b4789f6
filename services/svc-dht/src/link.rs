//! The parts of a connection to a peer; [`connection`](crate::connection) is the task that joins them.
//!
//! [`rules`] are its limits, [`answer`] is who answers what a peer asks, [`error`] is why a request has no answer,
//! [`stats`] is what it counts.

pub mod answer;
pub mod error;
pub mod rules;
pub(crate) mod standin;
pub mod stats;
