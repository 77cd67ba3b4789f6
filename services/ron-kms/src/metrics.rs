//! The service's own metrics, beside those of the kernel.

use std::{collections::BTreeMap, sync::Arc};

use prometheus::{IntCounter, IntGauge};
use ron_core::telemetry::{Counters, Telemetry};

#[derive(Clone)]
pub struct Metrics {
    pub audit_dropped: IntCounter,
    pub integrity_failed: IntCounter,
    pub verify_cache_expired: IntCounter,
    pub verify_cache_age_ms: IntGauge,
    pub keys_full: IntGauge,
    pub io_timeouts: Counters,
    pub backoff_retries: Counters,
    pub quota_reject: Counters,
    /// Answered operations, by action and code (`ok` if none).
    pub operations: Counters,
    /// Those of them that went well, by action: looked up once.
    pub done: Arc<BTreeMap<&'static str, IntCounter>>,
}

/// What is counted as an operation.
const ACTIONS: [&str; 14] = [
    "create",
    "import",
    "rotate",
    "policy",
    "disable",
    "enable",
    "destroy",
    "cancel_destroy",
    "sign",
    "verify",
    "wrap",
    "unwrap",
    "data_key",
    "attest",
];

impl Metrics {
    pub fn new(telemetry: &Telemetry) -> Metrics {
        let kernel = telemetry.kernel();
        let operations = telemetry.counters(
            "kms_operations_total",
            "Operations answered, by action and code.",
            &["action", "code"],
            512,
        );
        let done = ACTIONS.map(|action| (action, operations.with(&[action, "ok"])));
        Metrics {
            audit_dropped: telemetry.counter(
                "audit_dropped_total",
                "Audit events that got no record; a gap record tells of them while the log takes records.",
            ),
            integrity_failed: telemetry.counter(
                "kms_audit_integrity_failed_total",
                "Checkpoints missed or failed, and audit logs that do not verify.",
            ),
            verify_cache_expired: telemetry.counter(
                "verify_cache_expired_total",
                "Verifications refused because the key index was too old.",
            ),
            verify_cache_age_ms: telemetry.gauge(
                "verify_cache_age_ms",
                "Age of the key index while the backend is out; 0 otherwise.",
            ),
            keys_full: telemetry.gauge(
                "kms_keys_full",
                "Keys that their policy would rotate, but that have as many versions as a key may have.",
            ),
            io_timeouts: kernel.io_timeouts.clone(),
            backoff_retries: kernel.backoff_retries.clone(),
            quota_reject: kernel.quota_reject.clone(),
            operations,
            done: Arc::new(done.into()),
        }
    }

    pub fn count(&self, action: &'static str, failed: Option<&'static str>) {
        match (failed, self.done.get(action)) {
            (None, Some(done)) => done.inc(),
            (code, _) => self.operations.with(&[action, code.unwrap_or("ok")]).inc(),
        }
    }
}
