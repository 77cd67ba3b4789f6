//! The outbound side: one connection per peer, found or made when somebody asks.
//!
//! Always: a request ends by its deadline; one that is dropped leaves nothing behind; while a peer is being dialled all who
//! want it wait for the same dial; at most `max_outbound` dialled connections are open.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use ron_core::{Env, Refusal};
use tokio::sync::oneshot;

use crate::{
    breaker,
    contact::Contact,
    id::Id,
    identity::Identity,
    link::{
        answer::Answer,
        error::{RpcError, TimedOut},
        hub::{Hub, Target},
        line::{Ask, Failure, Mail, Use},
        rules::LinkRules,
        stats::LinkStats,
    },
    wire::message::{Request, Response},
};

/// A handle; clones share the connections.
#[derive(Clone)]
pub struct Peers(pub(crate) Arc<Hub>);

impl Peers {
    pub fn new(
        env: Env,
        identity: Arc<Identity>,
        rules: LinkRules,
        answer: Arc<dyn Answer>,
    ) -> Peers {
        Peers(Arc::new(Hub::new(env, identity, rules, answer)))
    }

    /// Asks a peer, over whatever connection to it there is, or a new one. Ends by `deadline`; may be dropped at any
    /// time: the connection forgets the request, and a late answer is discarded and counted.
    pub async fn request(
        &self,
        to: Contact,
        request: &Request,
        hedge: bool,
        deadline: Instant,
    ) -> Result<Response, RpcError> {
        let asked = self.ask(Target::Peer(to), request, hedge, deadline).await;
        asked.map(|(response, _)| response)
    }

    /// Dials an address of which only the place is known, and says who proved to be there.
    pub async fn meet(&self, addr: SocketAddr, deadline: Instant) -> Result<Contact, RpcError> {
        let to = Target::Addr(addr);
        let (_, over) = self.ask(to, &Request::Ping, false, deadline).await?;
        // There is no answer without a proof.
        let id = over.line().peer().ok_or(RpcError::Reset)?;
        let addr = addr.into();
        Ok(Contact { id, addr })
    }

    /// Proves that a peer is at its address, by a connection that was dialled to it.
    pub async fn reach(&self, peer: Contact, deadline: Instant) -> Result<(), RpcError> {
        let to = Target::PeerAt(peer);
        self.ask(to, &Request::Ping, false, deadline).await?;
        Ok(())
    }

    /// From now on requests of peers are refused with `not_ready`, and nobody new is let in. Requests to others go on.
    pub fn drain(&self) {
        self.0.drain();
    }

    /// Closes all connections, each stream shut down; returns when none is left.
    pub async fn shutdown(&self) {
        self.0.close().await;
    }

    pub fn stats(&self) -> &LinkStats {
        &self.0.stats
    }

    /// Connections in use: outbound and inbound.
    pub fn open(&self) -> (usize, usize) {
        self.0.open()
    }

    /// Tasks of connections that have not ended.
    pub fn alive(&self) -> usize {
        self.0.alive()
    }

    async fn ask(
        &self,
        to: Target,
        request: &Request,
        hedge: bool,
        deadline: Instant,
    ) -> Result<(Response, Use), RpcError> {
        let trial = match to {
            Target::Peer(peer) | Target::PeerAt(peer) => Some(Trial::begin(&self.0, peer.id)?),
            Target::Addr(_) => None,
        };
        let asked = self.ask_twice(to, request, hedge, deadline).await;
        if let Some(mut trial) = trial {
            trial.answered = match &asked {
                Ok(_) | Err(RpcError::Refused(_)) => Some(true),
                Err(error) => error.is_the_peers().then_some(false),
            };
        }
        asked
    }

    /// Two tries: a connection that was quiet for long may end in the moment it is used.
    async fn ask_twice(
        &self,
        to: Target,
        request: &Request,
        hedge: bool,
        deadline: Instant,
    ) -> Result<(Response, Use), RpcError> {
        match self.ask_once(to, request, hedge, deadline).await {
            Err(Failure { again: true, .. }) => {}
            done => return done.map_err(|failure| failure.error),
        }
        let asked = self.ask_once(to, request, hedge, deadline).await;
        asked.map_err(|failure| failure.error)
    }

    async fn ask_once(
        &self,
        to: Target,
        request: &Request,
        hedge: bool,
        deadline: Instant,
    ) -> Result<(Response, Use), Failure> {
        let hub = &self.0;
        let fail = |error, again| Failure { error, again };
        let now = hub.env.now();
        if deadline <= now {
            let what = TimedOut::Rpc(request.op());
            hub.stats.count_timeout(what);
            return Err(fail(RpcError::Timeout(what), false));
        }
        let mut over = hub.route(to, now).map_err(|error| fail(error, false))?;
        // Dropped before `over`: when the task is told that somebody went away, it can see who.
        let (reply, answer) = oneshot::channel();
        let sent = over.line().send(Mail::Ask(Ask {
            request: Box::new(request.clone()),
            hedge,
            deadline,
            reply,
        }));
        let answered = match sent {
            Ok(()) => {
                hub.stats.requests_out.up();
                answer.await.unwrap_or(Err(fail(RpcError::Reset, false)))
            }
            Err(Refusal::Full) => Err(fail(RpcError::Busy, false)),
            Err(Refusal::Closed) => Err(fail(RpcError::Reset, true)),
        };
        over.answered();
        answered.map(|response| (response, over))
    }
}

/// One request as its peer's breaker sees it. Dropped without an outcome, nothing was learnt.
struct Trial<'a> {
    hub: &'a Hub,
    peer: Id,
    asked: breaker::Ask,
    answered: Option<bool>,
}

impl Trial<'_> {
    fn begin(hub: &Hub, peer: Id) -> Result<Trial<'_>, RpcError> {
        let asked = hub.may_ask(&peer)?;
        let answered = None;
        Ok(Trial {
            hub,
            peer,
            asked,
            answered,
        })
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.hub.report(&self.peer, self.asked, self.answered);
    }
}
