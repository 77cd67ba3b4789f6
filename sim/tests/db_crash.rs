//! The database of the kernel on the simulated disk: whatever the disk does, a transaction is there whole
//! or not at all, and what was acknowledged is there.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::time::Duration;

use ron_core::{
    Env,
    db::{Db, DbError, TableDefinition, TableError},
};
use sim::{
    disk::{Death, DiskFaults, Fault, Image, SimDisk},
    executor::Simulation,
    faults::untroubled,
    net::{Link, NodeId},
    recorder::Recorder,
    timer,
    world::World,
};

const PATH: &str = "data.redb";
const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("t");

/// A node whose process the test plays itself.
struct Machine {
    world: World,
    node: NodeId,
}

fn on_a_machine<F: Future<Output = ()> + 'static>(
    seed: u64,
    body: impl FnOnce(Machine) -> F + Send + 'static,
) {
    let thread = std::thread::spawn(move || {
        let simulation = Simulation::new(seed).limited(Duration::from_secs(36_000));
        simulation.block_on(async move {
            let recorder = Recorder::new(Vec::new(), false, false);
            let world = World::new(seed, Link::default(), recorder);
            let node = world.add_node("a", None, toml::Table::new());
            world.start(node);
            body(Machine { world, node }).await;
        });
    });
    if let Err(panic) = thread.join() {
        eprintln!("seed {seed}");
        std::panic::resume_unwind(panic);
    }
}

impl Machine {
    fn env(&self) -> Env {
        self.world.env(self.node).expect("the node is up")
    }

    fn disk(&self) -> SimDisk {
        self.world.node_parts(self.node).disk
    }

    fn crash_at(&self, op: u64) {
        let crash_at_op = Some(op);
        self.disk().set_faults(DiskFaults {
            crash_at_op,
            ..untroubled()
        });
    }

    fn power_cycle(&self) {
        self.world.die(self.node, Death::Power, "on purpose");
        self.disk().set_faults(untroubled());
        self.world.start(self.node);
    }
}

/// What the work answers; `None` if the machine died over it.
async fn unless_dead<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = work => Some(answer),
        () = timer::sleep(Duration::from_secs(600)) => None,
    }
}

/// Sets everything to `round`: three places that must always agree, of a size that moves with it.
async fn put(db: &Db, round: u8) -> Result<(), DbError> {
    db.write(move |txn| {
        let mut table = txn.open_table(TABLE)?;
        for name in ["a", "b", "c"] {
            table.insert(name, &*vec![round; 100 + 3000 * usize::from(round % 3)])?;
        }
        Ok(())
    })
    .await
}

/// The round that everything is of.
async fn get(db: &Db) -> Result<u8, DbError> {
    db.read(|txn| {
        let table = match txn.open_table(TABLE) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(0),
            table => table?,
        };
        let mut rounds = Vec::new();
        for name in ["a", "b", "c"] {
            let found = table.get(name)?.map(|value| value.value().to_vec());
            let bytes = found.expect("no part is missing");
            assert!(
                bytes.iter().all(|byte| *byte == bytes[0]),
                "no part is torn"
            );
            assert_eq!(bytes.len(), 100 + 3000 * usize::from(bytes[0] % 3));
            rounds.push(bytes[0]);
        }
        assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
        Ok(rounds[0])
    })
    .await
}

/// Writes rounds until the end or its death; the last one begun and the last acknowledged.
async fn live(env: Env, from: u8, upto: u8) -> (u8, u8) {
    let (mut begun, mut done) = (from, from);
    if let Some(db) = unless_dead(Db::open(&env, PATH)).await {
        let db = db.unwrap();
        for round in from + 1..=upto {
            begun = round;
            match unless_dead(put(&db, round)).await {
                Some(answer) => answer.unwrap(),
                None => break,
            }
            done = round;
        }
    }
    (begun, done)
}

