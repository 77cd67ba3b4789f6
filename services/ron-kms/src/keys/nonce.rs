//! Nonces that never repeat: a counter per `kid#vN`, handed out of ranges that are durable before use.
//!
//! The mark is the end of what was ever reserved. It is written to the store and to the log before a nonce
//! below it is used, so a crash skips nonces and never repeats one. A store whose mark is behind the log's,
//! as after restoring a backup, seals nothing until it is raised to the log's.
//!
//! Order of calls: [`open`](NonceTracker::open), then [`take`](NonceTracker::take); where that asks for a
//! range, write [`reserve`](NonceTracker::reserve)'s mark to store and log, then
//! [`reserved`](NonceTracker::reserved).

/// 12 bytes: four of zero, then the counter, big-endian.
pub const NONCE_LEN: usize = 12;
/// After so many a key must be rotated: far below where the bounds of AES-GCM begin to hurt.
pub const MAX_NONCES: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NonceError {
    #[error("no nonce is reserved: reserve a range first")]
    NeedsReserve,
    #[error(
        "the store's nonce mark {stored} is behind the log's {logged}, as after restoring a backup: rotate the key to seal again"
    )]
    BehindLog { stored: u64, logged: u64 },
    #[error("the key version has used its {MAX_NONCES} nonces: rotate it")]
    Exhausted,
    #[error("a mark of {got} was confirmed, but {wanted:?} was asked for")]
    NotAsked { wanted: Option<u64>, got: u64 },
}

/// The tracker of one `kid#vN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonceTracker {
    /// The next to hand out; never below what an earlier life may have used.
    next: u64,
    /// Handed out below this only: store and log both say so.
    durable: u64,
    /// Asked to be made durable, not yet confirmed.
    asked: Option<u64>,
    logged: u64,
}

impl NonceTracker {
    /// After a start: the marks as store and log have them, 0 where there is none. What lies below either
    /// may have been used, so nothing of it is handed out again.
    pub fn open(stored: u64, logged: u64) -> NonceTracker {
        NonceTracker {
            next: stored,
            durable: stored,
            asked: None,
            logged,
        }
    }

    /// The next nonce. It is spent even if its sealing fails.
    pub fn take(&mut self) -> Result<Nonce, NonceError> {
        self.check_log()?;
        if self.next >= MAX_NONCES {
            return Err(NonceError::Exhausted);
        }
        if self.next >= self.durable {
            return Err(NonceError::NeedsReserve);
        }
        self.next += 1;
        Ok(Nonce(self.next - 1))
    }

    /// How many can be taken before the next reservation: ask for more before it is 0.
    pub fn left(&self) -> u64 {
        if self.check_log().is_ok() {
            self.durable - self.next
        } else {
            0
        }
    }

    /// The mark to write to store and log, `count` beyond the last; the same again until it is confirmed.
    pub fn reserve(&mut self, count: u32) -> Result<u64, NonceError> {
        self.check_log()?;
        if let Some(asked) = self.asked {
            return Ok(asked);
        }
        if self.durable >= MAX_NONCES {
            return Err(NonceError::Exhausted);
        }
        let mark = (self.durable + u64::from(count.max(1))).min(MAX_NONCES);
        self.asked = Some(mark);
        Ok(mark)
    }

    /// Store and log both hold this mark durably.
    pub fn reserved(&mut self, mark: u64) -> Result<(), NonceError> {
        if self.asked != Some(mark) {
            return Err(NonceError::NotAsked {
                wanted: self.asked,
                got: mark,
            });
        }
        self.asked = None;
        self.durable = mark;
        self.logged = self.logged.max(mark);
        Ok(())
    }

    /// The write of the asked mark failed or was given up. It may have reached either side, which only
    /// skips nonces at the next start.
    pub fn reserve_failed(&mut self) {
        self.asked = None;
    }

    /// The log turned out to hold this mark, as when its tail was read after the store.
    pub fn observe_log(&mut self, logged: u64) {
        self.logged = self.logged.max(logged);
    }

    /// The mark the store must durably hold before [`raised`](Self::raised), if it is behind its log.
    pub fn behind(&self) -> Option<u64> {
        (self.durable < self.logged).then_some(self.logged)
    }

    /// The store now durably holds the log's mark: everything below it counts as used.
    pub fn raised(&mut self) {
        if let Some(mark) = self.behind() {
            self.next = mark;
            self.durable = mark;
            self.asked = None;
        }
    }

    fn check_log(&self) -> Result<(), NonceError> {
        match self.behind() {
            None => Ok(()),
            Some(logged) => Err(NonceError::BehindLog {
                stored: self.durable,
                logged,
            }),
        }
    }
}

impl Nonce {
    pub fn to_bytes(self) -> [u8; NONCE_LEN] {
        let mut bytes = [0; NONCE_LEN];
        bytes[4..].copy_from_slice(&self.0.to_be_bytes());
        bytes
    }

    /// Its place in the count, for a trace.
    pub fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
