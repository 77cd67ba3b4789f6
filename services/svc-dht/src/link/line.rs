//! The line to a connection's task: what everybody else holds of a connection.
//!
//! Always: what is asked over it is bounded; a request that its task will never see is handed back; the task owns all
//! other state, so nothing here is ever locked while somebody waits.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    task::Waker,
    time::Instant,
};

use futures_util::task::AtomicWaker;
use ron_core::{Queue, Refusal, RejectNew, topology::QueueDecl};
use tokio::sync::oneshot;

use crate::{
    contact::Addr,
    id::Id,
    link::error::RpcError,
    wire::message::{Op, Request, Response},
};

/// What waits for a connection's task: requests of this node, and answers of its workers.
pub fn mail_decl(max_in_flight: usize) -> QueueDecl<RejectNew> {
    QueueDecl {
        name: "connection",
        // Both kinds are counted before they come here, so it is never full.
        cap: 2 * max_in_flight,
        cap_key: None,
        policy: RejectNew,
        producers: "callers of `Peers`, workers that answer",
        consumers: "the connection's task",
        when_full: "`busy`",
    }
}

pub(crate) enum Mail {
    Ask(Ask),
    /// The answer to a write that a worker was given.
    Reply {
        corr_id: u64,
        op: Op,
        response: Response,
    },
}

/// One request of this node.
pub(crate) struct Ask {
    pub request: Box<Request>,
    pub hedge: bool,
    pub deadline: Instant,
    pub reply: Reply,
}

pub(crate) type Reply = oneshot::Sender<Result<Response, Failure>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub error: RpcError,
    /// The connection was over before the peer can have acted: another one may be tried.
    pub again: bool,
}

/// What somebody else wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wish {
    Stay = 0,
    MakeRoom = 1,
    Drain = 2,
}

pub(crate) struct Line {
    /// In the order of creation.
    pub number: u64,
    /// Where it was dialled to; none for an inbound one.
    pub dialled: Option<Addr>,
    /// Who proved to be at the other end.
    peer: OnceLock<Id>,
    mail: Queue<Mail, RejectNew>,
    waker: AtomicWaker,
    wish: AtomicU8,
    /// Some caller went away before its answer.
    canceled: AtomicBool,
    /// Requests of this node that are under way.
    uses: AtomicU32,
    /// When a request was last seen on it, in milliseconds of the node's life.
    used_ms: AtomicU64,
}

impl Line {
    pub fn new(number: u64, dialled: Option<Addr>, max_in_flight: usize, now_ms: u64) -> Line {
        let decl = mail_decl(max_in_flight);
        Line {
            number,
            dialled,
            peer: OnceLock::new(),
            mail: Queue::new(decl.name, decl.cap, decl.policy),
            waker: AtomicWaker::new(),
            wish: AtomicU8::new(Wish::Stay as u8),
            canceled: AtomicBool::new(false),
            uses: AtomicU32::new(0),
            used_ms: AtomicU64::new(now_ms),
        }
    }

    // ------------------------------------------------------------------------------ from outside

    /// Fails if its task has ended, or is about to.
    pub fn send(&self, mail: Mail) -> Result<(), Refusal> {
        self.mail.push(mail).map_err(|refused| refused.why)?;
        self.waker.wake();
        Ok(())
    }

    pub fn wish(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Acquire)
    }

    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Who is at the other end, once that is proven.
    pub fn peer(&self) -> Option<Id> {
        self.peer.get().copied()
    }

    pub fn is_outbound(&self) -> bool {
        self.dialled.is_some()
    }

    // ------------------------------------------------------------------------------ from its task

    pub fn listen(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub fn next(&self) -> Option<Mail> {
        self.mail.try_pop()
    }

    pub fn wished(&self) -> Wish {
        match self.wish.load(Ordering::Acquire) {
            0 => Wish::Stay,
            1 => Wish::MakeRoom,
            _ => Wish::Drain,
        }
    }

    pub fn take_canceled(&self) -> bool {
        // The plain load spares the common case a write to a shared line.
        self.canceled.load(Ordering::Acquire) && self.canceled.swap(false, Ordering::AcqRel)
    }

    pub fn identify(&self, peer: Id) {
        let _ = self.peer.set(peer);
    }

    pub fn touch(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// From now on nothing is taken; what was there comes out of [`Line::next`].
    pub fn close(&self) {
        self.mail.close();
    }
}

/// One request's hold on a line: while it lives the connection is not idle. Dropped early, the task forgets the request.
pub(crate) struct Use {
    line: Arc<Line>,
    answered: bool,
}

impl Use {
    pub fn of(line: &Arc<Line>) -> Use {
        line.uses.fetch_add(1, Ordering::AcqRel);
        Use {
            line: line.clone(),
            answered: false,
        }
    }

    pub fn line(&self) -> &Arc<Line> {
        &self.line
    }

    pub fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.line.uses.fetch_sub(1, Ordering::AcqRel);
        if !self.answered {
            self.line.canceled.store(true, Ordering::Release);
            self.line.waker.wake();
        }
    }
}
