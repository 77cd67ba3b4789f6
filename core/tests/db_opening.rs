//! What opening a database costs, in bytes read and written, and what it answers when the file is damaged.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use kit::{
    disk::{Op, ToldDisk},
    world::{HOME, Machine, in_world},
};
use ron_core::db::{Db, DbError, TableDefinition, VERIFIED_BYTES};

const PATH: &str = "large.redb";
const TABLE: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("t");
const MIB: u64 = 1 << 20;

/// Puts `count` values of that many bytes each, in one transaction.
async fn put(db: &Db, first: u64, count: u64, bytes: usize) -> Result<(), DbError> {
    let fill = move |txn: &_| {
        let txn: &ron_core::db::WriteTransaction = txn;
        let mut table = txn.open_table(TABLE)?;
        for key in first..first + count {
            table.insert(key, &*vec![key as u8; bytes])?;
        }
        Ok(())
    };
    db.write(fill).await
}

async fn get(db: &Db, key: u64) -> Result<Option<usize>, DbError> {
    db.read(move |txn| {
        let table = txn.open_table(TABLE)?;
        let Some(value) = table.get(key)? else {
            return Ok(None);
        };
        // A large file is not verified when it is opened: whoever reads it knows what it holds.
        match value.value().iter().all(|byte| *byte == key as u8) {
            true => Ok(Some(value.value().len())),
            false => Err(DbError::Damaged("a value changed".to_owned())),
        }
    })
    .await
}

/// What the disk was asked for since it was told to count.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    read: u64,
    written: u64,
    synced: u64,
}

fn count(disk: &ToldDisk) -> Arc<Mutex<Cost>> {
    let cost = Arc::<Mutex<Cost>>::default();
    let counted = cost.clone();
    disk.tell(move |_, op| {
        let mut cost = counted.lock().unwrap();
        match op {
            Op::Read { len, .. } => cost.read += len as u64,
            Op::Write { len, .. } => cost.written += len as u64,
            Op::Sync => cost.synced += 1,
            _ => {}
        }
        Ok(())
    });
    cost
}

/// What it costs to open the file in another process.
async fn opening(machine: &Machine, when: &str) -> Cost {
    let next = machine.again();
    let cost = count(next.disk());
    let db = Db::open(&next.env(), PATH).await.unwrap();
    let cost = *cost.lock().unwrap();
    assert!(get(&db, 1).await.unwrap().is_some());
    next.disk().behave();
    println!("{when}: {cost:?}");
    cost
}

#[test]
fn opening_a_gibibyte_reads_and_writes_little_when_clean_killed_or_after_a_failed_sync() {
    in_world(|world| async move {
        let machine = world.machine_with(HOME, 4 << 30);
        let db = Db::open(&machine.env(), PATH).await.unwrap();
        for step in 0..32 {
            put(&db, step * 32, 32, 1_000_000).await.unwrap();
        }
        let size = ron_core::seam::Disk::open(machine.disk(), PATH, ron_core::seam::Open::Existing);
        let size = size.unwrap().len().unwrap();
        assert!(size >= 1024 * MIB, "{size}");
        put(&db, 5000, 1, 100).await.unwrap();
        drop(db);
        let little =
            |cost: Cost| assert!(cost.read < 2 * MIB && cost.written < 2 * MIB, "{cost:?}");
        little(opening(&machine, "clean").await);

        // Killed at any operation of a transaction: what it wrote and did not sync is on account.
        for at in 1.. {
            let process = machine.again();
            let db = Db::open(&process.env(), PATH).await.unwrap();
            let left = Mutex::new(at);
            let killed = Arc::new(AtomicBool::new(false));
            let dead = killed.clone();
            process.disk().tell(move |_, _| {
                let mut left = left.lock().unwrap();
                *left -= 1_u64.min(*left);
                match *left {
                    0 => {
                        dead.store(true, Ordering::Relaxed);
                        Err(io::Error::other("killed"))
                    }
                    _ => Ok(()),
                }
            });
            let _ = put(&db, 6000 + at, 4, 3000).await;
            drop(db);
            process.disk().behave();
            if !killed.load(Ordering::Relaxed) {
                break;
            }
            little(opening(&machine, &format!("killed at operation {at}")).await);
        }

        // A sync fails: the same process opens the file anew by itself.
        let process = machine.again();
        let db = Db::open(&process.env(), PATH).await.unwrap();
        process.disk().tell(|_, op| match op {
            Op::Sync => Err(io::Error::other("EIO")),
            _ => Ok(()),
        });
        let failed = put(&db, 7000, 4, 3000).await;
        assert!(matches!(failed, Err(DbError::Io(_))), "{failed:?}");
        let cost = count(process.disk());
        put(&db, 7000, 4, 3000).await.unwrap();
        println!("after a failed sync: {:?}", cost.lock().unwrap());
        little(*cost.lock().unwrap());
        assert_eq!(get(&db, 7001).await, Ok(Some(3000)));
        drop(db);

        // A copy, or the file of an older version: nobody kept account, so all of it is made sure of, once.
        ron_core::seam::Disk::remove(machine.disk(), &format!("{PATH}.unsynced")).unwrap();
        let cost = opening(&machine, "without an account").await;
        assert!(cost.written >= size, "{cost:?}");
        little(opening(&machine, "the next one").await);
    });
}

