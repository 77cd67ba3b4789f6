//! What survives: numbered values in files and in a database, told once they are safe, and looked for at each start.
//!
//! `drill.wrote` says that a value is there for good; `drill.found` what a new process finds. Whoever reads them
//! (`kernel.drilled_is_durable`) knows that nothing told may be missing. A file that is half there is broken at once.

use std::{io, sync::Arc, time::Duration};

use rand_core::Rng as _;
use ron_core::{
    Env,
    db::{Db, DbError, TableDefinition, TableError},
    durable,
    seam::{Disk, DiskFile, Open},
    shutdown::Shutdown,
};

use super::{super::App, disk_growth::GROWING};

const DIRECTORY: &str = "drills";
const REPLACED: &str = "drills/replaced";
const SETTLED: &str = "drills/settled";
const DATABASE: &str = "drills/values.redb";
pub const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("values");
const BETWEEN: Duration = Duration::from_millis(100);

/// Each drill goes on until it is told to stop; one that fails, because the disk does, begins anew.
pub async fn run(app: Arc<App>, stop: Shutdown) {
    let drilled = Drilled {
        env: app.env.clone(),
    };
    tokio::select! {
        biased;
        () = stop.wait() => {}
        () = drilled.go_on() => {}
        () = drilled.grow_on() => {}
    }
}

pub struct Drilled {
    pub env: Env,
}

impl Drilled {
    async fn go_on(&self) {
        let (mut replaced, mut settled, mut cut, mut database) = (None, None, None, None);
        // Now and then nothing is written after what was found was settled: a later sync would make up for it.
        let mut rests = self.env.rng().next_u64() % 2 * 10;
        loop {
            replaced = self.replace(replaced).await.ok();
            if settled.is_none() || rests == 0 {
                settled = self.append(settled).await.ok();
                cut = self.cut(cut).await.ok();
            } else {
                // What failed is found, made sure of, and left alone.
                cut = match cut {
                    None => self.cut(None).await.ok(),
                    found => found,
                };
                rests -= 1;
            }
            database = self.transact(database).await.ok();
            self.env.sleep(BETWEEN).await;
        }
    }

    pub fn wrote(&self, file: &str, n: u64) {
        self.env.probe("drill.wrote", n, format_args!("{file}"));
    }

    pub fn found(&self, file: &str, n: u64) {
        self.env.probe("drill.found", n, format_args!("{file}"));
    }

    pub fn broken(&self, why: &str) {
        self.env
            .probe("drill.broken", 0, format_args!("durable.{why}"));
    }

