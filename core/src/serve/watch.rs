//! When a connection has taken too long: a pure decision over what its task has seen.
//!
//! Instants are taken once per poll of the connection, never per byte, and a request that is read and
//! answered within one poll leaves no trace here. Always: a limit is counted from the moment the state
//! it bounds was first seen, so nothing is closed early.

use std::time::{Duration, Instant};

/// What a connection was doing when its time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waiting for the first byte, the TLS handshake or the rest of a request head.
    HeaderRead,
    /// Waiting for the next piece of a request body.
    BodyRead,
    /// Waiting for the peer to take what was written.
    Write,
    /// No request in hand.
    Idle,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub header_read: Duration,
    pub write: Duration,
    pub idle: Duration,
}

/// A connection right after a poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Requests whose response body has not ended.
    pub in_flight: usize,
    /// Requests ever finished; a change restarts the idle limit.
    pub finished: u64,
    /// An HTTP/1 request head is awaited and its first byte was seen (or it is the very first one).
    pub head_open: bool,
    /// The peer does not take what was written.
    pub write_blocked: bool,
    /// Writes that made progress; a change restarts the write limit.
    pub writes: u64,
    /// Since when the slowest HTTP/2 reader has left a piece of its response untaken.
    pub untaken_since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Watch {
    limits: Limits,
    head_since: Option<Instant>,
    write_since: Option<(Instant, u64)>,
    idle_since: Instant,
    finished: u64,
}

impl Watch {
    pub fn new(limits: Limits, now: Instant) -> Self {
        Watch {
            limits,
            head_since: None,
            write_since: None,
            idle_since: now,
            finished: 0,
        }
    }

    /// Takes in what was seen and says which limit runs out first, and when.
    pub fn observe(&mut self, now: Instant, seen: Seen) -> Option<(Instant, Phase)> {
        let between_requests = seen.in_flight == 0;
        if between_requests && seen.head_open {
            self.head_since.get_or_insert(now);
        } else {
            self.head_since = None;
        }

        let was_blocked = self.write_since.is_some();
        self.write_since = match self.write_since {
            _ if !seen.write_blocked => None,
            Some((since, writes)) if writes == seen.writes => Some((since, writes)),
            _ => Some((now, seen.writes)),
        };

        // A peer that still takes the tail of an answer is not idle.
        let took_something = was_blocked && self.write_since.is_none_or(|(since, _)| since == now);
        if !between_requests || seen.finished != self.finished || took_something {
            self.idle_since = now;
            self.finished = seen.finished;
        }

        let head = self
            .head_since
            .map(|t| (t + self.limits.header_read, Phase::HeaderRead));
        let write = self
            .write_since
            .map(|(t, _)| t)
            .into_iter()
            .chain(seen.untaken_since)
            .min()
            .map(|t| (t + self.limits.write, Phase::Write));
        let idle = between_requests.then_some((self.idle_since + self.limits.idle, Phase::Idle));
        head.into_iter()
            .chain(write)
            .chain(idle)
            .min_by_key(|(at, _)| *at)
    }
}
