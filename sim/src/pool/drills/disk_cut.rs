//! A file that gets shorter, piece by piece.
//!
//! A cut whose sync fails is one that the system shows and the disk may not have. Whoever begins anew finds it, makes
//! sure of it, and tells it as done; now and then nothing is cut after that, since a later sync would make up for it.
//! What lies behind the end is told apart by its bytes: making sure may leave zeros there, never what was cut off.

use std::io;

use ron_core::{
    durable,
    seam::{DiskFile, Open},
};

use super::disk::{Drilled, home, read_all};

const CUT: &str = "drills/cut";
const PIECE: u64 = 64;
/// More than one run takes off.
const PIECES: u64 = 200;
const FILL: u8 = 0xc7;

impl Drilled {
    /// Takes one piece off. `last` is how many were taken off before; at first it is found.
    pub async fn cut(&self, last: Option<u64>) -> io::Result<u64> {
        let Some(last) = last else {
            let found = self.on_disk(|disk| {
                home(disk)?;
                if disk.identity(CUT)?.is_none() {
                    durable::replace(&**disk, CUT, &vec![FILL; (PIECE * PIECES) as usize])?;
                }
                // Who made it may have been killed before its name was safe.
                disk.sync_dir(durable::directory(CUT))?;
                let file = disk.open(CUT, Open::Existing)?;
                let found = taken_off(&*file)?;
                // Not at the length that is shown, which an earlier attempt may have left too long: zeros behind the end
                // are not sure to be zeros.
                durable::cut_again(&*file, (PIECES - found) * PIECE)?;
                Ok((found, taken_off(&*file)?))
            });
            let (found, settled) = found.await?;
            if found != settled {
                self.broken("cut_again: it changed what was there");
            }
            self.found(CUT, found);
            self.wrote(CUT, found);
            return Ok(found);
        };
        let next = (last + 1).min(PIECES);
        let cut = self.on_disk(move |disk| {
            let file = disk.open(CUT, Open::Existing)?;
            file.set_len((PIECES - next) * PIECE)?;
            file.sync()
        });
        cut.await?;
        self.wrote(CUT, next);
        Ok(next)
    }
}

fn taken_off(file: &dyn DiskFile) -> io::Result<u64> {
    let bytes = read_all(file)?;
    let filled = bytes.iter().take_while(|byte| **byte == FILL).count() as u64;
    Ok(PIECES - filled / PIECE)
}
