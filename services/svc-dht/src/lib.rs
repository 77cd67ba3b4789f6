//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other and [`record`] for what they keep.

pub mod connection;
pub mod contact;
pub mod id;
pub mod identity;
pub mod link;
pub mod listener;
pub mod peers;
pub mod record;
pub mod wire;
