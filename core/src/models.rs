//! Models for the checker: small worlds that step the shipped machines through every interleaving.
//!
//! Each has known-bad variants that the checker must refute, so a property cannot hold by being empty.
pub mod keys;
pub mod lifecycle;
pub mod queue;
