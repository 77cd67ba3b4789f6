//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other.

pub mod contact;
pub mod hedge;
pub mod id;
pub mod lookup;
#[cfg(feature = "models")]
pub mod models;
pub mod peer_stats;
pub mod record;
pub mod wire;
