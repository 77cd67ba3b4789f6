//! Offline verification on directories that are whole, torn, damaged, cut, or dishonest.

mod account;
mod directory;
mod reading;
mod receipt;
#[path = "../written/mod.rs"]
mod written;

use ron_core::seam::Disk;
use ron_io::MemoryDisk;
use ron_kms::{
    audit::{
        log::Policy,
        record::{Event, Outcome},
    },
    offline::{OfflineError, Summary, verify_directory},
};
use written::{Keys, Writer, operation, used, write_records};

const DIR: &str = "data/audit";

fn disk() -> MemoryDisk {
    MemoryDisk::new(1 << 30)
}

fn verify(disk: &dyn Disk) -> Result<Summary, OfflineError> {
    verify_directory(disk, DIR, None, &mut |_| ())
}

fn refused(disk: &dyn Disk) -> String {
    let error = verify(disk).expect_err("it was taken").to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Some hundred records over three checkpoints, a gap record, a crash and records beyond the checkpoint.
fn eventful<'a>(disk: &'a dyn Disk, keys: &'a Keys) -> Writer<'a> {
    let mut writer = Writer::open(disk, DIR, keys, Policy::Shed);
    writer.operate(150);
    writer.checkpoint();
    let some = writer.admit(5);
    writer.log.handle_dropped(some[1]);
    writer.log.handle_abandoned(some[2]);
    writer.append([0, 3, 4].map(|n| used(some[n])).into());
    writer.operate(200);
    writer.checkpoint();
    writer.operate(1);
    drop(writer);
    // Numbers were given out and never recorded; the next start admits them.
    let mut writer = Writer::open(disk, DIR, keys, Policy::Shed);
    writer.operate(300);
    writer.checkpoint();
    writer.operate(7);
    writer
}

fn done(seq: u64) -> Event {
    Event::Operation {
        seq,
        operation: operation(),
        outcome: Outcome::Done,
    }
}

fn disk_of(keys: &Keys, events: Vec<Event>) -> MemoryDisk {
    let disk = disk();
    write_records(&disk, DIR, keys, events);
    disk
}
