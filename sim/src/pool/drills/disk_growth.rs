//! A database that grows at once, and is made anew again and again.
//!
//! Its first transactions do not fit into a new file, which therefore gets longer; a sync that fails just then leaves a
//! length that the system shows and the disk does not have. One that had such trouble, and could not be opened anew or was
//! built upon, is left alone for a while, so that the power goes before anything makes up for it. Each has an id of its own: what it holds is
//! told and looked for under that, and also under one name for all, for which nothing is promised from the moment that a
//! file is to be removed.

use std::time::Duration;

use rand_core::Rng as _;
use ron_core::{
    db::{Db, DbError, ReadTransaction, TableError},
    durable,
    seam::Open,
};

use super::disk::{Drilled, TABLE, number_of, value};

/// In a directory of its own: who syncs one makes all of its names safe.
pub const GROWING: &str = "drills_growing/values.redb";
/// The transactions that make it grow, and what each adds. A row takes a page, so that a file gets twice as long when it is
/// just full: with more room than that to spare it would soon be cut again.
const GROWS: u64 = 5;
const ROWS: usize = 6;
const ROW: usize = 3000;
/// How many are tried in a turn.
const TRIES: u32 = 12;
const TURNS_OF_A_FOUND_ONE: u32 = 2;
const TURNS_OF_REST: u32 = 6;
const BETWEEN: Duration = Duration::from_millis(50);

/// The database that is in use, if one is.
#[derive(Default)]
struct Growth {
    open: Option<Growing>,
    /// It could not be made or opened.
    trouble: bool,
}

struct Growing {
    db: Db,
    id: u64,
    last: u64,
    /// Turns until it is removed.
    left: u32,
    grows: bool,
    /// Its name may not be there for good: it could not be made or opened at first.
    nameless: bool,
    /// The length that was shown after a failure that had changed it.
    unsure: Option<u64>,
    rests: bool,
}

/// What a database holds: its id and its last number, none in a new one.
type Held = Option<(u64, u64)>;

impl Drilled {
    /// Turn after turn. It keeps its handle when the disk fails: the next turn finds out what is there.
    pub async fn grow_on(&self) {
        let mut growth = Growth::default();
        loop {
            let _ = self.grow(&mut growth).await;
            self.env.sleep(BETWEEN).await;
        }
    }

    async fn grow(&self, growth: &mut Growth) -> Result<(), DbError> {
        if growth.open.is_none() {
            let opened = self.open_growing(growth.trouble).await;
            growth.trouble = opened.is_err();
            growth.open = Some(opened?);
        }
        let Some(open) = &mut growth.open else {
            return Ok(());
        };
        for _ in 0..TRIES {
            if open.rests || !open.grows {
                break;
            }
            // A disk that fails is tried again.
            let _ = self.go_on_growing(open).await;
            open.grows = open.last < GROWS;
        }
        match open.left {
            // It has all it is to have and nothing happened, or its time is over.
            0 if open.rests || !open.grows => {
                growth.open = None;
                self.wrote(GROWING, 0);
                return self.remove_growing().await;
            }
            left => open.left = left.saturating_sub(1),
        }
        match open.rests || open.grows {
            true => Ok(()),
            false => self.go_on_growing(open).await,
        }
    }

    /// One transaction, which the disk may let fail.
    async fn go_on_growing(&self, open: &mut Growing) -> Result<(), DbError> {
        let before = self.length().await;
        let written = self.write_growing(open).await.is_ok();
        let after = self.length().await;
        let grown = before != after;
        if !written && grown {
            open.unsure = after;
        }
        // Another growth would have made sure of its length.
        let built_upon = open.unsure.is_some() && open.unsure == after;
        // After an error it may have happened or not.
        let there = self.still_there(open, open.last + u64::from(written)).await;
        // It could not even be opened anew, and may have got half way.
        let stuck = !written && grown && there.is_err();
        if stuck || (written && (built_upon || open.nameless)) {
            (open.rests, open.left) = (true, TURNS_OF_REST);
        }
        there
    }

    async fn still_there(&self, open: &mut Growing, least: u64) -> Result<(), DbError> {
        let held = self.held(&open.db).await?;
        let (_, last) = held.unwrap_or((open.id, 0));
        if !(least..=open.last + 1).contains(&last) {
            self.broken(&format!("growing db: {last} is read, expected {least}"));
        }
        open.last = last;
        Ok(())
    }

    async fn length(&self) -> Option<u64> {
        let length = self.on_disk(|disk| disk.open(GROWING, Open::Existing)?.len());
        length.await.ok()
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
            left: match held {
                Some(_) => TURNS_OF_A_FOUND_ONE,
                None => 0,
            },
            grows: held.is_none(),
            nameless: trouble,
            unsure: None,
            rests: false,
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
        let rows = match open.grows && next <= GROWS {
            true => ROWS,
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
    // Of whole transactions, and of no later one than the last.
    let whole = rows % ROWS == 0 && (1..=last).contains(&((rows / ROWS) as u64));
    Ok(match whole {
        true => Ok(Some((id, last))),
        false => Err(format!("{rows} rows of its transactions are there")),
    })
}
