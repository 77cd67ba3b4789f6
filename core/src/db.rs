//! An embedded database (redb) on the seam's disk: transactions that a crash leaves whole or absent.
//!
//! Always: a transaction begins and ends inside one job of the disk pool; what [`Db::write`] reported as
//! done is durable; after a failed read, write or sync the open database is given up, never written
//! again, and the next call opens the file anew. Nothing relies on a clean close, so dropping a [`Db`]
//! anywhere, in whatever incarnation, touches no disk.

mod file;

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
    Env,
    lock::{LEAF, LockDecl, RankedMutex},
    seam::{Disk, DiskLock},
};

use self::file::{Guarded, Memory};

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
            Ok::<_, DbError>(Shared {
                at: At::File { path, _lock: lock },
                open: RankedMutex::new(OPEN_LOCK, Some(Arc::new(database))),
            })
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
            shared: Arc::new(Shared {
                at: At::Memory,
                open: RankedMutex::new(OPEN_LOCK, Some(Arc::new(database))),
            }),
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
            return job(&*shared.database(None)?);
        };
        let answer = self
            .env
            .disk(move |disk| job(&*shared.database(Some(disk))?));
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

const OPEN_LOCK: LockDecl = LockDecl {
    name: "database",
    rank: LEAF,
    guards: "which opening of the file is in use",
};

struct Shared {
    at: At,
    open: RankedMutex<Option<Arc<Open>>>,
}

enum At {
    Memory,
    File {
        path: String,
        _lock: Box<dyn DiskLock>,
    },
}

impl Shared {
    /// The database as it is open now, opened anew if the last one was given up.
    fn database(&self, disk: Option<&Arc<dyn Disk>>) -> Result<Arc<Open>, DbError> {
        let mut open = self.open.lock();
        let usable = |open: &&Arc<Open>| !open.given_up();
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
/// whole anyway, and a late write could hit a file that somebody else has opened since. Opening it again
/// therefore reads all of it and verifies the checksums.
struct Open {
    /// There until it is dropped.
    database: Option<Database>,
    ended: Arc<AtomicBool>,
    panicked: AtomicBool,
}

impl Open {
    fn on(storage: impl redb::StorageBackend) -> Result<Open, DbError> {
        let ended = Arc::new(AtomicBool::new(false));
        let guarded = Guarded::new(storage, ended.clone());
        Ok(Open {
            database: Some(builder().create_with_backend(guarded)?),
            ended,
            panicked: AtomicBool::new(false),
        })
    }

    fn database(&self) -> Result<&Database, DbError> {
        self.database.as_ref().ok_or_else(lost)
    }

    fn given_up(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
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

/// A transaction that neither ends nor is taken back, by an error or a panic, gives up its database.
struct GiveUp<'a>(&'a Open);

impl GiveUp<'_> {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        if std::thread::panicking() {
            self.0.panicked.store(true, Ordering::Release);
        }
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
        file::create(disk, path, Db::template()?).map_err(io_error)?;
    }
    Open::on(file::open(disk, path).map_err(io_error)?)
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
