//! One file in two layers: what processes see, and what outlives a loss of power.
//!
//! Invariant: unless a sync failed, `durable` with `unsynced` replayed in order equals `seen`. A sync
//! is therefore that replay, and costs what was written since the last one.

use super::{contents::Image, dice::Dice, faults::DiskFaults};

/// What a disk writes whole or not at all.
pub(super) const SECTOR: u64 = 512;

pub(super) struct FileState {
    seen: Image,
    durable: Image,
    unsynced: Vec<Change>,
    /// A failed sync dropped changes: the layers differ by more than `unsynced`.
    dropped: bool,
    /// Handles and locks of the live incarnation.
    pub(super) open: u32,
    /// A name leads here now.
    pub(super) linked: bool,
}

enum Change {
    Write { offset: u64, data: Box<[u8]> },
    SetLen(u64),
}

impl FileState {
    /// A file that has a name; these contents are durable.
    pub(super) fn named(image: &Image) -> Self {
        FileState {
            seen: image.clone(),
            durable: image.clone(),
            unsynced: Vec::new(),
            dropped: false,
            open: 0,
            linked: true,
        }
    }

    pub(super) fn seen(&self) -> &Image {
        &self.seen
    }

    pub(super) fn durable(&self) -> &Image {
        &self.durable
    }

    pub(super) fn write_at(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.seen.write_at(offset, data);
        self.unsynced.push(Change::Write {
            offset,
            data: data.into(),
        });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len != self.seen.len() {
            self.seen.set_len(len);
            self.unsynced.push(Change::SetLen(len));
        }
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.replay(&mut self.durable);
            if let Change::Write { offset, data } = &change {
                self.durable.share(&self.seen, *offset, data.len());
            }
        }
    }

    /// The kernel tried to write, failed somewhere, and now takes its pages for clean: no later sync writes
    /// what it had not written by then, although every reader still sees it.
    pub(super) fn fail_sync(&mut self, faults: &DiskFaults, dice: &mut Dice) {
        if self.unsynced.is_empty() {
            return;
        }
        self.dropped = true;
        // The worst for whoever syncs again and believes it, every second time.
        match dice.coin() {
            true => self.unsynced.clear(),
            false => self.draw_what_was_written(faults, dice),
        }
    }

    pub(super) fn power_off(&mut self, faults: &DiskFaults, dice: &mut Dice) {
        if self.unsynced.is_empty() && !self.dropped {
            return;
        }
        self.draw_what_was_written(faults, dice);
        self.dropped = false;
        self.seen = self.durable.clone();
    }

    /// Decides for each unsynced change whether it reached the disk. A later one may survive an
    /// earlier one; where both do, the later is on top, as the cache holds one version of a byte.
    fn draw_what_was_written(&mut self, faults: &DiskFaults, dice: &mut Dice) {
        // One draw of luck per file: all surviving, all lost and any mix each come up often.
        let luck_of_4 = dice.below(5);
        for change in self.unsynced.drain(..) {
            if faults.lose_unsynced && dice.below(4) < luck_of_4 {
                change.replay(&mut self.durable);
            } else if faults.torn && dice.below(4) > 0 {
                change.replay_torn(&mut self.durable, faults.torn_bytes, dice);
            }
        }
    }

    /// Flips a bit wherever the byte is held, also on its way to the disk.
    pub(super) fn rot(&mut self, at: u64, bit: u8) -> bool {
        for change in &mut self.unsynced {
            if let Change::Write { offset, data } = change
                && let Some(byte) = at
                    .checked_sub(*offset)
                    .and_then(|within| data.get_mut(within as usize))
            {
                *byte ^= 1 << (bit % 8);
            }
        }
        let seen = self.seen.flip(at, bit);
        let durable = self.durable.flip(at, bit);
        seen || durable
    }
}

impl Change {
    fn replay(&self, image: &mut Image) {
        match self {
            Change::Write { offset, data } => image.write_at(*offset, data),
            Change::SetLen(len) => image.set_len(*len),
        }
    }

    /// Not all of the write: what is before some place, or any of its sectors, for a disk writes them in the order it
    /// likes. Perhaps all of its length. A change of length is never half done.
    fn replay_torn(&self, image: &mut Image, at_any_byte: bool, dice: &mut Dice) {
        let Change::Write { offset, data } = self else {
            return;
        };
        if dice.below(3) == 0 {
            let kept = prefix(*offset, data.len() as u64, at_any_byte, dice);
            image.write_at(*offset, &data[..kept as usize]);
        } else {
            let mut sectors = sectors(*offset, data);
            let lost = dice.below(sectors.len() as u64);
            sectors.remove(lost as usize);
            for (at, bytes) in sectors {
                if dice.coin() {
                    image.write_at(at, bytes);
                }
            }
        }
        if dice.coin() {
            image.grow_to(offset + data.len() as u64);
        }
    }
}

/// How much of a write stays, never all: up to a border of sectors that lies inside it, or none where there is no such
/// border.
fn prefix(offset: u64, len: u64, at_any_byte: bool, dice: &mut Dice) -> u64 {
    if at_any_byte {
        return dice.below(len);
    }
    let first = offset / SECTOR + 1;
    let borders = (offset + len).div_ceil(SECTOR).saturating_sub(first);
    match borders {
        0 => 0,
        _ => (first + dice.below(borders)) * SECTOR - offset,
    }
}

/// The write in pieces that each lie in one sector, and where they begin.
fn sectors(offset: u64, data: &[u8]) -> Vec<(u64, &[u8])> {
    let (mut at, mut rest) = (offset, data);
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let room = (SECTOR - at % SECTOR) as usize;
        let (piece, behind) = rest.split_at(room.min(rest.len()));
        pieces.push((at, piece));
        at += piece.len() as u64;
        rest = behind;
    }
    pieces
}
