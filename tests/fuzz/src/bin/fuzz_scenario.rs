//! Scenario files: any text parses or is refused in one line.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "the macro writes what it finds")]

use libfuzzer_sys::fuzz_target;
use sim::scenario::Scenario;

fuzz_target!(|text: &str| {
    if let Err(error) = Scenario::parse("fuzz", "fuzz.toml", text) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
});
