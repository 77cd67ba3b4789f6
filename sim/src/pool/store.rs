//! The pool's file: append and sync, one record at a time; a torn tail is cut off.
//!
//! After a failed write or sync nothing is known about the tail, so it is cut back to the last record
//! that is known to be durable before anything else is written.

use std::{io, sync::Arc};

use ron_core::{
    Env, Lost,
    journal::{Batch, HEADER_LEN, Journal},
    lock::{LockDecl, RankedMutex},
    seam::{Disk, Open},
};

use super::{
    LOG_FILE,
    log::{Items, Record},
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
    journal: Option<Journal<Items>>,
    /// Everything before this is durable.
    good_len: u64,
    /// The number of the next record.
    next: u64,
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
        let _ = env.disk(move |disk| opening.state.lock().ready(disk)).await;
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
        self.ready(disk)?;
        let mut batch = Batch::<Items>::new(self.next);
        batch.push(&record, &[]).map_err(io::Error::other)?;
        let journal = self.journal.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.suspect = true;
        journal.write(self.good_len, batch.bytes())?;
        journal.sync()?;
        self.good_len += batch.bytes().len() as u64;
        self.next = batch.next_index();
        self.suspect = false;
        Ok(())
    }

    /// Makes the file open, with nothing behind `good_len`.
    fn ready(&mut self, disk: &Arc<dyn Disk>) -> io::Result<()> {
        // Kept only once its tail is cut: if that fails, what was settled is lost like the first time.
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => self.open(disk)?,
        };
        if self.suspect {
            ron_core::sometimes!("pool.tail_suspect");
            journal.cut(self.good_len)?;
            self.suspect = false;
        }
        self.journal = Some(journal);
        Ok(())
    }

    fn open(&mut self, disk: &Arc<dyn Disk>) -> io::Result<Journal<Items>> {
        let journal = Journal::<Items>::open(&**disk, LOG_FILE, Open::Create)?;
        disk.sync_dir("")?;
        if journal.id()?.is_err() && journal.len()? <= HEADER_LEN as u64 {
            journal.begin([0; 16])?;
        }
        let scan = journal.scan(|_| {})?;
        (self.good_len, self.next) = (scan.valid_len, scan.next);
        let len = journal.len()?;
        // If the sync of the last record failed, and the process was killed before it could cut it off, the
        // system shows what the disk never got, and would never write it.
        journal.settle(scan.last_batch, scan.valid_len)?;
        if self.good_len < len {
            ron_core::sometimes!("pool.tail_cut");
        }
        self.suspect = true;
        Ok(journal)
    }
}
