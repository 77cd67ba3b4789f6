//! What a connection needs from the node behind it: answers to what peers ask, and an ear for what is learnt of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    contact::Contact,
    limiter::Entered,
    link::{
        error::RpcError,
        line::{Line, Mail},
    },
    wire::message::{Op, Refusal, RefusalCode, Request, Response},
};

/// The node behind the connections. Called in a connection's own task: nothing here may wait.
pub trait Answer: Send + Sync {
    /// `PING`, `FIND_NODE`, `FIND_VALUE`, `GET_PROVIDERS`: from snapshots, at once.
    fn read(&self, from: &PeerInfo, request: &Request) -> Response;

    /// `PROVIDE`, `STORE`, only from a peer that has proven its id: into the work queue, or refused at once.
    fn write(&self, from: &PeerInfo, request: Request, reply: ReplyHandle);

    /// A peer proved its id; with `outbound` also that it listens at the contact's address. Once per connection.
    fn proven(&self, peer: Contact, outbound: bool, rtt: Option<Duration>);

    /// A dial, a handshake or a request failed through the peer ([`RpcError::is_the_peers`]). Once per failed
    /// dial, lost connection with requests open, and request past its deadline: callers of a request need not tell it
    /// again. Not called for what its caller gave up.
    fn failed(&self, peer: Contact, error: &RpcError);
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// What the peer says of itself: its id, and where it says it listens, seen from here.
    pub contact: Contact,
    /// It has proven the id.
    pub proven: bool,
    /// We dialled it there: the address is true as well.
    pub outbound: bool,
}

/// Takes the answer to one write. Dropped without one it answers `busy`, so that no request is lost.
pub struct ReplyHandle {
    to: Option<To>,
    deadline: Instant,
}

pub(crate) enum To {
    /// A peer, by its connection.
    Line {
        line: Arc<Line>,
        corr_id: u64,
        op: Op,
        /// Its place in the limits, given back with the answer.
        _entered: Entered,
    },
    /// A caller on this node.
    Caller(oneshot::Sender<Response>),
}

impl ReplyHandle {
    /// One whose answer comes out here, for a caller on this node.
    pub fn channel(deadline: Instant) -> (ReplyHandle, oneshot::Receiver<Response>) {
        let (to, answer) = oneshot::channel();
        let to = Some(To::Caller(to));
        (ReplyHandle { to, deadline }, answer)
    }

    pub(crate) fn new(to: To, deadline: Instant) -> ReplyHandle {
        let to = Some(to);
        ReplyHandle { to, deadline }
    }

    /// When the asker stops waiting: no use in beginning after it.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub fn reply(mut self, response: Response) {
        self.answer(response);
    }

    pub fn refuse(self, code: RefusalCode, retry_after_ms: u32) {
        self.reply(Response::Refused(Refusal {
            code,
            retry_after_ms,
        }));
    }

    fn answer(&mut self, response: Response) {
        // Who asked may be gone: then nobody needs the answer.
        match self.to.take() {
            Some(To::Line {
                line, corr_id, op, ..
            }) => {
                let _ = line.send(Mail::Reply {
                    corr_id,
                    op,
                    response,
                });
            }
            Some(To::Caller(caller)) => {
                let _ = caller.send(response);
            }
            None => {}
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        self.answer(Response::Refused(Refusal {
            code: RefusalCode::Busy,
            retry_after_ms: 0,
        }));
    }
}
