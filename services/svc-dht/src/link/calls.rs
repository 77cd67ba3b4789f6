//! The requests of this node that a connection has under way. Pure: `now` is an argument.
//!
//! Always: every call is answered once, given up at its deadline, or forgotten when its caller went away; an answer
//! counts only for a call that was sent and has none yet, and as many late ones are borne as were given up.

use std::time::Instant;

use super::line::{Ask, Failure, Reply};
use crate::wire::message::{Op, Request, Response};

#[derive(Default)]
pub(crate) struct Calls {
    /// In the order of their ids.
    open: Vec<Call>,
    next_id: u64,
    /// Sent and given up: their answers may still come.
    orphans: u32,
}

pub(crate) struct Call {
    pub id: u64,
    pub op: Op,
    pub hedge: bool,
    pub deadline: Instant,
    /// Until it is sent.
    pub request: Option<Box<Request>>,
    reply: Reply,
}

/// What an answer turned out to be.
pub(crate) enum Answered {
    /// Delivered to its caller.
    Call,
    /// Its caller had given up.
    Late,
    /// It answers another operation than was asked.
    WrongOp,
    /// Nobody asked.
    Unasked,
}

impl Calls {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The peer owes an answer.
    pub fn any_due(&self) -> bool {
        self.orphans > 0 || self.open.iter().any(Call::is_sent)
    }

    pub fn add(&mut self, ask: Ask) {
        let id = self.next_id;
        self.next_id += 1;
        self.open.push(Call {
            id,
            op: ask.request.op(),
            hedge: ask.hedge,
            deadline: ask.deadline,
            request: Some(ask.request),
            reply: ask.reply,
        });
    }

    /// The first that was not sent; with `reads` only one that may precede the proof of identity.
    pub fn unsent(&mut self, reads: bool) -> Option<&mut Call> {
        let mut calls = self.open.iter_mut();
        calls.find(|call| !call.is_sent() && (!reads || call.op.is_read()))
    }

    pub fn answer(&mut self, id: u64, op: Op, result: Result<Response, Failure>) -> Answered {
        let found = self.open.binary_search_by_key(&id, |call| call.id);
        match found {
            Ok(at) if !self.open[at].is_sent() => Answered::Unasked,
            Ok(at) if self.open[at].op != op => Answered::WrongOp,
            Ok(at) => {
                let call = self.remove(at);
                match call.reply.send(result) {
                    Ok(()) => Answered::Call,
                    Err(_) => Answered::Late,
                }
            }
            Err(_) if self.orphans > 0 && id < self.next_id => {
                self.orphans -= 1;
                Answered::Late
            }
            Err(_) => Answered::Unasked,
        }
    }

    /// The next call whose deadline has come: it is given up.
    pub fn take_expired(&mut self, now: Instant) -> Option<Call> {
        let at = self.open.iter().position(|call| call.deadline <= now)?;
        Some(self.give_up(at))
    }

    /// Forgets calls whose callers went away; says how many.
    pub fn sweep(&mut self) -> u64 {
        let mut swept = 0;
        while let Some(at) = self.open.iter().position(|call| call.reply.is_closed()) {
            self.give_up(at);
            swept += 1;
        }
        swept
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|call| call.deadline).min()
    }

    /// All that are open, because the connection ends.
    pub fn take_all(&mut self) -> Vec<Call> {
        self.orphans = 0;
        std::mem::take(&mut self.open)
    }

    fn give_up(&mut self, at: usize) -> Call {
        let call = self.remove(at);
        self.orphans += u32::from(call.is_sent());
        call
    }

    fn remove(&mut self, at: usize) -> Call {
        let call = self.open.remove(at);
        if self.open.is_empty() {
            // An idle connection should cost nothing.
            self.open = Vec::new();
        }
        call
    }
}

impl Call {
    pub fn is_sent(&self) -> bool {
        self.request.is_none()
    }

