//! The limits that connections keep.

use std::time::Duration;

use crate::{breaker::BreakerRules, identity::NetworkId, limiter::Limits};

#[derive(Clone, Debug)]
pub struct LinkRules {
    pub network: NetworkId,
    /// Where this node tells others that it listens.
    pub listen_port: u16,
    pub max_outbound: usize,
    pub max_inbound: usize,
    /// Requests under way on one connection, in each direction.
    pub max_in_flight: usize,
    pub max_frame_bytes: usize,
    /// What waits to be written on one connection; above it requests are refused, far above it the peer is dropped.
    pub outbox_bytes: usize,
    pub connect: Duration,
    /// For a frame that has begun, a step of the handshake, or a sign of life while answers are due.
    pub read: Duration,
    /// For the peer to take what was written.
    pub write: Duration,
    /// Without a request in either direction.
    pub idle: Duration,
    /// What all peers together, and each of them, may ask of this node.
    pub limits: Limits,
    pub breaker: BreakerRules,
}

impl LinkRules {
    pub fn new(network: NetworkId, listen_port: u16) -> LinkRules {
        LinkRules {
            network,
            listen_port,
            max_outbound: 40,
            max_inbound: 256,
            max_in_flight: 64,
            max_frame_bytes: 1 << 20,
            outbox_bytes: 256 << 10,
            connect: Duration::from_secs(5),
            read: Duration::from_secs(5),
            write: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            limits: Limits {
                requests_per_s: 5_000,
                bytes_per_s: 32 << 20,
                in_flight: 512,
                peer_share_percent: 25,
                peers: 512,
            },
            breaker: BreakerRules::default(),
        }
    }
}
