//! The `ingress.*` keys that set the limits of the admission layer.

use std::time::Duration;

use super::{InflateLimits, Limits};

crate::settings! {
    /// What a request may ask of the service.
    pub struct AdmissionConfig {
        /// Deadline of a request that names none, and time for its body to arrive.
        timeout_secs: u64 = 5 => 1..=300, restart;
        /// Requests served at once; more are answered 429.
        max_inflight: usize = 512 => 1..=65_536, restart;
        /// Requests let in per second; more are answered 429. 0 for no limit.
        rps_limit: u32 = 500 => 0..=1_000_000, restart;
        /// Largest request body; more is answered 413.
        body_bytes: u64 = 1_048_576 => 1..=10_485_760, restart;
        /// How many times its size a compressed body may expand to.
        decompress_max_ratio: u32 = 10 => 1..=1_000, restart;
        /// What a compressed body may expand to at all.
        decompress_abs_bytes: u64 = 10_485_760 => 1..=10_485_760, restart;
    }
}

impl AdmissionConfig {
    pub fn limits(&self) -> Limits {
        let timeout = Duration::from_secs(self.timeout_secs);
        Limits {
            timeout,
            max_in_flight: self.max_inflight,
            rate_per_s: (self.rps_limit > 0).then_some(self.rps_limit),
            body_cap: self.body_bytes,
            body_timeout: timeout,
            inflate: InflateLimits {
                max_ratio: self.decompress_max_ratio,
                max_bytes: self.decompress_abs_bytes,
            },
        }
    }
}
