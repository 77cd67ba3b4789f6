//! The database in memory: transactions, refusals, the template. What a disk does to it is shown in the
//! simulator and on real files.

use super::*;
use crate::test_env::World;

const TABLE: TableDefinition<'static, &str, u64> = TableDefinition::new("t");

async fn put(db: &Db, key: &'static str, value: u64) -> Result<(), DbError> {
    db.write(move |txn| {
        txn.open_table(TABLE)?.insert(key, value)?;
        Ok(())
    })
    .await
}

async fn get(db: &Db, key: &'static str) -> Result<Option<u64>, DbError> {
    db.read(move |txn| match txn.open_table(TABLE) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(table?.get(key)?.map(|value| value.value())),
    })
    .await
}

#[test]
fn what_is_written_is_read_and_what_is_refused_is_not() {
    let world = World::new();
    world.run(async {
        let db = Db::memory(&world.env()).unwrap();
        assert_eq!(get(&db, "a").await, Ok(None));
        put(&db, "a", 1).await.unwrap();
        assert_eq!(get(&db, "a").await, Ok(Some(1)));

        let refused = db.write(|txn| {
            txn.open_table(TABLE)?.insert("a", 2)?;
            Err::<(), _>(DbError::Damaged("on purpose".to_owned()))
        });
        assert_eq!(
            refused.await,
            Err(DbError::Damaged("on purpose".to_owned()))
        );
        assert_eq!(get(&db, "a").await, Ok(Some(1)));
        put(&db.clone(), "a", 3).await.unwrap();
        assert_eq!(get(&db, "a").await, Ok(Some(3)));
    });
}

#[test]
fn two_databases_in_memory_share_nothing() {
    let world = World::new();
    world.run(async {
        let [one, two] = [(); 2].map(|()| Db::memory(&world.env()).unwrap());
        put(&one, "a", 1).await.unwrap();
        assert_eq!(get(&two, "a").await, Ok(None));
    });
}

#[test]
fn the_template_is_an_empty_database_and_always_the_same() {
    let again = Memory::default();
    drop(builder().create_with_backend(again.clone()).unwrap());
    assert!(again.contents() == Db::template().unwrap());
    let opened = Open::on(Memory::holding(Db::template().unwrap())).unwrap();
    let txn = opened.database().unwrap().begin_read().unwrap();
    assert_eq!(txn.list_tables().unwrap().count(), 0);
}

#[test]
fn an_ended_opening_changes_no_byte_any_more() {
    let memory = Memory::holding(Db::template().unwrap());
    let opened = Open::on(memory.clone()).unwrap();
    let mut txn = opened.database().unwrap().begin_write().unwrap();
    txn.set_two_phase_commit(true);
    txn.open_table(TABLE).unwrap().insert("a", 1).unwrap();
    let before = memory.contents();
    opened.known.end();
    assert!(matches!(
        txn.commit().map_err(DbError::from),
        Err(DbError::Io(_))
    ));
    drop(opened);
    assert!(memory.contents() == before);
}

#[test]
fn dropping_an_opening_writes_nothing() {
    let memory = Memory::holding(Db::template().unwrap());
    let opened = Open::on(memory.clone()).unwrap();
    let before = memory.contents();
    drop(opened);
    assert!(memory.contents() == before);
}

#[test]
fn bytes_that_are_no_database_are_damaged() {
    let of = |bytes: &[u8]| Open::on(Memory::holding(bytes)).map(|_| ()).unwrap_err();
    for bytes in [&b"hello"[..], &[7; 8192], &[0; 8192]] {
        assert!(matches!(of(bytes), DbError::Damaged(_)), "{:?}", of(bytes));
    }
}
