//! The outbound side: one connection per peer, found or made when somebody asks.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use ron_core::Env;

use crate::{
    contact::Contact,
    link::{
        answer::Answer, error::RpcError, rules::LinkRules, standin::Identity, stats::LinkStats,
    },
    wire::message::{Request, Response},
};

/// A handle; clones share the connections.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

struct Shared {
    stats: LinkStats,
}

impl Peers {
    pub fn new(
        env: Env,
        identity: Arc<Identity>,
        rules: LinkRules,
        answer: Arc<dyn Answer>,
    ) -> Peers {
        let _ = (env, identity, rules, answer);
        Peers(Arc::new(Shared {
            stats: LinkStats::default(),
        }))
    }

    /// Asks a peer. Ends by `deadline`; may be dropped at any time: a late answer is discarded and counted.
    pub async fn request(
        &self,
        to: Contact,
        request: &Request,
        hedge: bool,
        deadline: Instant,
    ) -> Result<Response, RpcError> {
        let _ = (to, request, hedge, deadline);
        std::future::ready(Err(RpcError::Busy)).await
    }

    /// Dials an address of which only the place is known, and says who proved to be there.
    pub async fn meet(&self, addr: SocketAddr, deadline: Instant) -> Result<Contact, RpcError> {
        let _ = (addr, deadline);
        std::future::ready(Err(RpcError::Busy)).await
    }

    /// Proves that a peer is at its address, by a connection that was dialled to it.
    pub async fn reach(&self, peer: Contact, deadline: Instant) -> Result<(), RpcError> {
        let _ = (peer, deadline);
        std::future::ready(Err(RpcError::Busy)).await
    }

    /// From now on requests of peers are refused with `not_ready`, and nobody new is let in.
    pub fn drain(&self) {}

    /// Closes all connections, each stream shut down; returns when none is left.
    pub async fn shutdown(&self) {
        std::future::ready(()).await;
    }

    pub fn stats(&self) -> &LinkStats {
        &self.0.stats
    }
}
