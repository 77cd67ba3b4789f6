//! The disk and a naive one, side by side through random operations, kills and losses of power: they
//! agree on every answer and on both layers, and what a loss of power leaves is one of the outcomes
//! the naive one allows.

mod reference;

use proptest::{prelude::*, test_runner::RngSeed};
use ron_core::seam::{Disk, Open};

use self::reference::Model;
use super::{DiskFaults, Fault, SimDisk, enter_offload};

const FILES: [&str; 5] = ["a", "b", "d/a", "d/b", "e/a"];
const DIRS: [&str; 3] = ["", "d", "e"];

#[derive(Clone, Debug)]
enum Step {
    Create(&'static str),
    CreateDir(&'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    SyncDir(&'static str, Sync),
    Write(&'static str, usize, usize),
    Append(&'static str, usize),
    SetLen(&'static str, usize),
    Sync(&'static str, Sync),
    Kill,
    PowerOff(Loss),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sync {
    Honest,
    Lying,
    Failing,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    lose_unsynced: bool,
    torn: bool,
    torn_bytes: bool,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn disk_agrees_with_a_naive_one_through_kills_and_power_losses(
        seed: u64,
        steps in prop::collection::vec(step(), 1..60),
        last in loss(),
    ) {
        let _offload = enter_offload();
        let sim = SimDisk::new(seed);
        let mut model = Model::default();
        let mut disk = sim.mount();
        for (index, step) in steps.iter().chain([&Step::PowerOff(last)]).enumerate() {
            let fill = 1 + (index % 255) as u8;
            match step {
                Step::Kill => {
                    sim.kill();
                    disk = sim.mount();
                }
                Step::PowerOff(loss) => {
                    sim.set_faults(DiskFaults {
                        lose_unsynced: loss.lose_unsynced,
                        torn: loss.torn,
                        torn_bytes: loss.torn_bytes,
                        ..DiskFaults::default()
                    });
                    sim.power_off();
                    // Syncs that fail write nothing here; what they may have written is drawn as this loss is.
                    sim.set_faults(DiskFaults::default());
                    disk = sim.mount();
                    model.power_off(&sim, disk.as_ref(), *loss)?;
                }
                step => {
                    let done = model.apply(step, fill);
                    prop_assert_eq!(apply(&sim, disk.as_ref(), step, fill), done, "{:?}", step);
                    model.learn_identities(disk.as_ref());
                }
            }
            model.check(&sim)?;
        }
    }
}

/// Does the step on the disk; true if it answered Ok.
fn apply(sim: &SimDisk, disk: &dyn Disk, step: &Step, fill: u8) -> bool {
    let prepare = |kind: &Sync| match kind {
        Sync::Honest => (),
        Sync::Lying => sim.fail_next(Fault::LyingSync, 1),
        Sync::Failing => sim.fail_next(Fault::EioSync, 1),
    };
    let file = |path| disk.open(path, Open::Existing);
    match step {
        Step::Create(path) => disk.open(path, Open::Create).is_ok(),
        Step::CreateDir(path) => disk.create_dir(path).is_ok(),
        Step::Rename(from, to) => disk.rename(from, to).is_ok(),
        Step::Remove(path) => disk.remove(path).is_ok(),
        Step::SyncDir(path, kind) => {
            if disk.list(path).is_ok() {
                prepare(kind);
            }
            disk.sync_dir(path).is_ok()
        }
        Step::Write(path, offset, len) => file(path)
            .and_then(|file| file.write_at(*offset as u64, &vec![fill; *len]))
            .is_ok(),
        Step::Append(path, len) => file(path)
            .and_then(|file| file.append(&vec![fill; *len]))
            .is_ok(),
        Step::SetLen(path, len) => file(path)
            .and_then(|file| file.set_len(*len as u64))
            .is_ok(),
        Step::Sync(path, kind) => file(path)
            .and_then(|file| {
                prepare(kind);
                file.sync()
            })
            .is_ok(),
        Step::Kill | Step::PowerOff(_) => unreachable!("the world's, not the process's"),
    }
}

// ------------------------------------------------------------------------------------ generators

fn step() -> impl Strategy<Value = Step> {
    let file = || prop::sample::select(&FILES[..]);
    let dir = || prop::sample::select(&DIRS[..]);
    // Short writes keep all outcomes countable, long ones cross sectors and pages.
    let len = || prop_oneof![3 => 0..6_usize, 1 => 400..1500_usize];
    let offset = || prop_oneof![3 => 0..8_usize, 1 => 0..1600_usize, 1 => 3900..4200_usize];
    prop_oneof![
        6 => file().prop_map(Step::Create),
        3 => prop::sample::select(&DIRS[1..]).prop_map(Step::CreateDir),
        5 => (file(), file()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => file().prop_map(Step::Remove),
        4 => (dir(), sync()).prop_map(|(dir, kind)| Step::SyncDir(dir, kind)),
        8 => (file(), offset(), len()).prop_map(|(path, at, len)| Step::Write(path, at, len)),
        6 => (file(), len()).prop_map(|(path, len)| Step::Append(path, len)),
        3 => (file(), offset()).prop_map(|(path, len)| Step::SetLen(path, len)),
        5 => (file(), sync()).prop_map(|(path, kind)| Step::Sync(path, kind)),
        1 => Just(Step::Kill),
        2 => loss().prop_map(Step::PowerOff),
    ]
}

fn sync() -> impl Strategy<Value = Sync> {
    prop_oneof![6 => Just(Sync::Honest), 1 => Just(Sync::Lying), 1 => Just(Sync::Failing)]
}

fn loss() -> impl Strategy<Value = Loss> {
    any::<(bool, bool, bool)>().prop_map(|(lose_unsynced, torn, torn_bytes)| Loss {
        lose_unsynced,
        torn,
        torn_bytes,
    })
}
