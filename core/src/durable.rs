//! Files that are there after a loss of power: how to put one in place, and how to make sure of one that was found.
//!
//! What a process finds at its start is what the system shows, not what the disk has. A name may be one whose directory
//! was never synced, because the process before was killed in between; bytes may be those of a sync that failed, which
//! the system takes for clean and never writes; and so may an end of the file, after a cut whose sync failed. Whoever
//! builds on them makes sure of them first: [`settle`], [`settle_length`] and `sync_dir`.

use std::{io, sync::Arc};

use crate::seam::{Disk, DiskFile, Open};

/// A length is made sure of by a detour of this many bytes.
const DETOUR: u64 = 4096;

/// Bytes that are moved at once.
const PIECE: usize = 64 * 1024;

/// Puts a whole new file in the place of another, or of none: a crash leaves the old one or the new one, never a half.
/// After an error either may be there, and the name may lead to another file than an open handle does.
pub fn replace(disk: &dyn Disk, path: &str, contents: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    let beside = format!("{path}.new");
    let file = disk.open(&beside, Open::Create)?;
    file.set_len(0)?;
    file.write_at(0, contents)?;
    file.sync()?;
    disk.rename(&beside, path)?;
    disk.sync_dir(directory(path))?;
    Ok(file)
}

/// Writes again what is there from `from` up to `to`, and syncs it.
pub fn settle(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    rewrite(file, from, to)?;
    file.sync()
}

/// Writes again what is there from `from` up to `to`: the next sync makes sure of it.
pub fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let (mut at, mut piece) = (from, vec![0; PIECE]);
    while at < to {
        let most = PIECE.min(usize::try_from(to - at).unwrap_or(PIECE));
        match file.read_at(at, &mut piece[..most])? {
            0 => break,
            read => {
                file.write_at(at, &piece[..read])?;
                at += read as u64;
            }
        }
    }
    Ok(())
}

/// All of a file that fits into memory.
pub fn read_file(disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Existing)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    let read = read_full(&*file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads until the buffer is full or the file ends; how much it was.
pub fn read_full(file: &dyn DiskFile, at: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(at + done as u64, &mut buf[done..])? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// Makes sure of the file's length as it is found, not of its bytes: what an interrupted [`cut_again`] left behind the
/// end is shown as zeros and may be what was cut off.
pub fn settle_length(file: &dyn DiskFile) -> io::Result<()> {
    match cut_again(file, file.len()?) {
        // A full disk is no reason not to read what is there.
        Err(error) if is_full(&error) => Ok(()),
        settled => settled,
    }
}

/// Cuts the file off at `len` after a cut that failed: the system may show that length already, and the disk have
/// another. A loss of power meanwhile leaves zeros behind the end. Needs a little room.
pub fn cut_again(file: &dyn DiskFile, len: u64) -> io::Result<()> {
    // There and back: what the system shows already is no change to it, and would not be written.
    file.set_len(len + DETOUR)?;
    file.set_len(len)?;
    file.sync()
}

/// There is no room, or none that this user may have.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Where a path lies; the root is empty.
pub fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}
