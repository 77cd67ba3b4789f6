//! A journal: an append-only file of records, and what a crash or the disk may have made of it.
//!
//! [`frames`] is pure: how records are framed and found again. [`Journal`] is the file. It blocks, and is used inside
//! `Env::disk`. Whoever writes says where, writes one batch at a time, and syncs it before the next; after a failure he
//! cuts back to the last batch that was synced, or puts a whole new file in the place of the old one.

mod frames;

use std::{io, marker::PhantomData, sync::Arc};

pub use self::frames::{
    Batch, Broken, CHECK, End, Format, Frame, FrameError, HEADER_LEN, HeaderError, JournalId,
    Refused, Rot, Scan, Scanner, decode_header, encode_header, frame_length, scan,
};
use crate::{
    durable,
    seam::{Disk, DiskFile, Open},
};

/// How much is read at once.
const PIECE: usize = 256 * 1024;

/// An open journal.
pub struct Journal<F> {
    file: Arc<dyn DiskFile>,
    path: String,
    /// The sync of the last cut failed: the system shows the cut, the disk may not have it.
    cut_in_doubt: bool,
    format: PhantomData<F>,
}

impl<F: Format> Journal<F> {
    pub fn open(disk: &dyn Disk, path: &str, how: Open) -> io::Result<Journal<F>> {
        Ok(Journal::on(disk.open(path, how)?, path))
    }

    /// Puts a whole new file in the place of the journal, as [`durable::replace`] does: how it is made shorter.
    pub fn replace(disk: &dyn Disk, path: &str, whole: &[u8]) -> io::Result<Journal<F>> {
        Ok(Journal::on(durable::replace(disk, path, whole)?, path))
    }

    fn on(file: Arc<dyn DiskFile>, path: &str) -> Journal<F> {
        Journal {
            file,
            path: path.to_owned(),
            cut_in_doubt: false,
            format: PhantomData,
        }
    }

    /// What its header says.
    pub fn id(&self) -> io::Result<Result<JournalId, HeaderError>> {
        let mut header = [0; HEADER_LEN];
        let read = durable::read_full(&*self.file, 0, &mut header)?;
        Ok(decode_header::<F>(&header[..read]))
    }

    /// A file that holds no record becomes an empty journal.
    pub fn begin(&self, id: JournalId) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_at(0, &encode_header::<F>(id))?;
        self.file.sync()
    }

    /// Hands every valid record behind the header to `visit`.
    pub fn scan(&self, mut visit: impl FnMut(Frame<'_, F::Record>)) -> io::Result<Scan> {
        let mut scanner = Scanner::<F>::new();
        let (mut at, mut piece) = (HEADER_LEN as u64, vec![0; PIECE]);
        loop {
            match self.file.read_at(at, &mut piece)? {
                0 => return Ok(scanner.finish(visit)),
                read => {
                    scanner.feed(&piece[..read], &mut visit);
                    at += read as u64;
                }
            }
        }
    }

    /// Makes sure of the end of the file and of the last batch, which lies between these two: if its sync failed, and
    /// the process was killed before it could cut the batch off, or in the cut, the system shows what the disk never got.
    pub fn settle(&self, from: u64, to: u64) -> io::Result<()> {
        durable::settle_length(&*self.file)?;
        durable::settle(&*self.file, from, to)
    }

    /// One batch: durable once it is synced.
    pub fn write(&self, at: u64, batch: &[u8]) -> io::Result<()> {
        self.file.write_at(at, batch)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Cuts off what a failed write may have left.
    pub fn cut(&mut self, len: u64) -> io::Result<()> {
        let cut = match self.cut_in_doubt {
            true => durable::cut_again(&*self.file, len),
            false => self.file.set_len(len).and_then(|()| self.file.sync()),
        };
        self.cut_in_doubt = cut.is_err();
        cut
    }

    pub fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    pub fn is_empty(&self) -> io::Result<bool> {
        self.file.is_empty()
    }

    /// Whether the name still leads to the file that was opened.
    pub fn is_current(&self, disk: &dyn Disk) -> io::Result<bool> {
        Ok(disk.identity(&self.path)? == Some(self.file.identity()?))
    }
}
