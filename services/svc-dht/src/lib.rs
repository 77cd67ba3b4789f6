//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`routing`] for whom a node knows and [`wire`] for what nodes say to
//! each other.

pub mod breaker;
pub mod contact;
pub mod id;
pub mod limiter;
#[cfg(feature = "models")]
pub mod models;
pub mod record;
pub mod routing;
pub mod wire;
