//! A journal on a disk: what is settled, cut, refused, and put in its place.

use std::{
    io,
    sync::{Arc, Mutex},
};

use kit::disk::{Op, ToldDisk};
use ron_core::{
    journal::{Batch, CHECK, Format, HEADER_LEN, Journal, Refused, Rot, encode_header},
    seam::{Disk, Open},
};

struct Bytes;

impl Format for Bytes {
    const MAGIC: [u8; 8] = *b"RONTESTB";
    const FRAME: [u8; 4] = *b"\xabRTB";
    const VERSION: u16 = 1;
    const NAME: &'static str = "test log";
    const PROGRAM: &'static str = "ron-test";
    const MAX_ATTACHMENT: usize = 0;
    const ROT: Rot = Rot::Stop;
    type Record = Vec<u8>;
    type Error = std::convert::Infallible;

    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        let sum = parts.concat().iter().fold(7_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        sum.to_be_bytes()
    }
    fn encode(record: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        out.extend(record);
        Ok(())
    }
    fn decode(_: u64, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        Ok(bytes.to_vec())
    }
}

const PATH: &str = "log";
const START: u64 = HEADER_LEN as u64;

fn batch(first: u64, count: u64) -> Batch<Bytes> {
    let mut batch = Batch::new(first);
    for number in first..first + count {
        batch.push(&vec![number as u8; 30], &[]).unwrap();
    }
    batch
}

fn begun(disk: &ToldDisk) -> Journal<Bytes> {
    let journal = Journal::<Bytes>::open(disk, PATH, Open::Create).unwrap();
    journal.begin([1; 16]).unwrap();
    journal
}

/// What is done to the file from now on, reads aside.
fn told(disk: &ToldDisk) -> Arc<Mutex<Vec<Op>>> {
    let told = Arc::<Mutex<Vec<Op>>>::default();
    let tell = told.clone();
    disk.tell(move |_, op| {
        if !matches!(op, Op::Read { .. }) {
            tell.lock().unwrap().push(op);
        }
        Ok(())
    });
    told
}

#[test]
fn what_was_written_is_found_again_and_what_is_put_in_its_place_too() {
    let disk = ToldDisk::new(4 << 20);
    let journal = begun(&disk);
    journal.write(START, batch(0, 3).bytes()).unwrap();
    journal.sync().unwrap();
    let again = Journal::<Bytes>::open(&disk, PATH, Open::Existing).unwrap();
    assert_eq!(again.id().unwrap(), Ok([1; 16]));
    assert_eq!(again.scan(|_| {}).unwrap().records, 3);
    assert!(journal.is_current(&disk).unwrap());
    let whole = [&encode_header::<Bytes>([2; 16])[..], batch(0, 1).bytes()].concat();
    let shorter = Journal::<Bytes>::replace(&disk, PATH, &whole).unwrap();
    assert_eq!(shorter.id().unwrap(), Ok([2; 16]));
    assert_eq!(shorter.scan(|_| {}).unwrap().records, 1);
    assert!(!journal.is_current(&disk).unwrap());
    disk.remove(PATH).unwrap();
    assert!(!shorter.is_current(&disk).unwrap());
}

#[test]
fn the_length_is_set_again_and_the_last_batch_written_again_as_it_was_and_each_synced() {
    let disk = ToldDisk::new(4 << 20);
    let journal = begun(&disk);
    let batches = [batch(0, 2), batch(2, 4_000)];
    let mut at = START;
    for batch in &batches {
        journal.write(at, batch.bytes()).unwrap();
        at += batch.bytes().len() as u64;
    }
    let scan = journal.scan(|_| {}).unwrap();
    let second = START + batches[0].bytes().len() as u64;
    assert_eq!((scan.last_batch, scan.valid_len), (second, at));
    let before = disk.contents(PATH);
    let told = told(&disk);
    journal.settle(scan.last_batch, scan.valid_len).unwrap();
    assert!(disk.contents(PATH) == before);
    let ops = std::mem::take(&mut *told.lock().unwrap());
    let (length, ops) = ops.split_at(3);
    assert!(matches!(length[0], Op::SetLen(longer) if longer > at));
    assert_eq!(length[1..], [Op::SetLen(at), Op::Sync]);
    let mut written = second;
    for op in &ops[..ops.len() - 1] {
        let Op::Write { at, len } = *op else {
            panic!("synced before all was written: {ops:?}");
        };
        assert_eq!(at, written);
        written += len as u64;
    }
    assert!(ops.len() > 2, "a batch of more than one piece: {ops:?}");
    assert_eq!((written, ops.last()), (at, Some(&Op::Sync)));
    journal.settle(at, at).unwrap();
    assert_eq!(*told.lock().unwrap(), length, "no batch to settle");
}

#[test]
fn a_cut_that_failed_is_not_believed_the_next_time() {
    let disk = ToldDisk::new(4 << 20);
    let mut journal = begun(&disk);
    journal.write(START, batch(0, 2).bytes()).unwrap();
    disk.tell(|_, op| match op {
        Op::Sync => Err(io::Error::other("EIO")),
        _ => Ok(()),
    });
    journal.cut(START).unwrap_err();
    let told = told(&disk);
    journal.cut(START).unwrap();
    let ops = std::mem::take(&mut *told.lock().unwrap());
    assert!(
        matches!(ops[0], Op::SetLen(longer) if longer > START),
        "{ops:?}"
    );
    assert_eq!(ops[1..], [Op::SetLen(START), Op::Sync]);
    journal.cut(START).unwrap();
    assert_eq!(*told.lock().unwrap(), [Op::SetLen(START), Op::Sync]);
    assert_eq!(journal.scan(|_| {}).unwrap().records, 0);
}
