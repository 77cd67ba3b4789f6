//! Whom this node knows: 256 buckets by distance, each changed by one writer and read as a snapshot by all.
//!
//! [`bucket`] decides who stays and who goes, [`table`] lets everybody read and one write, [`diversity`] keeps
//! one network from filling it, [`saved`] carries it over a restart, [`size`] tells how large the world is.

use crate::{contact::Contact, id::Id};

pub mod bucket;
pub mod diversity;
pub mod saved;
pub mod size;
pub mod table;

pub use bucket::{Bucket, BucketAction, Refused, Update, Why};
pub use diversity::Diversity;
pub use table::{BucketWriterHalf, Counts, Liveness, Table};

/// Seconds of the node's monotonic clock since its start.
pub type Seconds = u32;

/// An answer cannot carry more, so a bucket need not hold more.
pub const K_MAX: usize = 64;

/// What buckets keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Peers in a bucket, at most [`K_MAX`].
    pub k: usize,
    /// Peers that wait for a place in a full bucket.
    pub replacements: usize,
    /// Failures in a row after which a peer is known dead.
    pub dead_after: u8,
    /// A peer heard of within this is not pinged for the sake of a newcomer; a saved one was heard of at the start.
    pub fresh_s: Seconds,
    /// A ping or a proof that was asked for and never reported within this is forgotten.
    pub patience_s: Seconds,
    pub diversity: Diversity,
}

/// Whose table it is, and what its buckets keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    pub me: Id,
    pub rules: Rules,
}

/// A peer of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub contact: Contact,
    rtt_ms: u16,
    /// In bytes, since an aligned number would cost two bytes more.
    last_seen_s: [u8; 4],
    fails: u8,
    flags: u8,
}

const RTT_UNKNOWN: u16 = u16::MAX;
const DEAD: u8 = 1;
const SAVED: u8 = 2;

impl Default for Rules {
    fn default() -> Self {
        Rules {
            k: 20,
            replacements: 3,
            dead_after: 2,
            fresh_s: 3_600,
            patience_s: 10,
            diversity: Diversity::default(),
        }
    }
}

impl Entry {
    /// One that was just proven.
    pub(crate) fn proven(contact: Contact, rtt_ms: Option<u16>, now_s: Seconds) -> Entry {
        Entry {
            contact,
            rtt_ms: rtt_ms.map_or(RTT_UNKNOWN, |ms| ms.min(RTT_UNKNOWN - 1)),
            last_seen_s: now_s.to_ne_bytes(),
            fails: 0,
            flags: 0,
        }
    }

    /// One that an earlier life of this node had proven.
    pub(crate) fn saved(contact: Contact, dead: bool, dead_after: u8) -> Entry {
        Entry {
            contact,
            rtt_ms: RTT_UNKNOWN,
            last_seen_s: [0; 4],
            fails: if dead { dead_after } else { 0 },
            flags: if dead { SAVED | DEAD } else { SAVED },
        }
    }

    pub fn id(&self) -> &Id {
        &self.contact.id
    }

    /// The smoothed time that its answers took, if any was measured.
    pub fn rtt_ms(&self) -> Option<u16> {
        (self.rtt_ms != RTT_UNKNOWN).then_some(self.rtt_ms)
    }

    pub fn last_seen_s(&self) -> Seconds {
        Seconds::from_ne_bytes(self.last_seen_s)
    }

    /// Failures since it last answered.
    pub fn fails(&self) -> u8 {
        self.fails
    }

    /// From when on it is worth asking whether it still lives. At once, if it failed when it was asked last.
    pub(crate) fn quiet_at(&self, rules: &Rules) -> Seconds {
        match self.fails {
            0 => self.last_seen_s().saturating_add(rules.fresh_s),
            _ => 0,
        }
    }

    /// It failed too often in a row: left out of replies and asked last.
    pub fn is_dead(&self) -> bool {
        self.flags & DEAD != 0
    }

    /// It was proven by an earlier life of this node and has not answered this one.
    pub fn is_saved(&self) -> bool {
        self.flags & SAVED != 0
    }

    pub(crate) fn handle_answer(&mut self, rtt_ms: Option<u16>, now_s: Seconds) {
        if let Some(measured) = rtt_ms {
            let measured = u32::from(measured.min(RTT_UNKNOWN - 1));
            let smoothed = match self.rtt_ms() {
                Some(known) => (7 * u32::from(known) + measured).div_ceil(8),
                None => measured,
            };
            self.rtt_ms = smoothed as u16;
        }
        self.last_seen_s = self.last_seen_s().max(now_s).to_ne_bytes();
        self.fails = 0;
        self.flags = 0;
    }

    pub(crate) fn handle_failure(&mut self, dead_after: u8) {
        self.fails = self.fails.saturating_add(1);
        if self.fails >= dead_after {
            self.flags |= DEAD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_58_bytes() {
        assert!(size_of::<Entry>() <= 58, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_time_is_smoothed_and_none_is_not_zero() {
        let contact = Contact {
            id: Id([1; 32]),
            addr: std::net::SocketAddr::from(([10, 0, 0, 1], 1)).into(),
        };
        let mut entry = Entry::proven(contact, None, 5);
        assert_eq!(entry.rtt_ms(), None);
        for (measured, smoothed) in [
            (None, None),
            (Some(80), Some(80)),
            (Some(0), Some(70)),
            (None, Some(70)),
            (Some(u16::MAX), Some(8253)),
        ] {
            entry.handle_answer(measured, 6);
            assert_eq!(entry.rtt_ms(), smoothed, "{measured:?}");
        }
        assert_eq!(
            Entry::proven(contact, Some(u16::MAX), 0).rtt_ms(),
            Some(u16::MAX - 1)
        );
        assert_eq!(Entry::proven(contact, Some(3), 0).rtt_ms(), Some(3));
    }
}
