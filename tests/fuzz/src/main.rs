//! The fuzzer: `FUZZ_TARGET` names the target, so that all of them are one binary and link once.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "the macro writes what it finds")]

use std::sync::LazyLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let asked = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let found = TARGETS.iter().find(|(name, _)| *name == asked);
    found
        .unwrap_or_else(|| panic!("FUZZ_TARGET is one of {}", known.join(", ")))
        .1
});

fuzz_target!(|data: &[u8]| CHOSEN(data));