#[test]
fn a_crash_at_any_disk_operation_leaves_whole_transactions_and_all_acknowledged() {
    const ROUNDS: u8 = 5;
    for seed in 1..=4 {
        let mut crashed_at = 0;
        for op in 1.. {
            let (tell, told) = std::sync::mpsc::channel();
            on_a_machine(seed, move |machine| async move {
                machine.crash_at(op);
                let (begun, done) = live(machine.env(), 0, ROUNDS).await;
                let survived = machine.world.env(machine.node).is_some();
                machine.power_cycle();

                // The next start crashes too, somewhere in opening what is left.
                machine.crash_at(op % 9 + 1);
                let _ = unless_dead(Db::open(&machine.env(), PATH)).await;
                machine.power_cycle();

                let db = Db::open(&machine.env(), PATH).await.unwrap();
                let found = get(&db).await.unwrap();
                assert!(
                    (done..=begun).contains(&found),
                    "op {op}: {found} found, {done} acknowledged, {begun} begun"
                );
                put(&db, 200).await.unwrap();
                assert_eq!(get(&db).await, Ok(200));
                tell.send(survived).unwrap();
            });
            if told.recv().unwrap() {
                crashed_at = op;
                break;
            }
        }
        assert!(crashed_at > 40, "only {crashed_at} operations in all");
    }
}

#[test]
fn failing_writes_and_syncs_lose_nothing_acknowledged_and_what_is_read_stays() {
    for seed in 1..=12 {
        on_a_machine(seed, |machine| async move {
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            let (mut begun, mut done, mut failed) = (0, 0, 0);
            machine.disk().set_faults(DiskFaults {
                eio_write_per_10k: 200,
                eio_sync_per_10k: 800,
                eio_read_per_10k: 50,
                ..untroubled()
            });
            for round in 1..=60 {
                begun = round;
                match put(&db, round).await {
                    Ok(()) => done = round,
                    Err(DbError::Io(_)) => failed += 1,
                    Err(other) => panic!("{other}"),
                }
                if let Ok(found) = get(&db).await {
                    assert!((done..=begun).contains(&found), "{done} {found} {begun}");
                    done = found;
                }
            }
            assert!(failed > 0, "no fault struck");
            machine.disk().set_faults(untroubled());
            machine.power_cycle();
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            let found = get(&db).await.unwrap();
            assert!((done..=begun).contains(&found), "{done} {found} {begun}");
        });
    }
}

#[test]
fn what_a_failed_sync_lost_is_made_sure_of_before_anything_is_built_upon_it() {
    for seed in 1..=400 {
        on_a_machine(seed, move |machine| async move {
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            put(&db, 1).await.unwrap();
            machine.disk().set_faults(DiskFaults {
                eio_sync_per_10k: 4000,
                ..untroubled()
            });
            // The file grows, and the system shows its length whether or not a sync brought it to the disk.
            for n in 0..seed % 7 {
                let grow = db.write(move |txn| {
                    let grown = vec![7; 9_000 * n as usize];
                    txn.open_table(TABLE)?.insert("more", &*grown)?;
                    Ok::<(), DbError>(())
                });
                let _ = grow.await;
                let _ = get(&db).await;
            }
            machine.power_cycle();
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            assert_eq!(get(&db).await, Ok(1));
        });
    }
}

#[test]
fn a_loss_of_power_while_it_is_made_sure_of_leaves_a_database() {
    for seed in 1..=600 {
        on_a_machine(seed, move |machine| async move {
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            put(&db, 1).await.unwrap();
            // The file grows, but the disk does not hear of it.
            machine.disk().fail_next(Fault::EioSync, 1);
            let grow = db.write(|txn| {
                txn.open_table(TABLE)?.insert("more", &*vec![7; 60_000])?;
                Ok::<(), DbError>(())
            });
            assert!(matches!(grow.await, Err(DbError::Io(_))));
            machine
                .world
                .die(machine.node, Death::Process, "on purpose");
            machine.world.start(machine.node);
            machine.crash_at(1 + seed % 12);
            let _ = unless_dead(Db::open(&machine.env(), PATH)).await;
            machine.power_cycle();
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            assert_eq!(get(&db).await, Ok(1));
        });
    }
}

#[test]
fn each_single_failure_is_reported_and_the_next_call_goes_on() {
    for fault in [Fault::EioWrite, Fault::EioSync] {
        on_a_machine(1, move |machine| async move {
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            put(&db, 1).await.unwrap();
            machine.disk().fail_next(fault, 1);
            assert!(
                matches!(put(&db, 2).await, Err(DbError::Io(_))),
                "{fault:?}"
            );
            let found = get(&db).await.unwrap();
            assert!(found == 1 || found == 2);
            put(&db, 3).await.unwrap();
            machine.power_cycle();
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            assert_eq!(get(&db).await, Ok(3));
        });
    }
}