    pub fn fail(self, failure: Failure) {
        // A caller that is gone needs no failure.
        let _ = self.reply.send(Err(failure));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::link::error::RpcError;

    type Answer = oneshot::Receiver<Result<Response, Failure>>;

    /// Any instant will do: the calls only compare.
    #[expect(clippy::disallowed_methods, reason = "an origin for the test's time")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn ask(calls: &mut Calls, request: Request, deadline: Instant) -> Answer {
        let (reply, answer) = oneshot::channel();
        calls.add(Ask {
            request: Box::new(request),
            hedge: false,
            deadline,
            reply,
        });
        answer
    }

    fn sent(calls: &mut Calls, deadline: Instant) -> Answer {
        let answer = ask(calls, Request::Ping, deadline);
        calls.unsent(false).unwrap().request = None;
        answer
    }

    #[test]
    fn an_answer_reaches_the_caller_that_asked_and_no_other() {
        let mut calls = Calls::default();
        let now = origin();
        let mut first = sent(&mut calls, now);
        let mut second = sent(&mut calls, now);
        let answered = calls.answer(1, Op::Ping, Ok(Response::Pong));
        assert!(matches!(answered, Answered::Call));
        assert_eq!(second.try_recv(), Ok(Ok(Response::Pong)));
        assert!(first.try_recv().is_err());
        assert_eq!(calls.open.len(), 1);
    }

    #[test]
    fn what_nobody_asked_is_told_from_what_came_late() {
        let mut calls = Calls::default();
        let now = origin();
        let unasked = |answered| matches!(answered, Answered::Unasked);
        assert!(unasked(calls.answer(0, Op::Ping, Ok(Response::Pong))));
        let _held = ask(&mut calls, Request::Ping, now);
        assert!(unasked(calls.answer(0, Op::Ping, Ok(Response::Pong))));
        calls.unsent(false).unwrap().request = None;
        let wrong = calls.answer(0, Op::Store, Ok(Response::Stored));
        assert!(matches!(wrong, Answered::WrongOp));
        assert!(calls.take_expired(now).is_some());
        let late = calls.answer(0, Op::Ping, Ok(Response::Pong));
        assert!(matches!(late, Answered::Late));
        assert!(unasked(calls.answer(0, Op::Ping, Ok(Response::Pong))));
    }

    #[test]
    fn a_call_is_given_up_at_its_deadline_and_not_before() {
        let mut calls = Calls::default();
        let now = origin();
        let soon = now + Duration::from_millis(1);
        let mut answer = sent(&mut calls, soon);
        assert_eq!(calls.next_deadline(), Some(soon));
        assert!(calls.take_expired(now).is_none());
        let failure = Failure {
            error: RpcError::Reset,
            again: false,
        };
        calls.take_expired(soon).unwrap().fail(failure);
        assert_eq!(answer.try_recv(), Ok(Err(failure)));
        assert!(calls.is_empty() && calls.any_due());
    }

    #[test]
    fn a_caller_that_went_away_leaves_nothing_but_an_answer_to_come() {
        let mut calls = Calls::default();
        let now = origin();
        let kept = sent(&mut calls, now);
        drop(sent(&mut calls, now));
        drop(ask(&mut calls, Request::Ping, now));
        assert_eq!(calls.sweep(), 2);
        assert_eq!((calls.open.len(), calls.orphans), (1, 1));
        drop(kept);
        assert_eq!(calls.sweep(), 1);
        assert_eq!(calls.open.capacity(), 0);
    }

    #[test]
    fn before_the_proof_only_reads_are_sent() {
        let mut calls = Calls::default();
        let now = origin();
        let record = crate::record::Record {
            kind: crate::record::RecordKind::Value,
            key: crate::id::Id([0; 32]),
            publisher: [0; 32],
            seq: 0,
            created_ms: 0,
            ttl_ms: 0,
            body: Vec::new(),
            signature: [0; 64],
        };
        let _store = ask(&mut calls, Request::Store { record }, now);
        let _ping = ask(&mut calls, Request::Ping, now);
        assert_eq!(calls.unsent(true).unwrap().op, Op::Ping);
        assert_eq!(calls.unsent(false).unwrap().op, Op::Store);
    }
}
