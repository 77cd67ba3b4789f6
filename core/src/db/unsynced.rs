//! Which parts of the file were written since its last good sync: told to a small file beside it, before they are written.
//!
//! ```text
//! "RONUNSYN" | version u16 | identity of the file 16 | one bit per block of 64 KiB, the first block in the lowest bit
//! ```
//! The account is never synced, and need not be: it says what the *system* may show although the disk does not have it,
//! and a loss of power takes both away. A process that is killed leaves both, and the next one makes sure of those parts
//! only, however large the file is. A bit too many costs a rewrite and no more, so a torn account does no harm.

use std::{io, ops::Range, sync::Arc};

use crate::{
    durable,
    seam::{Disk, DiskFile, FileId, Open},
};

pub(super) const BLOCK: u64 = 64 * 1024;

const VERSION: u16 = 1;
const HEADER: usize = 8 + 2 + 16;
/// The bits of 2 GiB, there from the start: keeping account needs no room on a disk that has become full.
const BEGUN: usize = 4096 - HEADER;

pub(super) struct Unsynced {
    /// None on a disk without room for it: the next opening makes sure of everything.
    beside: Option<Arc<dyn DiskFile>>,
    bits: Vec<u8>,
    /// Outside of these bytes no bit is set.
    touched: Range<usize>,
}

impl Unsynced {
    /// What an earlier opening of this very file left; none if nobody kept account of it.
    pub fn found(disk: &dyn Disk, path: &str, id: FileId) -> io::Result<Option<Unsynced>> {
        let beside = match disk.open(&beside(path), Open::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let most = usize::try_from(beside.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; most];
        let read = durable::read_full(&*beside, 0, &mut bytes)?;
        let Some(bits) = bytes[..read].strip_prefix(&header(id)[..]) else {
            return Ok(None);
        };
        let set = |byte: &u8| *byte != 0;
        let first = bits.iter().position(set).unwrap_or(0);
        let end = bits.iter().rposition(set).map_or(first, |last| last + 1);
        Ok(Some(Unsynced {
            beside: Some(beside),
            bits: bits.to_vec(),
            touched: first..end,
        }))
    }

    /// From here on there is an account; the file must be on the disk as it is shown.
    pub fn begin(disk: &dyn Disk, path: &str, id: FileId) -> io::Result<Unsynced> {
        let (mut begun, bits) = (header(id), vec![0; BEGUN]);
        begun.extend(&bits);
        let beside = match durable::replace(disk, &beside(path), &begun) {
            Err(error) if durable::is_full(&error) => None,
            written => Some(written?),
        };
        Ok(Unsynced {
            beside,
            bits,
            touched: 0..0,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// Where the file may not be on the disk as it is shown.
    pub fn parts(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let blocks = self.touched.start * 8..self.touched.end * 8;
        let unsynced = blocks.filter(|block| self.bits[block / 8] & (1 << (block % 8)) != 0);
        unsynced.map(|block| block as u64 * BLOCK..(block as u64 + 1) * BLOCK)
    }

    /// These bytes are about to be written.
    pub fn mark(&mut self, from: u64, len: u64) -> io::Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        let block = |at: u64| usize::try_from(at / BLOCK).map_err(io::Error::other);
        let (first, last) = (block(from)?, block(from + len.saturating_sub(1))?);
        let bytes = first / 8..last / 8 + 1;
        self.bits.resize(self.bits.len().max(bytes.end), 0);
        let mut news = false;
        for block in first..=last {
            let (byte, bit) = (&mut self.bits[block / 8], 1 << (block % 8));
            news |= *byte & bit == 0;
            *byte |= bit;
        }
        if news {
            self.touched = match self.touched.is_empty() {
                true => bytes.clone(),
                false => self.touched.start.min(bytes.start)..self.touched.end.max(bytes.end),
            };
            beside.write_at((HEADER + bytes.start) as u64, &self.bits[bytes])?;
        }
        Ok(())
    }

    /// All that was written is on the disk.
    pub fn clear(&mut self) -> io::Result<()> {
        let touched = std::mem::take(&mut self.touched);
        self.bits[touched.clone()].fill(0);
        match &self.beside {
            Some(beside) if !touched.is_empty() => {
                beside.write_at((HEADER + touched.start) as u64, &self.bits[touched])
            }
            _ => Ok(()),
        }
    }
}

fn beside(path: &str) -> String {
    format!("{path}.unsynced")
}

fn header(id: FileId) -> Vec<u8> {
    let mut header = b"RONUNSYN".to_vec();
    header.extend(VERSION.to_be_bytes());
    header.extend(id.0.to_be_bytes());
    header.extend(id.1.to_be_bytes());
    header
}
