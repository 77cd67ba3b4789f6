//! The pool's file format: records one after the other, each with its length and checksum, so that the
//! valid prefix of any bytes is well defined.

/// Length, checksum, then key and incarnation.
const HEADER: usize = 8;
const BODY: usize = 12;
pub const RECORD: usize = HEADER + BODY;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: u64,
    pub incarnation: u32,
}

impl Record {
    pub fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&(BODY as u32).to_le_bytes());
        bytes[HEADER..HEADER + 8].copy_from_slice(&self.key.to_le_bytes());
        bytes[HEADER + 8..].copy_from_slice(&self.incarnation.to_le_bytes());
        let checksum = checksum(&bytes[HEADER..]);
        bytes[4..HEADER].copy_from_slice(&checksum);
        bytes
    }
}

/// The records of the valid prefix, and its length.
pub fn read(bytes: &[u8]) -> (Vec<Record>, usize) {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(bytes) = bytes.get(at..at + RECORD) {
        let body = &bytes[HEADER..];
        if bytes[..4] != (BODY as u32).to_le_bytes() || bytes[4..HEADER] != checksum(body) {
            break;
        }
        let key = u64::from_le_bytes(body[..8].try_into().expect("8 bytes"));
        let incarnation = u32::from_le_bytes(body[8..].try_into().expect("4 bytes"));
        records.push(Record { key, incarnation });
        at += RECORD;
    }
    (records, at)
}

fn checksum(body: &[u8]) -> [u8; 4] {
    blake3::hash(body).as_bytes()[..4]
        .try_into()
        .expect("4 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_or_flip_ends_the_valid_prefix_at_a_record_boundary() {
        let records: Vec<Record> = (0..4)
            .map(|n| Record {
                key: n,
                incarnation: 1,
            })
            .collect();
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        assert_eq!(read(&bytes), (records.clone(), bytes.len()));
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]).1, cut / RECORD * RECORD);
        }
        for flip in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[flip] ^= 1;
            assert_eq!(read(&bad).1, flip / RECORD * RECORD, "flip at {flip}");
        }
    }
}
