//! Answers what peers ask: reads from snapshots at once, writes by way of the work queue. Never waits.

use std::{sync::Arc, time::Duration};

use ron_core::{Refusal as Full, buggify};

use crate::{
    contact::Contact,
    error::DhtError,
    id::Id,
    link::{
        answer::{Answer, PeerInfo, ReplyHandle},
        error::RpcError,
    },
    lookup::NAMED,
    metrics::Family,
    node::{Node, millis},
    routes::Route,
    routing::{Liveness, Update},
    wire::handshake::{HandshakeError, RejectCode},
    wire::message::{Op, Refusal, RefusalCode, Request, Response},
    worker::{Job, Reply},
};

/// The most provider records of one answer: what a frame carries.
const PROVIDERS_MAX: usize = 64;

/// The node, as its connections see it.
pub struct Answerer(pub Arc<Node>);

impl Answerer {
    fn closer(&self, target: &Id, asker: &Id) -> Vec<Contact> {
        let node = &self.0;
        let n = node.config().lookup.k.max(NAMED);
        node.table
            .closest(target, n, Liveness::SkipDead, Some(asker))
    }

    fn not_ready(&self) -> Option<Refusal> {
        if !self.0.drain.is_begun() {
            return None;
        }
        self.0.metrics.count(Family::NotReady, "draining");
        Some(DhtError::NotReady("draining").refusal())
    }
}

impl Answer for Answerer {
    fn read(&self, from: &PeerInfo, request: &Request) -> Response {
        if let Some(refusal) = self.not_ready() {
            return Response::Refused(refusal);
        }
        let node = &self.0;
        node.metrics.inc(|hot| &hot.requests_in);
        if buggify!("dht.read_refused") {
            return Response::Refused(DhtError::Busy("work").refusal());
        }
        let (asker, now) = (&from.contact.id, node.env.wall_ms());
        match request {
            Request::Ping => Response::Pong,
            Request::FindNode { target } => Response::Nodes {
                closer: self.closer(target, asker),
            },
            Request::FindValue { key } => Response::Value {
                value: node.shelf.value(key, now).map(|r| Box::new((*r).clone())),
                closer: self.closer(key, asker),
            },
            Request::GetProviders { key } => {
                let held = node.shelf.providers(key, now, PROVIDERS_MAX);
                Response::Providers {
                    providers: held.iter().map(|r| (**r).clone()).collect(),
                    closer: self.closer(key, asker),
                }
            }
            Request::Provide { .. } | Request::Store { .. } => Response::Refused(Refusal {
                code: RefusalCode::BadRequest,
                retry_after_ms: 0,
            }),
        }
    }

    fn write(&self, _from: &PeerInfo, request: Request, reply: ReplyHandle) {
        if let Some(refusal) = self.not_ready() {
            return reply.reply(Response::Refused(refusal));
        }
        let node = &self.0;
        node.metrics.inc(|hot| &hot.requests_in);
        let op = request.op();
        let record = match request {
            Request::Provide { record } | Request::Store { record } => record,
            _ => return reply.refuse(RefusalCode::BadRequest, 0),
        };
        if buggify!("dht.write_refused") {
            return reply.refuse(RefusalCode::Busy, 0);
        }
        let job = Job::Store {
            record,
            reply: Reply::Peer(reply),
        };
        if let Err(refused) = node.work.push(job) {
            let error = match refused.why {
                Full::Full => {
                    let endpoint = if op == Op::Store { "store" } else { "provide" };
                    node.metrics.count(Family::BusyEndpoint, endpoint);
                    DhtError::Busy("work")
                }
                Full::Closed => DhtError::NotReady("draining"),
            };
            if let Job::Store { reply, .. } = refused.item {
                reply.send(Err(error));
            }
        }
    }

    fn proven(&self, peer: Contact, outbound: bool, rtt: Option<Duration>) {
        let node = &self.0;
        let rtt_ms = rtt.map(millis);
        let update = match outbound {
            true => Update::Verified {
                contact: peer,
                rtt_ms,
            },
            // It called from there; whether it listens there is yet to be seen.
            false => Update::Heard { contact: peer },
        };
        node.env.probe(
            "dht.proven",
            peer.id.short(),
            format_args!("{outbound} {} {}", peer.id, peer.addr),
        );
        node.routes.tell(&peer.id, Route::Tell(update));
    }

    fn failed(&self, peer: Contact, error: &RpcError) {
        let update = match error {
            // It has no room, or is about to stop: it may be there again later.
            RpcError::Handshake(HandshakeError::Rejected(
                RejectCode::Busy | RejectCode::NotReady,
            )) => Update::Failed { id: peer.id },
            // Somebody else is there, or nobody who keeps to the protocol.
            RpcError::Handshake(_) | RpcError::Wire(_) => Update::Evict { id: peer.id },
            _ => Update::Failed { id: peer.id },
        };
        self.0.routes.tell(&peer.id, Route::Tell(update));
    }
}
