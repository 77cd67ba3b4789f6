//! An embedded database (redb) on the seam's disk: transactions that a crash leaves whole or absent.
//!
//! Always: a transaction begins and ends inside one job of the disk pool; what [`Db::write`] reported as
//! done is durable; after a failed read, write or sync the open database is given up, never written
//! again, and the next call opens the file anew. Nothing relies on a clean close, so dropping a [`Db`]
//! anywhere, in whatever incarnation, touches no disk.
//!
//! Opening costs no more for a larger file. One of up to [`VERIFIED_BYTES`] is read and verified whole; a larger one
//! carries redb's allocator state in every commit, so that redb reads that and no page besides, and damage in it is
//! found where it is read. What an earlier process may have left unsynced is on account ([`unsynced`]).

mod caught;
mod file;
mod unsynced;

use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::{Builder, Database, ReadableDatabase, StorageError};

pub use redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition, TableError,
    WriteTransaction,
};

use crate::{
    Env, durable,
    lock::{LEAF, LockDecl, RankedMutex},
    seam::{Disk, DiskLock},
};

use self::{
    caught::{Panicked, caught},
    file::{Guarded, Known, Memory},
};

/// A handle; clones share one database.
#[derive(Clone)]
pub struct Db {
    env: Env,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DbError {
    #[error("another process has the database open")]
    Locked,
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// A write that ends so may have happened or not; the next call finds out.
    #[error("the database cannot be read or written: {0}")]
    Io(String),
}

impl Db {
    /// Opens the database at this path, creating it if there is none; its directory must exist. The file
    /// `<path>.lock` is locked as long as the handle lives.
    pub async fn open(env: &Env, path: &str) -> Result<Db, DbError> {
        let path = path.to_owned();
        let opened = env.disk(move |disk| {
            let lock = disk.lock(&format!("{path}.lock")).map_err(lock_error)?;
            let database = open_file(disk, &path)?;
            Ok::<_, DbError>(Shared::new(At::File { path, _lock: lock }, database))
        });
        Ok(Db {
            env: env.clone(),
            shared: Arc::new(opened.await.map_err(|_| lost())??),
        })
    }

    /// Nothing survives the last handle.
    pub fn memory(env: &Env) -> Result<Db, DbError> {
        let database = Open::on(Memory::holding(Db::template()?))?;
        Ok(Db {
            env: env.clone(),
            shared: Arc::new(Shared::new(At::Memory, database)),
        })
    }

    /// Everything `job` sees is of one moment. It must not let a table outlive the transaction.
    pub async fn read<T, E>(
        &self,
        job: impl FnOnce(&ReadTransaction) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.run(move |open| {
            let txn = open.database()?.begin_read().map_err(DbError::from)?;
            job(&txn)
        })
        .await
    }

    /// All that `job` did, durably, or nothing: nothing if it answers an error.
    pub async fn write<T, E>(
        &self,
        job: impl FnOnce(&WriteTransaction) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.run(move |open| {
            let unfinished = GiveUp(open);
            let mut txn = open.database()?.begin_write().map_err(DbError::from)?;
            // What was committed so and does not verify is damage, never a reason to fall back.
            txn.set_two_phase_commit(true);
            match job(&txn) {
                Ok(done) => {
                    // Small files are read whole anyway when they are opened.
                    txn.set_quick_repair(open.known.len() > VERIFIED_BYTES);
                    txn.commit().map_err(DbError::from)?;
                    unfinished.disarm();
                    Ok(done)
                }
                Err(refused) => {
                    if txn.abort().is_ok() {
                        unfinished.disarm();
                    }
                    Err(refused)
                }
            }
        })
        .await
    }

    /// The bytes of an empty database. A file with these contents opens at once: for a world that starts
    /// many of them.
    pub fn template() -> Result<&'static [u8], DbError> {
        static TEMPLATE: OnceLock<Result<Vec<u8>, DbError>> = OnceLock::new();
        let made = TEMPLATE.get_or_init(|| {
            let memory = Memory::default();
            drop(builder().create_with_backend(memory.clone())?);
            Ok(memory.contents())
        });
        made.as_deref().map_err(Clone::clone)
    }

    async fn run<T, E>(
        &self,
        job: impl FnOnce(&Open) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let shared = self.shared.clone();
        let At::File { .. } = self.shared.at else {
            return shared.work(None, job);
        };
        let answer = self.env.disk(move |disk| shared.work(Some(disk), job));
        answer.await.map_err(|_| E::from(lost()))?
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shared.at {
            At::File { path, .. } => write!(f, "Db({path})"),
            At::Memory => f.write_str("Db(in memory)"),
        }
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for DbError {
            fn from(error: $error) -> DbError {
                of_redb(error.into())
            }
        }
    )*};
}
from_redb!(
    StorageError,
    TableError,
    redb::TransactionError,
    redb::CommitError,
    redb::DatabaseError
);

/// Memory for pages already read; what a service keeps in here is small.
const CACHE_BYTES: usize = 16 << 20;

/// A file up to this length is verified whole when it is opened.
pub const VERIFIED_BYTES: u64 = 32 << 20;

const OPEN_LOCK: LockDecl = LockDecl {
    name: "database",
    rank: LEAF - 1,
    guards: "which opening of the file is in use",
};

