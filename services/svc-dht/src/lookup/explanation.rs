//! What a lookup did, probe by probe, in 16 bytes each: kept for `GET /v1/dht/lookups/{id}`.

use std::time::Duration;

use crate::id::Id;

/// The steps of one lookup in the order in which they began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Explanation {
    pub target: Id,
    pub steps: Box<[Step]>,
    pub took_ms: u16,
}

/// One probe. Times are offsets from the lookup's start and stop at a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The peer's first eight bytes.
    pub peer: u64,
    pub start_ms: u16,
    /// As `start_ms` while it is under way.
    pub end_ms: u16,
    /// Referrals between our table and this peer.
    pub depth: u8,
    /// How many answers had been awaited one after the other before it began.
    pub round: u8,
    pub hedge: bool,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum End {
    UnderWay,
    Answered,
    /// After it was overdue; it counted all the same.
    AnsweredLate,
    Refused,
    Unreachable,
    Reset,
    TimedOut,
    /// It broke the protocol, or was somebody else.
    Misbehaved,
    /// The lookup ended first.
    Canceled,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::UnderWay => "under_way",
            End::Answered => "answered",
            End::AnsweredLate => "answered_late",
            End::Refused => "refused",
            End::Unreachable => "unreachable",
            End::Reset => "reset",
            End::TimedOut => "timed_out",
            End::Misbehaved => "misbehaved",
            End::Canceled => "canceled",
        }
    }
}

/// Milliseconds, a minute at most.
pub(super) fn offset(since_start: Duration) -> u16 {
    since_start.as_millis().min(60_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_small_because_many_are_kept() {
        assert_eq!(size_of::<Step>(), 16);
    }
}
