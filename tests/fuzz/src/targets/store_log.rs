//! The worker pool's record log: the valid prefix of any bytes is well defined and re-encodes to itself.

use sim::pool::log;

pub fn run(bytes: &[u8]) {
    let (records, valid) = log::read(bytes);
    let again: Vec<u8> = records.iter().flat_map(log::Record::encode).collect();
    assert_eq!(again, bytes[..valid]);
}
