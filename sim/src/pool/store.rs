//! The pool's file: append and sync, one record at a time; a torn tail is cut off.
//!
//! After a failed write or sync nothing is known about the tail, so it is cut back to the last record
//! that is known to be durable before anything else is written.

use std::{io, sync::Arc};

use ron_core::{
    Env, Lost,
    lock::{LockDecl, RankedMutex},
    seam::{Disk, DiskFile, Open},
};

use super::{
    LOG_FILE,
    log::{self, Record},
};

pub const STORE_LOCK: LockDecl = LockDecl {
    name: "store",
    rank: 1,
    guards: "the items file and how much of it is durable; taken on the disk pool only",
};

#[derive(Clone)]
pub struct Store {
    state: Arc<RankedMutex<State>>,
}

#[derive(Default)]
struct State {
    file: Option<Arc<dyn DiskFile>>,
    /// Everything before this is durable.
    good_len: u64,
    /// What is behind `good_len` is unknown.
    suspect: bool,
}

impl Store {
    /// Opens the file and repairs its tail; on an error the first write tries again.
    pub async fn open(env: &Env) -> Store {
        let store = Store {
            state: Arc::new(RankedMutex::new(STORE_LOCK, State::default())),
        };
        let opening = store.clone();
        let _ = env
            .disk(move |disk| opening.state.lock().ready(disk).map(|_| ()))
            .await;
        store
    }

    /// True once the record is durable; `Err` means it is not there.
    pub async fn append(&self, env: &Env, record: Record) -> Result<io::Result<()>, Lost> {
        let state = self.state.clone();
        env.disk(move |disk| state.lock().append(disk, record))
            .await
    }
}

impl State {
    fn append(&mut self, disk: &Arc<dyn Disk>, record: Record) -> io::Result<()> {
        let file = self.ready(disk)?;
        self.suspect = true;
        file.write_at(self.good_len, &record.encode())?;
        file.sync()?;
        self.good_len += log::RECORD as u64;
        self.suspect = false;
        Ok(())
    }

    /// The open file, with nothing behind `good_len`.
    fn ready(&mut self, disk: &Arc<dyn Disk>) -> io::Result<Arc<dyn DiskFile>> {
        let file = match self.file.clone() {
            Some(file) => file,
            None => self.open(disk)?,
        };
        if self.suspect {
            ron_core::sometimes!("pool.tail_suspect");
            file.set_len(self.good_len)?;
            file.sync()?;
            self.suspect = false;
        }
        // Only now: if this sync fails, what was written again below is lost like the first time.
        self.file = Some(file.clone());
        Ok(file)
    }

    fn open(&mut self, disk: &Arc<dyn Disk>) -> io::Result<Arc<dyn DiskFile>> {
        let file = disk.open(LOG_FILE, Open::Create)?;
        disk.sync_dir("")?;
        let mut bytes = vec![0; file.len()? as usize];
        let mut at = 0;
        while at < bytes.len() {
            match file.read_at(at as u64, &mut bytes[at..])? {
                0 => break,
                n => at += n,
            }
        }
        self.good_len = log::read(&bytes).1 as u64;
        // If the sync of the last record failed, and the process was killed before it could cut it off, the
        // system shows what the disk never got, and would never write it.
        if let Some(last) = self.good_len.checked_sub(log::RECORD as u64) {
            file.write_at(last, &bytes[last as usize..self.good_len as usize])?;
        }
        if self.good_len < bytes.len() as u64 {
            ron_core::sometimes!("pool.tail_cut");
        }
        self.suspect = true;
        Ok(file)
    }
}