struct Shared {
    at: At,
    open: RankedMutex<Option<Arc<Open>>>,
    /// Set for good once redb panicked over the file: opening it again would not mend it.
    damaged: OnceLock<String>,
}

enum At {
    Memory,
    File {
        path: String,
        _lock: Box<dyn DiskLock>,
    },
}

impl Shared {
    fn new(at: At, database: Open) -> Shared {
        Shared {
            at,
            open: RankedMutex::new(OPEN_LOCK, Some(Arc::new(database))),
            damaged: OnceLock::new(),
        }
    }

    fn work<T, E: From<DbError>>(
        &self,
        disk: Option<&Arc<dyn Disk>>,
        job: impl FnOnce(&Open) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(said) = self.damaged.get() {
            return Err(DbError::Damaged(said.clone()).into());
        }
        let open = self.database(disk)?;
        caught(|| job(&open)).unwrap_or_else(|panicked| {
            open.panicked.store(true, Ordering::Release);
            open.known.end();
            Err(match panicked {
                Panicked::Redb(said) => {
                    DbError::Damaged(self.damaged.get_or_init(|| said).clone()).into()
                }
                Panicked::Caller => lost().into(),
            })
        })
    }

    /// The database as it is open now, opened anew if the last one was given up.
    fn database(&self, disk: Option<&Arc<dyn Disk>>) -> Result<Arc<Open>, DbError> {
        let mut open = self.open.lock();
        let usable = |open: &&Arc<Open>| !open.known.ended();
        if let Some(database) = open.as_ref().filter(usable) {
            return Ok(database.clone());
        }
        *open = None;
        let (At::File { path, .. }, Some(disk)) = (&self.at, disk) else {
            return Err(DbError::Io("the memory behind it is gone".to_owned()));
        };
        Ok(open.insert(Arc::new(open_file(disk, path)?)).clone())
    }
}

/// One opening of the file. Its end comes without a last write, as a crash would: what was committed is
/// whole anyway, and a late write could hit a file that somebody else has opened since.
struct Open {
    /// There until it is dropped.
    database: Option<Database>,
    known: Arc<Known>,
    panicked: AtomicBool,
}

impl Open {
    fn on(storage: impl redb::StorageBackend) -> Result<Open, DbError> {
        let known = Arc::new(Known::default());
        let guarded = Guarded::new(storage, known.clone());
        let opened = caught(|| {
            let repaired = Arc::new(AtomicBool::new(false));
            let mut builder = builder();
            let tell = repaired.clone();
            builder.set_repair_callback(move |_| tell.store(true, Ordering::Release));
            let database = builder.create_with_backend(guarded)?;
            // It was read whole, for want of a commit with the allocator state: that is not to happen again.
            if repaired.load(Ordering::Acquire) && known.len() > VERIFIED_BYTES {
                let mut txn = database.begin_write()?;
                txn.set_quick_repair(true);
                txn.commit()?;
            }
            Ok::<_, DbError>(database)
        });
        let database = opened.unwrap_or_else(|panicked| match panicked {
            Panicked::Redb(said) => Err(DbError::Damaged(said)),
            Panicked::Caller => Err(lost()),
        })?;
        Ok(Open {
            database: Some(database),
            known,
            panicked: AtomicBool::new(false),
        })
    }

    fn database(&self) -> Result<&Database, DbError> {
        self.database.as_ref().ok_or_else(lost)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.known.end();
        let Some(mut database) = self.database.take() else {
            return;
        };
        if self.panicked.load(Ordering::Acquire) || std::thread::panicking() {
            // It may panic again when it closes: better a little memory than the process.
            std::mem::forget(database);
            return;
        }
        // It looks at the file, which fails from now on; after a failure closing does nothing.
        let _ = database.check_integrity();
    }
}

/// A transaction that neither ends nor is taken back gives up its database.
struct GiveUp<'a>(&'a Open);

impl GiveUp<'_> {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.0.known.end();
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn open_file(disk: &Arc<dyn Disk>, path: &str) -> Result<Open, DbError> {
    let there = disk.identity(path).map_err(io_error)?.is_some();
    if !there {
        durable::replace(&**disk, path, Db::template()?).map_err(io_error)?;
    }
    let stored = file::open(disk, path).map_err(io_error)?;
    // A new file is never seen before it is whole; redb would make a database of an empty one.
    if stored.is_empty().map_err(io_error)? {
        return Err(DbError::Damaged("the file is empty".to_owned()));
    }
    Open::on(stored)
}

fn lock_error(error: io::Error) -> DbError {
    match error.kind() {
        io::ErrorKind::WouldBlock => DbError::Locked,
        _ => io_error(error),
    }
}

fn io_error(error: io::Error) -> DbError {
    DbError::Io(error.to_string())
}

fn lost() -> DbError {
    DbError::Io("the disk job ended without a result".to_owned())
}

fn of_redb(error: redb::Error) -> DbError {
    match error {
        // Not a database at all, or shorter than it says.
        redb::Error::Io(error)
            if [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof]
                .contains(&error.kind()) =>
        {
            DbError::Damaged(error.to_string())
        }
        redb::Error::Io(error) => io_error(error),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            DbError::Io("given up after an earlier failure".to_owned())
        }
        redb::Error::DatabaseAlreadyOpen => DbError::Locked,
        other => DbError::Damaged(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
