//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other, [`routing`] for whom a node knows,
//! [`record`] for what it keeps, and [`peers`] and [`connection`] for how it reaches others.

pub mod breaker;
pub mod connection;
pub mod contact;
pub mod id;
pub mod identity;
pub mod limiter;
pub mod link;
pub mod listener;
#[cfg(feature = "models")]
pub mod models;
pub mod peers;
pub mod record;
pub mod record_journal;
pub mod record_store;
pub mod routing;
pub mod wire;
