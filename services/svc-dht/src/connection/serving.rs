//! What a connection does with messages: answers of the peer go to their callers, its requests are answered here.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use super::Connection;
use crate::{
    id::Id,
    limiter::Entered,
    link::{
        answer::{ReplyHandle, To},
        calls::Answered,
        ending::Why,
        error::RpcError,
        line::Failure,
    },
    wire::{
        envelope::{Message, decode, encode_response},
        message::{Op, Refusal, RefusalCode, Request, Response},
    },
};

/// A peer that lets so many refusals pile up behind answers that it has not taken does not read at all.
const MOST_REFUSED: u16 = 1024;

impl Connection {
    pub(super) fn handle_message(&mut self, frame: &[u8], now: Instant) {
        match decode(frame, self.hub.rules.network) {
            Ok(Message::Request {
                corr_id,
                deadline_ms,
                request,
                ..
            }) => self.serve(corr_id, deadline_ms, request, frame.len(), now),
            Ok(Message::Response {
                corr_id,
                op,
                response,
            }) => self.take_answer(corr_id, op, response, now),
            Err(error) => self.end(Why::Frame(error.code()), now),
        }
    }

    fn take_answer(&mut self, corr_id: u64, op: Op, response: Response, now: Instant) {
        self.touch(now);
        let result = match response {
            Response::Refused(refusal) => Err(Failure {
                error: RpcError::Refused(refusal),
                again: false,
            }),
            response => Ok(response),
        };
        match self.calls.answer(corr_id, op, result) {
            Answered::Call => {}
            Answered::Late => self.hub.stats.late_answers.up(),
            Answered::WrongOp => self.end(Why::Frame("wrong_answer"), now),
            Answered::Unasked => self.end(Why::Frame("unasked"), now),
        }
    }

    fn serve(
        &mut self,
        corr_id: u64,
        deadline_ms: u32,
        request: Request,
        bytes: usize,
        now: Instant,
    ) {
        let op = request.op();
        self.hub.stats.requests_in.up();
        self.touch(now);
        match self.admit(op, bytes, now) {
            Err(_) if self.refused_unread > MOST_REFUSED => self.end(Why::Frame("unread"), now),
            Err(refusal) => self.respond(corr_id, op, &Response::Refused(refusal)),
            Ok(entered) if op.is_read() => {
                let before = self.outbox.len();
                let response = self.hub.answer.read(&self.peer, &request);
                self.respond(corr_id, op, &response);
                entered.charge(now, (self.outbox.len() - before) as u32);
            }
            Ok(entered) => {
                self.serving += 1;
                let deadline = now + Duration::from_millis(deadline_ms.into());
                let to = To::Line {
                    line: self.line.clone(),
                    corr_id,
                    op,
                    _entered: entered,
                };
                let reply = ReplyHandle::new(to, deadline);
                self.hub.answer.write(&self.peer, request, reply);
            }
        }
    }

    /// A place for a request, or why it is not even looked at: cheapest first.
    fn admit(&mut self, op: Op, bytes: usize, now: Instant) -> Result<Entered, Refusal> {
        let (rules, stats) = (&self.hub.rules, &self.hub.stats);
        let (count, code) = if self.hub.is_draining() {
            (&stats.refused_not_ready, RefusalCode::NotReady)
        } else if self.outbox.len() >= rules.outbox_bytes {
            self.refused_unread += 1;
            (&stats.refused_outbox, RefusalCode::Busy)
        } else if !op.is_read() && !self.peer.proven {
            (&stats.refused_not_verified, RefusalCode::NotVerified)
        } else if !op.is_read() && self.serving >= rules.max_in_flight {
            (&stats.refused_in_flight, RefusalCode::Busy)
        } else {
            let entered = self.hub.limiter.try_enter(now, &self.share(), bytes as u32);
            return entered.map_err(|exhausted| {
                stats.count_quota_rejected(exhausted.kind);
                let retry_after_ms = exhausted.retry_after.as_millis().max(1) as u32;
                Refusal {
                    code: RefusalCode::Busy,
                    retry_after_ms,
                }
            });
        };
        count.up();
        Err(Refusal {
            code,
            retry_after_ms: 0,
        })
    }

    /// Whose share of the limits this is. Until it has proven its id a peer counts by its address: it cannot use up what
    /// belongs to another.
    fn share(&self) -> Id {
        if self.peer.proven {
            return self.peer.contact.id;
        }
        let mut share = [0; 32];
        match self.peer.contact.addr.ip() {
            IpAddr::V4(ip) => share[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => share[..16].copy_from_slice(&ip.octets()),
        }
        Id(share)
    }

    pub(super) fn respond(&mut self, corr_id: u64, op: Op, response: &Response) {
        let network = self.hub.rules.network;
        let about = match response {
            Response::Pong | Response::Stored | Response::Refused(_) => 64,
            _ => 1536,
        };
        let out = self.outbox.room(about);
        if encode_response(out, network, corr_id, op, response).is_err() {
            // More than a frame holds: the asker is told so rather than left waiting.
            let refused = Response::Refused(Refusal {
                code: RefusalCode::TooLarge,
                retry_after_ms: 0,
            });
            let _ = encode_response(out, network, corr_id, op, &refused);
        }
    }
}
