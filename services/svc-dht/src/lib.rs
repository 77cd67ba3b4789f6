//! svc-dht: a Kademlia that finds things with a third of its nodes dead.
//!
//! Start with [`id`] and [`contact`], then [`wire`] for what nodes say to each other and [`record`] for what they keep.
//! [`topology`] declares every part of a node, [`service`] wires them, [`dht`] is the handle of a running one.
//!
//! What is decided is decided by machines that read no clock, no file and no socket: [`lookup`], [`routing`],
//! [`record_store`], [`record_journal`], [`wire`]. The tasks around them wait and obey:
//!
//! | task | does |
//! | --- | --- |
//! | listener ([`listener`], [`connection`]) | accepts other nodes; each connection answers reads by the [`answerer`] |
//! | worker ([`worker`], [`lookup_runner`]) | runs lookups, verifies records |
//! | bucket writer ([`bucket_writer`]) | changes its bucket, reached by [`routes`] |
//! | record keeper ([`record_keeper`]) | changes the record store and writes its journal |
//! | republisher ([`republisher`]) | publishes again before the time is over |
//! | bootstrapper ([`bootstrapper`]) | finds the network |
//! | refresher ([`refresher`]) | starts bucket writers, refreshes buckets, saves the table |
//! | http ([`api`]) | the local API and the operator's endpoints |

pub mod answerer;
pub mod api;
pub mod bootstrapper;
pub mod breaker;
pub mod bucket_writer;
#[cfg(feature = "cli")]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "where the node meets the machine"
)]
pub mod commands;
pub mod config;
pub mod connection;
pub mod contact;
pub mod dht;
pub mod error;
pub mod events;
pub mod explained;
pub mod few;
pub mod hedge;
pub mod id;
pub mod identity;
pub mod limiter;
pub mod link;
mod link_counts;
pub mod listener;
pub mod lookup;
pub mod lookup_runner;
pub mod metrics;
#[cfg(feature = "models")]
pub mod models;
pub mod node;
pub mod peer_stats;
pub mod peers;
pub mod publish;
pub mod record;
pub mod record_journal;
pub mod record_keeper;
pub mod record_store;
pub mod refresher;
pub mod republisher;
pub mod routes;
pub mod routing;
pub mod service;
mod site;
pub mod topology;
pub mod wire;
pub mod worker;

/// Marks that simulated runs must reach, points that they bend, bugs that they must catch.
pub const POINTS: ron_core::points::Points = ron_core::points::Points {
    marks: &[
        "dht.breaker_opened",
        "dht.bucket_asked_again",
        "dht.expired_refused",
        "dht.hedged",
        "dht.nobody_waits",
        "dht.older_refused",
        "dht.peer_limited",
        "dht.publisher_full",
        "dht.record_evicted",
        "dht.torn_tail_cut",
    ],
    buggify: &["dht.read_refused", "dht.route_dropped", "dht.write_refused"],
};
