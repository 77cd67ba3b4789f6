//! Compressed bodies: whatever arrives, what comes out stays within the limits.

use ron_core::admission::{InflateLimits, Inflater};

pub fn run(chunks: Vec<Vec<u8>>) {
    let limits = InflateLimits {
        max_ratio: 10,
        max_bytes: 64 * 1024,
    };
    let mut inflater = Inflater::new(limits);
    let mut out = 0;
    for chunk in chunks {
        match inflater.push(&chunk) {
            Ok(bytes) => out += bytes.len() as u64,
            Err(_) => return,
        }
        assert!(out <= limits.max_bytes);
    }
}