#[test]
fn a_database_that_outlives_its_process_touches_nothing() {
    for death in [Death::Process, Death::Power] {
        on_a_machine(1, move |machine| async move {
            let old = Db::open(&machine.env(), PATH).await.unwrap();
            put(&old, 1).await.unwrap();
            machine.world.die(machine.node, death, "on purpose");
            machine.world.start(machine.node);
            let new = Db::open(&machine.env(), PATH).await.unwrap();
            put(&new, 2).await.unwrap();
            drop(old);
            assert_eq!(machine.disk().stale_ops(), 0);
            assert_eq!(get(&new).await, Ok(2));
        });
    }
}

#[test]
fn a_dropped_database_can_be_opened_again_and_an_open_one_cannot() {
    on_a_machine(1, |machine| async move {
        let env = machine.env();
        let db = Db::open(&env, PATH).await.unwrap();
        put(&db, 1).await.unwrap();
        let second = Db::open(&env, PATH).await.map(|_| ());
        assert_eq!(second, Err(DbError::Locked));
        let before = machine.disk().ops();
        drop(db);
        assert_eq!(
            machine.disk().ops(),
            before,
            "dropping works without a disk"
        );
        let db = Db::open(&env, PATH).await.unwrap();
        assert_eq!(get(&db).await, Ok(1));
    });
}

#[test]
fn a_panic_in_a_transaction_takes_it_back() {
    on_a_machine(1, |machine| async move {
        let db = Db::open(&machine.env(), PATH).await.unwrap();
        put(&db, 1).await.unwrap();
        let lost: Result<(), DbError> = db
            .write(|txn| {
                txn.open_table(TABLE)?.insert("a", &[9u8][..])?;
                panic!("on purpose");
            })
            .await;
        assert!(matches!(lost, Err(DbError::Io(_))));
        assert_eq!(get(&db).await, Ok(1));
        put(&db, 2).await.unwrap();
        assert_eq!(get(&db).await, Ok(2));
    });
}

#[test]
fn a_full_disk_is_said_so_and_the_database_lives_on() {
    on_a_machine(1, |machine| async move {
        let db = Db::open(&machine.env(), PATH).await.unwrap();
        put(&db, 1).await.unwrap();
        machine.disk().set_faults(DiskFaults {
            capacity_bytes: Some(machine.disk().bytes_used()),
            ..untroubled()
        });
        let big: Result<(), DbError> = db
            .write(|txn| {
                txn.open_table(TABLE)?
                    .insert("big", &vec![1u8; 8 << 20][..])?;
                Ok(())
            })
            .await;
        assert!(matches!(big, Err(DbError::Io(_))), "{big:?}");
        assert_eq!(get(&db).await, Ok(1));
        machine.disk().set_faults(untroubled());
        put(&db, 2).await.unwrap();
        assert_eq!(get(&db).await, Ok(2));
    });
}

#[test]
fn a_flipped_bit_is_an_error_or_unseen() {
    let (tell, told) = std::sync::mpsc::channel();
    for seed in 1..=300 {
        let tell = tell.clone();
        on_a_machine(seed, move |machine| async move {
            let db = Db::open(&machine.env(), PATH).await.unwrap();
            put(&db, 1).await.unwrap();
            put(&db, 2).await.unwrap();
            drop(db);
            machine.disk().corrupt_random(PATH).unwrap();
            let found = match Db::open(&machine.env(), PATH).await {
                Err(error) => Err(error),
                Ok(db) => get(&db).await.and(put(&db, 3).await).and(get(&db).await),
            };
            match &found {
                Ok(3) | Err(DbError::Damaged(_)) => {}
                other => panic!("{other:?}"),
            }
            tell.send(found.is_err()).unwrap();
        });
    }
    drop(tell);
    let noticed = told.iter().filter(|error| *error).count();
    assert!(noticed > 0, "no bit that matters was flipped");
}

#[test]
fn a_template_laid_on_the_disk_opens_without_being_made() {
    on_a_machine(1, |machine| async move {
        let image = template();
        machine.disk().preload(PATH, &image).unwrap();
        let db = Db::open(&machine.env(), PATH).await.unwrap();
        assert_eq!(get(&db).await, Ok(0));
        let renames = machine.disk().op_counts().get(sim::disk::Op::Rename);
        assert_eq!(renames, 1, "the account beside it");
        put(&db, 1).await.unwrap();
        assert_eq!(get(&db).await, Ok(1));
    });
}

fn template() -> Image {
    Image::from(Db::template().unwrap())
}
