//! Files of the directory, read with a bound: a file that somebody made huge costs an error, not memory.

use std::{io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, Open};

use super::fault::{Fault, OfflineError};

/// A file of records is read in pieces of this size.
pub const PIECE: usize = 256 * 1024;
/// Many times what the keys of a log need.
pub const MAX_KEYS: u64 = 64 * 1024;

/// A directory on a disk.
pub struct Place<'a> {
    pub disk: &'a dyn Disk,
    pub dir: &'a str,
}

impl Place<'_> {
    /// All of a file; `most` bytes are allowed.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, OfflineError> {
        let mut pieces = self.pieces(name)?;
        let bytes = pieces.len();
        if bytes > most {
            return Err(OfflineError::new(name, Fault::TooLong { bytes, most }));
        }
        pieces.next(bytes as usize)
    }

    pub fn pieces(&self, name: &str) -> Result<Pieces, OfflineError> {
        let failed = |error| OfflineError::new(name, fault_of(error));
        let path = match self.dir {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        };
        let file = self.disk.open(&path, Open::Existing).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        Ok(Pieces {
            name: name.to_owned(),
            file,
            at: 0,
            len,
        })
    }
}

/// A file read front to back, up to the length it had when it was opened.
pub struct Pieces {
    name: String,
    file: Arc<dyn DiskFile>,
    at: u64,
    len: u64,
}

impl Pieces {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn done(&self) -> u64 {
        self.at
    }

    /// The next `size` bytes, fewer only at the end.
    pub fn next(&mut self, size: usize) -> Result<Vec<u8>, OfflineError> {
        let size = (self.len - self.at).min(size as u64) as usize;
        let mut piece = vec![0; size];
        let mut filled = 0;
        while filled < size {
            let read = self.file.read_at(self.at, &mut piece[filled..]);
            let read = read.map_err(|error| OfflineError::new(&self.name, fault_of(error)))?;
            if read == 0 {
                break;
            }
            filled += read;
            self.at += read as u64;
        }
        piece.truncate(filled);
        Ok(piece)
    }
}

fn fault_of(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound => Fault::Missing,
        _ => Fault::Unreadable(error),
    }
}
