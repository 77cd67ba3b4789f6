//! A database that grows at once, and is made anew again and again.
//!
//! Its first transactions do not fit into a new file, which therefore gets longer each time; a sync that fails just then
//! leaves a length that the system shows and the disk does not have. One that had such trouble is kept for a while, so that
//! it is built upon before the power goes. Each has an id of its own: what it holds is told and looked for under that, and
//! also under one name for all, for which nothing is promised from the moment that a file is to be removed.

use rand_core::Rng as _;
use ron_core::{
    db::{Db, DbError, ReadTransaction, TableError},
    durable,
};

use super::disk::{Drilled, TABLE, number_of, value};

/// In a directory of its own: who syncs one makes all of its names safe.
pub const GROWING: &str = "drills_growing/values.redb";
/// How many rows each of the first transactions adds. A row takes a page, so that a file gets twice as long when it is just
/// full: with more room than that to spare it would soon be cut again.
const ROWS: [usize; 3] = [12, 20, 40];
const ROW: usize = 3000;
const TURNS: u32 = 2;
const TURNS_OF_A_FOUND_ONE: u32 = 8;
const TURNS_AFTER_TROUBLE: u32 = 30;

/// The database that is in use, if one is.
#[derive(Default)]
pub struct Growth {
    open: Option<Growing>,
    /// It could not be made or opened.
    trouble: bool,
}

struct Growing {
    db: Db,
    id: u64,
    last: u64,
    /// Transactions until it is removed.
    left: u32,
    /// The last transaction that grows it. After trouble none does: it would make up for what was lost.
    grows_until: u64,
}

/// What a database holds: its id and its last number, none in a new one.
type Held = Option<(u64, u64)>;

impl Drilled {
    pub async fn grow(&self, growth: &mut Growth) -> Result<(), DbError> {
        let Some(open) = &mut growth.open else {
            let opened = self.open_growing(growth.trouble).await;
            growth.trouble = opened.is_err();
            growth.open = Some(opened?);
            return Ok(());
        };
        if open.left == 0 {
            growth.open = None;
            self.wrote(GROWING, 0);
            return self.remove_growing().await;
        }
        open.left -= 1;
        self.go_on_growing(open).await?;
        // The others at once, so that most of a file's life comes after.
        while open.last < open.grows_until {
            self.go_on_growing(open).await?;
        }
        Ok(())
    }

    async fn go_on_growing(&self, open: &mut Growing) -> Result<(), DbError> {
        let written = self.write_growing(open).await;
        if written.is_err() {
            open.left = TURNS_AFTER_TROUBLE;
            open.grows_until = open.grows_until.min(open.last + 1);
        }
        // After an error it may have happened or not.
        let least = if written.is_ok() {
            open.last + 1
        } else {
            open.last
        };
        let held = self.held(&open.db).await?;
        let (_, last) = held.unwrap_or((open.id, 0));
        if !(least..=open.last + 1).contains(&last) {
            self.broken(&format!("growing db: {last} is read, expected {least}"));
        }
        open.last = last;
        written
    }

    fn name(id: u64) -> String {
        format!("{GROWING} {id:x}")
    }

    async fn open_growing(&self, trouble: bool) -> Result<Growing, DbError> {
        let db = self.sound(Db::open(&self.env, GROWING).await)?;
        let held = self.held(&db).await?;
        self.found(GROWING, held.map_or(0, |(_, last)| last));
        if let Some((id, last)) = held {
            self.found(&Self::name(id), last);
        }
        let (id, last) = held.unwrap_or_else(|| (self.env.rng().next_u64(), 0));
        Ok(Growing {
            db,
            id,
            last,
            left: match (trouble, held) {
                (true, _) => TURNS_AFTER_TROUBLE,
                (false, Some(_)) => TURNS_OF_A_FOUND_ONE,
                (false, None) => TURNS,
            },
            grows_until: held.map_or(ROWS.len() as u64, |_| 0),
        })
    }

    async fn remove_growing(&self) -> Result<(), DbError> {
        let removed = self.on_disk(|disk| {
            disk.remove(GROWING)?;
            disk.sync_dir(durable::directory(GROWING))
        });
        let removed = removed.await;
        removed.map_err(|error| DbError::Io(error.to_string()))
    }

    async fn write_growing(&self, open: &Growing) -> Result<(), DbError> {
        let (id, next) = (open.id, open.last + 1);
        let rows = match next <= open.grows_until {
            true => ROWS[next as usize - 1],
            false => 0,
        };
        let written = open.db.write(move |txn| {
            let mut table = txn.open_table(TABLE)?;
            table.insert("id", &id.to_le_bytes()[..])?;
            for row in 0..rows {
                let key = format!("row {next} {row}");
                table.insert(&*key, &[id as u8; ROW][..])?;
            }
            table.insert("last", &*value(next))?;
            Ok::<_, DbError>(())
        });
        self.sound(written.await)?;
        self.wrote(GROWING, next);
        self.wrote(&Self::name(id), next);
        Ok(())
    }

    /// All of it is there, or nothing.
    async fn held(&self, db: &Db) -> Result<Held, DbError> {
        let held = db.read(held);
        match self.sound(held.await)? {
            Ok(held) => Ok(held),
            Err(why) => {
                self.broken(&format!("growing db: {why}"));
                Ok(None)
            }
        }
    }
}

fn held(txn: &ReadTransaction) -> Result<Result<Held, String>, DbError> {
    let table = match txn.open_table(TABLE) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Ok(None)),
        table => table?,
    };
    let read = |name| {
        let found = table.get(name)?;
        Ok::<_, DbError>(found.map(|bytes| bytes.value().to_vec()))
    };
    let (id, last) = (read("id")?, read("last")?);
    let id = id.and_then(|id| Some(u64::from_le_bytes(id.try_into().ok()?)));
    let last = last.as_deref().and_then(number_of);
    let Some((id, last)) = id.zip(last) else {
        return Ok(Err(format!("half of a transaction: {id:?}, {last:?}")));
    };
    let mut rows = 0;
    for row in table.range("row ".."row:")? {
        let (_, row) = row?;
        rows += usize::from(row.value() == [id as u8; ROW]);
    }
    // All of the first transaction, or of the first two, or of all three.
    let whole = (1..=ROWS.len()).any(|n| rows == ROWS[..n].iter().sum::<usize>());
    Ok(match whole {
        true => Ok(Some((id, last))),
        false => Err(format!("{rows} rows of its transactions are there")),
    })
}