    pub async fn on_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Arc<dyn Disk>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.env.disk(job).await.map_err(io::Error::other)?
    }

    // -------------------------------------------------------------------------------- a whole file

    /// A new file in the place of the old, each with the next number. `last` is the one before; at first it is found.
    async fn replace(&self, last: Option<u64>) -> io::Result<u64> {
        let Some(last) = last else {
            let found = self.on_disk(|disk| {
                home(disk)?;
                read_if_there(disk, REPLACED)
            });
            let found = found.await?;
            let n = found.as_deref().map_or(Some(0), number_of);
            if n.is_none() {
                self.broken("replace: a file is there in part");
            }
            self.found(REPLACED, n.unwrap_or(0));
            return Ok(n.unwrap_or(0));
        };
        let next = last + 1;
        let written = self.on_disk(move |disk| {
            durable::replace(&**disk, REPLACED, &value(next))?;
            read_if_there(disk, REPLACED)
        });
        let seen = written.await?;
        if seen.as_deref().and_then(number_of) != Some(next) {
            self.broken("replace: what was written is not what is read");
        }
        self.wrote(REPLACED, next);
        Ok(next)
    }

    // ----------------------------------------------------------------------------- a file that grows

    /// One record after the other. What is found at the start counts once it has been settled.
    async fn append(&self, last: Option<u64>) -> io::Result<u64> {
        let Some(last) = last else {
            let (found, n) = self
                .on_disk(|disk| {
                    home(disk)?;
                    let file = disk.open(SETTLED, Open::Create)?;
                    disk.sync_dir(durable::directory(SETTLED))?;
                    let n = records(&read_all(&*file)?);
                    file.set_len(n * RECORD)?;
                    file.sync()?;
                    durable::settle(&*file, 0, n * RECORD)?;
                    Ok((n, records(&read_all(&*file)?)))
                })
                .await?;
            if found != n {
                self.broken("settle: it changed what was there");
            }
            self.found(SETTLED, n);
            self.wrote(SETTLED, n);
            return Ok(n);
        };
        // Mostly it is held up between the two: whoever comes after a kill finds what no disk has.
        let synced = self.env.rng().next_u64().is_multiple_of(3);
        let appended = self.on_disk(move |disk| {
            let file = disk.open(SETTLED, Open::Existing)?;
            file.write_at(last * RECORD, &record(last))?;
            if synced { file.sync() } else { Ok(()) }
        });
        appended.await?;
        if !synced {
            return Ok(last);
        }
        self.wrote(SETTLED, last + 1);
        Ok(last + 1)
    }

    // -------------------------------------------------------------------------------- the database

    async fn transact(&self, open: Option<(Db, u64)>) -> Result<(Db, u64), DbError> {
        let Some((db, last)) = open else {
            let home = self.on_disk(home).await;
            home.map_err(|error| DbError::Io(error.to_string()))?;
            let db = self.sound(Db::open(&self.env, DATABASE).await)?;
            let n = self.read(&db).await?;
            self.found(DATABASE, n);
            return Ok((db, n));
        };
        let next = last + 1;
        let written = db.write(move |txn| {
            let mut table = txn.open_table(TABLE)?;
            for name in ["a", "b", "c"] {
                table.insert(name, &*value(next))?;
            }
            Ok::<_, DbError>(())
        });
        self.sound(written.await)?;
        self.wrote(DATABASE, next);
        // A transaction that is given up leaves nothing.
        let refused = db.write(move |txn| {
            let mut table = txn.open_table(TABLE)?;
            table.insert("a", &*value(next + 1000))?;
            drop(table);
            Err::<(), _>(DbError::Io(ON_PURPOSE.to_owned()))
        });
        if refused.await.is_ok() {
            self.broken("db: a job that failed was reported as done");
        }
        if self.read(&db).await? != next {
            self.broken("db: what was written is not what is read");
        }
        Ok((db, next))
    }

    /// Three places that always agree.
    async fn read(&self, db: &Db) -> Result<u64, DbError> {
        let all = db.read(|txn| {
            let table = match txn.open_table(TABLE) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(vec![Some(0); 3]),
                table => table?,
            };
            let mut all = Vec::new();
            for name in ["a", "b", "c"] {
                let bytes = table.get(name)?.map(|bytes| bytes.value().to_vec());
                all.push(bytes.as_deref().and_then(number_of));
            }
            Ok::<_, DbError>(all)
        });
        let all = self.sound(all.await)?;
        if all[0].is_none() || all.iter().any(|n| *n != all[0]) {
            self.broken(&format!("db: half of a transaction is there: {all:?}"));
        }
        Ok(all[0].unwrap_or(0))
    }

    /// A disk may fail; that the database is damaged by it is broken.
    pub fn sound<T>(&self, answer: Result<T, DbError>) -> Result<T, DbError> {
        if let Err(DbError::Damaged(why)) = &answer {
            self.broken(&format!("db: damaged: {why}"));
        }
        answer
    }
}

const ON_PURPOSE: &str = "on purpose";

/// The directory and its name are there for good.
pub fn home(disk: &Arc<dyn Disk>) -> io::Result<()> {
    for directory in [DIRECTORY, durable::directory(GROWING)] {
        disk.create_dir(directory)?;
    }
    disk.sync_dir("")
}

fn read_if_there(disk: &Arc<dyn Disk>, path: &str) -> io::Result<Option<Vec<u8>>> {
    if disk.identity(path)?.is_none() {
        return Ok(None);
    }
    read_all(&*disk.open(path, Open::Existing)?).map(Some)
}

pub fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()? as usize];
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(at as u64, &mut bytes[at..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => at += read,
        }
    }
    Ok(bytes)
}

/// The number, so many bytes that follow from it, and a checksum over both.
pub fn value(n: u64) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.resize(8 + (n % 7) as usize * 900, n as u8);
    let sum = *blake3::hash(&bytes).as_bytes();
    bytes.extend(sum);
    bytes
}

pub fn number_of(bytes: &[u8]) -> Option<u64> {
    let n = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (value(n) == bytes).then_some(n)
}

const RECORD: u64 = 40;

fn record(n: u64) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    let sum = *blake3::hash(&bytes).as_bytes();
    bytes.extend(sum);
    bytes
}

/// How many whole records there are before the first that is not.
fn records(bytes: &[u8]) -> u64 {
    let all = bytes.chunks_exact(RECORD as usize).zip(0..);
    all.take_while(|(bytes, n)| *bytes == record(*n)).count() as u64
}
