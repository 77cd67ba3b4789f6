//! What the service was told at its start, as far as an answer depends on it.
//!
//! Read from the scenario with the defaults of the documentation, not with the service's own code, so that a slip in
//! how settings are read is seen. Always: a key that is not set has the value that the table of settings names.

use toml::Table;

#[derive(Clone, Debug)]
pub struct Settings {
    pub strict: bool,
    pub ingress: bool,
    pub origin: String,
    pub refresh_ms: u64,
    pub rotate_min_ms: u64,
    pub max_keys: u64,
    pub nonce_range: u64,
    pub op_id_results: u64,
    pub checkpoint_ms: u64,
    pub signers: u64,
    pub queue_cap: u64,
    pub audit_cap: u64,
}

impl Settings {
    pub fn of(table: &Table) -> Settings {
        let number = |key: &str, default: i64| {
            let set = table.get(key).and_then(toml::Value::as_integer);
            set.unwrap_or(default) as u64
        };
        let text = |key: &str, default: &str| {
            let set = table.get(key).and_then(toml::Value::as_str);
            set.unwrap_or(default).to_owned()
        };
        Settings {
            strict: text("audit.policy", "shed") == "strict",
            ingress: text("auth.mode", "none") == "ingress",
            origin: text("audit.origin", "localhost/ron-kms"),
            refresh_ms: number("verify.refresh_ms", 1000),
            rotate_min_ms: number("rotate_after_min_ms", 60_000),
            max_keys: number("max_keys", 10_000),
            nonce_range: number("nonce_range", 1024),
            op_id_results: number("op_id_results", 65_536),
            checkpoint_ms: number("audit.checkpoint_interval_ms", 1000),
            signers: number("signers", 4),
            queue_cap: number("queue_cap", 512),
            audit_cap: number("audit.queue_cap", 2048),
        }
    }
}
