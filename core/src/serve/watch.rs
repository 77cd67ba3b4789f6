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

    /// Since when no request has been in hand, if none is.
    pub fn idle_since(&self) -> Instant {
        self.idle_since
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
        let answered = seen.finished != self.finished;
        if !between_requests || answered || took_something {
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        header_read: Duration::from_secs(5),
        write: Duration::from_secs(7),
        idle: Duration::from_secs(60),
    };

    /// What is seen at which second, and which limit must then be due, when.
    type Step = (u64, Seen, Option<(u64, Phase)>);

    fn check(steps: &[Step]) {
        let start = crate::serve::tests::some_instant();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut watch = Watch::new(LIMITS, start);
        for (step, (second, seen, expected)) in steps.iter().enumerate() {
            let due = watch.observe(at(*second), *seen);
            assert_eq!(due, expected.map(|(s, p)| (at(s), p)), "step {step}");
        }
    }

    fn idle(finished: u64) -> Seen {
        Seen {
            finished,
            ..Seen::default()
        }
    }

    fn head(finished: u64) -> Seen {
        Seen {
            head_open: true,
            ..idle(finished)
        }
    }

    fn busy(finished: u64) -> Seen {
        Seen {
            in_flight: 1,
            ..idle(finished)
        }
    }

    fn blocked(in_flight: usize, writes: u64) -> Seen {
        Seen {
            in_flight,
            write_blocked: true,
            writes,
            ..Seen::default()
        }
    }

    #[test]
    fn a_head_is_due_from_its_first_sight_however_often_it_is_looked_at() {
        check(&[
            (0, head(0), Some((5, Phase::HeaderRead))),
            (2, head(0), Some((5, Phase::HeaderRead))),
            (4, head(0), Some((5, Phase::HeaderRead))),
        ]);
    }

    #[test]
    fn each_head_has_its_own_time() {
        check(&[
            (0, head(0), Some((5, Phase::HeaderRead))),
            (3, busy(0), None),
            (10, head(1), Some((15, Phase::HeaderRead))),
            (12, idle(2), Some((72, Phase::Idle))),
            (20, head(2), Some((25, Phase::HeaderRead))),
        ]);
    }

    #[test]
    fn a_request_in_hand_has_no_limit_of_its_own() {
        check(&[(0, busy(0), None), (1000, busy(0), None)]);
    }

    #[test]
    fn idle_time_is_counted_from_the_last_request() {
        check(&[
            (1, idle(0), Some((60, Phase::Idle))),
            (10, busy(0), None),
            (50, idle(1), Some((110, Phase::Idle))),
            (70, idle(1), Some((110, Phase::Idle))),
            // Answered within one poll: seen only by its count.
            (80, idle(2), Some((140, Phase::Idle))),
        ]);
    }

    #[test]
    fn a_blocked_write_is_due_from_its_last_progress() {
        check(&[
            (0, busy(0), None),
            (1, blocked(1, 3), Some((8, Phase::Write))),
            (4, blocked(1, 3), Some((8, Phase::Write))),
            (6, blocked(1, 4), Some((13, Phase::Write))),
            (7, busy(0), None),
            (9, blocked(1, 4), Some((16, Phase::Write))),
        ]);
    }

    #[test]
    fn the_tail_of_an_answer_that_is_still_being_taken_is_not_idle() {
        check(&[
            (0, busy(0), None),
            (1, blocked(0, 1), Some((8, Phase::Write))),
            (7, blocked(0, 2), Some((14, Phase::Write))),
            (13, blocked(0, 3), Some((20, Phase::Write))),
            (19, idle(0), Some((79, Phase::Idle))),
        ]);
    }

    #[test]
    fn the_slowest_reader_counts_against_the_write_limit() {
        let start = crate::serve::tests::some_instant();
        let mut watch = Watch::new(LIMITS, start);
        let untaken = |second| Seen {
            untaken_since: Some(start + Duration::from_secs(second)),
            ..blocked(1, 1)
        };
        let due = |second| Some((start + Duration::from_secs(second), Phase::Write));
        assert_eq!(
            watch.observe(start + Duration::from_secs(4), untaken(2)),
            due(9)
        );
        assert_eq!(
            watch.observe(start + Duration::from_secs(8), untaken(6)),
            due(11)
        );
    }
}
