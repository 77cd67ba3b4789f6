//! The worker pool's record log: the valid prefix of any bytes is well defined and re-encodes to itself.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "the macro writes what it finds")]

use libfuzzer_sys::fuzz_target;
use sim::pool::log;

fuzz_target!(|bytes: &[u8]| {
    let (records, valid) = log::read(bytes);
    let again: Vec<u8> = records.iter().flat_map(log::Record::encode).collect();
    assert_eq!(again, bytes[..valid]);
});
