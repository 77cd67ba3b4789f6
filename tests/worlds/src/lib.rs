//! Whole networks of svc-dht in one simulated world: the shipped node, thousands of times.
//!
//! [`fleet`] makes the nodes and knows what is true of them; [`thousands`], [`black_hole`] and [`hedging`] are the
//! three worlds, each a function from its size to [`figures`] with bounds. Always: a node is the whole service on its
//! own simulated machine, and nodes share nothing that can change.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

pub mod black_hole;
pub mod figures;
pub mod fleet;
pub mod hedging;
pub mod lookups;
pub mod process;
pub mod tables;
pub mod thousands;
