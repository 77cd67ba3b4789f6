//! The pool's file: a journal of the kernel with one record a batch.

use ron_core::journal::{self, Broken, CHECK, Format, Refused, Rot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: u64,
    pub incarnation: u32,
}

/// The format of the file.
#[derive(Debug)]
pub struct Items;

impl Format for Items {
    const MAGIC: [u8; 8] = *b"RONPOOLI";
    const FRAME: [u8; 4] = *b"\xabRPI";
    const VERSION: u16 = 1;
    const NAME: &'static str = "items log";
    const PROGRAM: &'static str = "sim";
    const MAX_ATTACHMENT: usize = 0;
    const ROT: Rot = Rot::Stop;

    type Record = Record;
    type Error = std::convert::Infallible;

    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        let mut check = [0; CHECK];
        hasher.finalize_xof().fill(&mut check);
        check
    }

    fn encode(record: &Record, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        out.extend(record.key.to_le_bytes());
        out.extend(record.incarnation.to_le_bytes());
        Ok(())
    }

    fn decode(_: u64, bytes: &[u8]) -> Result<Record, Refused> {
        let record = bytes.split_first_chunk().and_then(|(key, incarnation)| {
            Some(Record {
                key: u64::from_le_bytes(*key),
                incarnation: u32::from_le_bytes(incarnation.try_into().ok()?),
            })
        });
        record.ok_or(Refused::Broken(Broken::BadRecord))
    }
}

/// The records of the valid part.
pub fn read(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let _ = journal::scan::<Items>(bytes, |frame| records.push(frame.record));
    records
}
