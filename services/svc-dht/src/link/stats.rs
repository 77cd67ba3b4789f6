//! What connections count, in plain numbers; metrics and tests read the same ones.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{limiter::Kind, link::error::TimedOut};

/// Of one node.
#[derive(Debug, Default)]
pub struct LinkStats {
    pub dialled: Count,
    pub dials_failed: Count,
    pub accepted: Count,
    /// Inbound connections above the cap, or while draining.
    pub inbound_refused: Count,
    pub accept_errors: Count,
    /// Alive now.
    pub open_outbound: Count,
    pub open_inbound: Count,
    /// Streams that were shut down explicitly; at the end as many as were opened.
    pub shut_down: Count,
    /// Idle connections closed to make room for another peer, and at the idle timeout.
    pub evicted: Count,
    pub closed_idle: Count,
    pub bytes_in: Count,
    pub bytes_out: Count,
    pub requests_out: Count,
    pub requests_in: Count,
    /// Answers that came after their request was given up.
    pub late_answers: Count,
    /// Requests whose caller went away before the answer.
    pub canceled: Count,
    /// Refused before a worker saw them.
    pub refused_not_ready: Count,
    pub refused_not_verified: Count,
    pub refused_outbox: Count,
    pub refused_in_flight: Count,
    pub breaker_opened: Count,
    pub breaker_refused: Count,
    timeouts: [Count; TimedOut::COUNT],
    quota_rejected: [Count; Kind::ALL.len()],
    frames_rejected: [Count; FRAME_CODES.len()],
    handshakes_rejected: [Count; HANDSHAKE_CODES.len()],
}

/// The values of the label `code` of `frames_rejected_total`. The last one stands for what is not listed.
pub const FRAME_CODES: [&str; 14] = [
    "empty",
    "too_long",
    "truncated",
    "malformed",
    "not_deterministic",
    "wrong_network",
    "wrong_version",
    "unknown_op",
    "bad_flags",
    "too_many",
    // An answer to another operation, or to nothing at all.
    "wrong_answer",
    "unasked",
    // The peer asks on and on and reads nothing.
    "unread",
    "other",
];

/// The values of the label `code` of `handshakes_rejected_total`.
pub const HANDSHAKE_CODES: [&str; 12] = [
    "wrong_network",
    "wrong_version",
    "bad_proof",
    "wrong_id",
    "self_dial",
    "malformed",
    "rejected_wrong_network",
    "rejected_wrong_version",
    "rejected_self_dial",
    "rejected_busy",
    "rejected_not_ready",
    "other",
];

/// A number that goes up, and for what is alive also down.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn up(&self) {
        self.add(1);
    }

    pub fn down(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl LinkStats {
    pub fn timeouts(&self, what: TimedOut) -> u64 {
        self.timeouts[what.index()].get()
    }

    pub fn count_timeout(&self, what: TimedOut) {
        self.timeouts[what.index()].up();
    }

    /// Requests that the limiter refused.
    pub fn quota_rejected(&self, kind: Kind) -> u64 {
        self.quota_rejected[kind as usize].get()
    }

    pub fn count_quota_rejected(&self, kind: Kind) {
        self.quota_rejected[kind as usize].up();
    }

    pub fn frames_rejected(&self, code: &str) -> u64 {
        self.frames_rejected[place(&FRAME_CODES, code)].get()
    }

    pub fn count_frame_rejected(&self, code: &str) {
        self.frames_rejected[place(&FRAME_CODES, code)].up();
    }

    pub fn handshakes_rejected(&self, code: &str) -> u64 {
        self.handshakes_rejected[place(&HANDSHAKE_CODES, code)].get()
    }

    pub fn count_handshake_rejected(&self, code: &str) {
        self.handshakes_rejected[place(&HANDSHAKE_CODES, code)].up();
    }
}

fn place(codes: &[&str], code: &str) -> usize {
    let known = codes.iter().position(|known| *known == code);
    known.unwrap_or(codes.len() - 1)
}
