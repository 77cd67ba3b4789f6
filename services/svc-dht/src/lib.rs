//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other and [`record`] for what they keep.

pub mod contact;
pub mod id;
pub mod identity;
pub mod record;
pub mod record_journal;
pub mod record_store;
pub mod routing;
pub mod wire;