#[test]
fn what_is_on_account_is_written_again_and_nothing_else() {
    in_world(|world| async move {
        let machine = world.machine(HOME);
        let db = Db::open(&machine.env(), PATH).await.unwrap();
        put(&db, 1, 8, 500_000).await.unwrap();
        machine.disk().tell(|_, op| match op {
            Op::Sync => Err(io::Error::other("EIO")),
            _ => Ok(()),
        });
        put(&db, 20, 1, 1_000_000).await.unwrap_err();
        drop(db);
        machine.disk().behave();
        let doubtful = opening(&machine, "with a megabyte in doubt").await;
        assert!(doubtful.written > 1_000_000, "{doubtful:?}");
        let clean = opening(&machine, "clean").await;
        assert!(clean.written < 200_000, "{clean:?}");
        assert!(clean.synced < doubtful.synced);
    });
}

/// Opens the file as it is and reads all of it.
async fn look(machine: &Machine) -> Result<u64, DbError> {
    let db = Db::open(&machine.again().env(), PATH).await?;
    let mut whole = 0;
    for key in 1..=40 {
        whole += u64::from(get(&db, key).await?.is_some());
    }
    Ok(whole)
}

#[test]
fn a_damaged_file_is_an_error_of_one_line_and_never_a_panic() {
    for (values, bytes) in [(40, 700), (40, 1_000_000)] {
        in_world(|world| async move {
            let machine = world.machine_with(HOME, 1 << 30);
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            put(&db, 1, values, bytes).await.unwrap();
            put(&db, 1, 2, bytes).await.unwrap();
            drop(db);
            let sound = machine.disk().contents(PATH);
            let large = sound.len() as u64 > VERIFIED_BYTES;
            // Every bit of the header; of the rest, a bit here and there.
            let stride = if large { 999_983 * 8 } else { 9973 };
            let header = (0..320 * 8).step_by(if large { 37 } else { 1 });
            let flips = header.chain((320 * 8..sound.len() * 8).step_by(stride));
            let mut damaged = 0;
            for bit in flips {
                let mut bytes = sound.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                machine.disk().put(PATH, &bytes);
                match look(&machine).await {
                    // Where nobody looks any more, or in a part that another copy of makes up for.
                    Ok(whole) => assert_eq!(whole, values, "bit {bit}"),
                    Err(DbError::Damaged(said)) => {
                        damaged += 1;
                        assert!(!said.contains('\n') && !said.is_empty(), "{said}");
                    }
                    Err(other) => panic!("bit {bit}: {other}"),
                }
            }
            println!("{damaged} of the flips were noticed");
            assert!(damaged > 0);
            for len in [0, 1, 300, 4096, 5000, sound.len() / 2, sound.len() - 1] {
                machine.disk().put(PATH, &sound[..len]);
                let said = look(&machine).await;
                assert!(matches!(said, Err(DbError::Damaged(_))), "{len}: {said:?}");
            }
            machine.disk().put(PATH, &sound);
            assert_eq!(look(&machine).await, Ok(values));
        });
    }
}
