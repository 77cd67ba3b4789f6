//! The file of records, append-only, the truth of the audit log: a journal of the kernel, by this format.
//!
//! Rot stops the reading: what was durable and is not valid any more is evidence, and nothing is cut. A record's own bytes
//! are its leaf in the tree; an attachment travels with it but is no part of the leaf (a result kept for replay).

use ron_core::journal::{self, CHECK, Format, Refused, Rot};
pub use ron_core::journal::{Broken, End, HEADER_LEN, HeaderError, JournalId as LogId, Scan};

use super::{
    merkle::sha256,
    record::{Record, RecordError},
};

pub const MAX_ATTACHMENT: usize = 1024 * 1024;

pub type Batch = journal::Batch<Audit>;
pub type Scanner = journal::Scanner<Audit>;
pub type Framed<'a> = journal::Frame<'a, Record>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Audit;

impl Format for Audit {
    const MAGIC: [u8; 8] = *b"RONKMSAL";
    const FRAME: [u8; 4] = *b"\xabRKF";
    const VERSION: u16 = 1;
    const NAME: &'static str = "audit log";
    const PROGRAM: &'static str = "ron-kms";
    const MAX_ATTACHMENT: usize = MAX_ATTACHMENT;
    const ROT: Rot = Rot::Stop;

    type Record = Record;
    type Error = RecordError;

    /// The first bytes of SHA-256: no checksum is cheaper to trust, and a record costs a signature anyway.
    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        let mut check = [0; CHECK];
        check.copy_from_slice(&sha256(parts)[..CHECK]);
        check
    }

    fn encode(record: &Record, out: &mut Vec<u8>) -> Result<(), RecordError> {
        record.encode_to(out)
    }

    fn decode(number: u64, leaf: &[u8]) -> Result<Record, Refused> {
        match Record::decode(leaf) {
            Ok(record) if record.index == number => Ok(record),
            Ok(record) => Err(Refused::Broken(Broken::WrongIndex {
                expected: number,
                found: record.index,
            })),
            Err(RecordError::Newer { found }) => Err(Refused::Newer(found)),
            Err(_) => Err(Refused::Broken(Broken::BadRecord)),
        }
    }
}

pub fn encode_header(id: LogId) -> Vec<u8> {
    journal::encode_header::<Audit>(id)
}

pub fn decode_header(bytes: &[u8]) -> Result<LogId, HeaderError> {
    journal::decode_header::<Audit>(bytes)
}

/// Reads a whole file that is in memory.
pub fn scan(bytes: &[u8], visit: impl FnMut(Framed<'_>)) -> Result<(LogId, Scan), HeaderError> {
    journal::scan::<Audit>(bytes, visit)
}

/// The length of the whole frame that these bytes begin with.
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    journal::frame_length::<Audit>(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by version 0.1.0, before the kernel had journals.
    const WRITTEN: &[u8] = include_bytes!("../../tests/data/v1/audit/log");

    #[test]
    fn a_log_of_the_first_version_reads_as_it_was_and_is_written_the_same() {
        let mut again = Vec::new();
        let (id, scan) = scan(WRITTEN, |framed| {
            let mut leaf = Vec::new();
            framed.record.encode_to(&mut leaf).unwrap();
            assert_eq!(leaf, framed.bytes);
            again.push((framed.record, framed.attachment.to_vec()));
        })
        .unwrap();
        assert_eq!((scan.records, scan.end), (13, End::Clean));
        assert_eq!(scan.valid_len, WRITTEN.len() as u64);
        // The first batch again, byte by byte: the header, the frame, the checks.
        let (record, attachment) = &again[0];
        let mut batch = Batch::new(0);
        batch.push(record, attachment).unwrap();
        let bytes = [&encode_header(id)[..], batch.bytes()].concat();
        assert!(WRITTEN.starts_with(&bytes));
    }

    #[test]
    fn a_newer_record_ends_the_reading_and_is_never_cut_off() {
        let mut batch = Batch::new(0);
        let newer = br#"{"v":9,"what":"ever"}"#;
        let put = batch.push_with(&[], |out| {
            out.extend(newer);
            Ok(())
        });
        put.unwrap();
        let file = [&encode_header([5; 16])[..], batch.bytes()].concat();
        let (_, scan) = scan(&file, |_| panic!("read")).unwrap();
        assert_eq!((scan.records, scan.valid_len), (0, HEADER_LEN as u64));
        assert_eq!(scan.end, End::Newer { found: 9 });
    }

    #[test]
    fn a_record_with_another_index_is_no_record() {
        let (_, whole) = scan(WRITTEN, |_| {}).unwrap();
        let first = frame_length(&WRITTEN[HEADER_LEN..]).unwrap();
        let without = [&WRITTEN[..HEADER_LEN], &WRITTEN[HEADER_LEN + first..]].concat();
        let (_, scan) = scan(&without, |_| {}).unwrap();
        let wrong = Broken::WrongIndex {
            expected: 0,
            found: 1,
        };
        assert_eq!((scan.records, scan.end), (0, End::Corrupt(wrong)));
        assert_eq!(whole.next, 13);
    }
}
