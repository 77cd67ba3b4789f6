//! What all connections of a node share: who it is, its rules, its counters, and which connections there are.
//!
//! Always: each connection's task is known here from before it starts until it has ended.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ron_core::{
    Env,
    lock::{LockDecl, RankedMutex},
    seam::Conn,
};
use tokio::sync::Notify;

use super::{
    answer::Answer,
    error::RpcError,
    line::{Line, Use, Wish},
    pool::{Caps, Pool, Route},
    rules::LinkRules,
    stats::LinkStats,
};
use crate::{
    breaker::{self, Ask, Breakers},
    connection::Connection,
    contact::Contact,
    id::Id,
    identity::Identity,
    limiter::SharedLimiter,
    wire::handshake::HandshakeError,
};

pub const POOL_LOCK: LockDecl = LockDecl {
    name: "connections",
    rank: 27,
    guards: "which connections there are, and to whom",
};

pub const BREAKERS_LOCK: LockDecl = LockDecl {
    name: "breakers",
    rank: 28,
    guards: "which peers are in trouble",
};

pub(crate) struct Hub {
    pub env: Env,
    pub identity: Arc<Identity>,
    pub rules: LinkRules,
    pub stats: LinkStats,
    pub answer: Arc<dyn Answer>,
    /// What peers may ask of us.
    pub limiter: SharedLimiter,
    breakers: RankedMutex<Breakers>,
    started: Instant,
    draining: AtomicBool,
    pool: RankedMutex<Pool>,
    none_left: Notify,
}

/// Where a request is to go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// To this peer, over whatever connection.
    Peer(Contact),
    /// To this peer, over a connection that was dialled to its address.
    PeerAt(Contact),
    /// To whoever is at the address.
    Addr(SocketAddr),
}

impl Hub {
    pub fn new(
        env: Env,
        identity: Arc<Identity>,
        rules: LinkRules,
        answer: Arc<dyn Answer>,
    ) -> Hub {
        let started = env.now();
        Hub {
            started,
            limiter: SharedLimiter::new(rules.limits, started),
            breakers: RankedMutex::new(BREAKERS_LOCK, Breakers::new(rules.breaker, breaker::PEERS)),
            env,
            identity,
            rules,
            stats: LinkStats::default(),
            answer,
            draining: AtomicBool::new(false),
            pool: RankedMutex::new(POOL_LOCK, Pool::default()),
            none_left: Notify::new(),
        }
    }

    /// A hold on the line to a peer, which is dialled if there is none.
    pub fn route(self: &Arc<Self>, to: Target, now: Instant) -> Result<Use, RpcError> {
        if let Target::Peer(peer) | Target::PeerAt(peer) = to
            && peer.id == self.identity.id()
        {
            return Err(RpcError::Handshake(HandshakeError::SelfDial));
        }
        let (caps, now_ms) = (self.caps(), self.millis(now));
        let mut pool = self.pool.lock();
        let route = match to {
            Target::Peer(peer) => pool.route(peer.id, peer.addr, caps, now_ms),
            Target::PeerAt(peer) => pool.route_to(Some(peer.id), peer.addr, caps, now_ms),
            Target::Addr(addr) => pool.route_to(None, addr.into(), caps, now_ms),
        };
        drop(pool);
        match route {
            Route::Over(over) => Ok(over),
            Route::Busy => Err(RpcError::Busy),
            Route::Closed => Err(RpcError::Canceled),
            Route::Dial { over, instead_of } => {
                if let Some(idle) = instead_of {
                    self.stats.evicted.up();
                    idle.wish(Wish::MakeRoom);
                }
                self.stats.dialled.up();
                let connection = match to {
                    Target::Peer(peer) | Target::PeerAt(peer) => {
                        Connection::dial(self, over.line(), peer.addr, Some(peer.id), now)
                    }
                    Target::Addr(addr) => {
                        Connection::dial(self, over.line(), addr.into(), None, now)
                    }
                };
                self.start(connection);
                Ok(over)
            }
        }
    }

    /// Whether a peer may be asked; what comes of it is to be reported.
    pub fn may_ask(&self, peer: &Id) -> Result<Ask, RpcError> {
        let now = self.env.now();
        let ask = self.breakers.lock().ask(peer, now);
        if let Ask::Not { .. } = ask {
            self.stats.breaker_refused.up();
            return Err(RpcError::Busy);
        }
        Ok(ask)
    }

    /// None if nothing was learnt of the peer.
    pub fn report(&self, peer: &Id, asked: Ask, answered: Option<bool>) {
        let now = self.env.now();
        let mut breakers = self.breakers.lock();
        breakers.forget_old(now);
        let opened = match answered {
            Some(true) => {
                breakers.handle_answer(peer);
                false
            }
            Some(false) => breakers.handle_timeout(peer, asked, now),
            None => {
                breakers.handle_cancelled(peer, asked);
                false
            }
        };
        drop(breakers);
        if opened {
            self.stats.breaker_opened.up();
        }
    }

    /// Takes in a connection that somebody made to us, if there is room: otherwise it comes back.
    pub fn admit(self: &Arc<Self>, stream: Conn, from: SocketAddr) -> Result<(), Conn> {
        let now = self.env.now();
        let mut pool = self.pool.lock();
        if pool.is_closed() || self.is_draining() || pool.inbound() >= self.rules.max_inbound {
            drop(pool);
            self.stats.inbound_refused.up();
            return Err(stream);
        }
        let line = pool.add(None, None, self.caps(), self.millis(now));
        drop(pool);
        self.stats.accepted.up();
        self.start(Connection::accept(self, &line, stream, from, now));
        Ok(())
    }

    /// The task is not joined, but known: it ends with [`Hub::gone`], and [`Hub::close`] waits for that.
    fn start(&self, connection: Connection) {
        drop(self.env.launch("connection", Box::pin(connection)));
    }

    pub fn identify(&self, line: &Arc<Line>, peer: Id) {
        line.identify(peer);
        self.pool.lock().identify(line, peer);
    }

    pub fn retire(&self, line: &Arc<Line>) {
        self.pool.lock().retire(line);
    }

    pub fn gone(&self, line: &Arc<Line>) {
        let last = self.pool.lock().gone(line);
        if last {
            self.none_left.notify_waiters();
        }
    }

    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ends all connections and waits until their tasks have ended.
    pub async fn close(&self) {
        self.drain();
        let lines = self.pool.lock().close();
        for line in lines {
            line.wish(Wish::Drain);
        }
        loop {
            let none_left = self.none_left.notified();
            if self.pool.lock().alive() == 0 {
                return;
            }
            none_left.await;
        }
    }

    /// Connections in use: outbound and inbound.
    pub fn open(&self) -> (usize, usize) {
        let pool = self.pool.lock();
        (pool.outbound(), pool.inbound())
    }

    /// Tasks that have not ended.
    pub fn alive(&self) -> usize {
        self.pool.lock().alive()
    }

    pub fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_millis() as u64
    }

    /// How long a stream may take to end.
    pub fn close_limit(&self) -> Duration {
        self.rules.write.min(Duration::from_secs(1))
    }

    fn caps(&self) -> Caps {
        Caps {
            max_outbound: self.rules.max_outbound,
            max_in_flight: self.rules.max_in_flight,
        }
    }
}
