//! The laws of the disk, each shown on the smallest disk that needs it, over many seeds where luck
//! decides: a law about luck names every outcome, so that one too many and one too few are both seen.

mod contents;
mod faults;
mod incarnations;
mod names;

use std::{collections::BTreeSet, io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, Open};

use super::{DiskFaults, SimDisk, enter_offload, names::parent};

const SEEDS: u64 = 200;

fn put(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

fn put_durably(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = put(disk, path, bytes);
    file.sync().unwrap();
    disk.sync_dir(parent(path)).unwrap();
    file
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

fn losing() -> DiskFaults {
    DiskFaults {
        lose_unsynced: true,
        ..DiskFaults::default()
    }
}

/// What a scenario leaves after a loss of power, over many seeds, each outcome once.
fn outcomes<T: Ord>(
    faults: DiskFaults,
    scenario: impl Fn(&SimDisk, &Arc<dyn Disk>),
    look: impl Fn(&SimDisk) -> T,
) -> BTreeSet<T> {
    let _offload = enter_offload();
    (0..SEEDS)
        .map(|seed| {
            let sim = SimDisk::new(seed);
            sim.set_faults(faults.clone());
            scenario(&sim, &sim.mount());
            sim.power_off();
            look(&sim)
        })
        .collect()
}
