//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other and [`record`] for what they keep.

pub mod config;
pub mod contact;
pub mod error;
pub mod events;
pub mod explained;
pub mod id;
pub mod metrics;
pub mod identity;
pub mod hedge;
pub mod id;
pub mod lookup;
pub mod peer_stats;
pub mod link;
pub mod peers;
pub mod record;
pub mod topology;
pub mod routing;
pub mod wire;
