//! One target for each parser of bytes that somebody else wrote.
//!
//! `FUZZ_TARGET=dht_records cargo fuzz run fuzz` explores one of them; the test runs each over seeded inputs.
#![allow(
    clippy::disallowed_methods,
    reason = "some targets parse in threads of their own"
)]

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};

/// Takes any bytes; panics where the parser broke its promise.
pub type Target = fn(&[u8]);

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        mod targets { $(pub mod $name;)* }
        pub const TARGETS: &[(&str, Target)] =
            &[$((stringify!($name), |data| feed(data, targets::$name::run))),*];
    };
}

targets! {
    audit_note,
    audit_receipt,
    audit_tiles,
    config,
    dht_envelope,
    dht_frames,
    dht_handshake,
    dht_providers,
    dht_records,
    headers,
    inflate,
    journal,
    kms_requests,
    scenario,
}

fn feed<'a, T: Arbitrary<'a>>(data: &'a [u8], run: impl Fn(T)) {
    if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(data)) {
        run(input);
    }
}
