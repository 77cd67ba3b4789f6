//! The pool's configuration, as a scenario writes it.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    pub workers: u32,
    pub queue_cap: usize,
    pub drain_deadline_ms: u64,
    /// How long a handler waits for its job.
    pub request_deadline_ms: u64,
    /// What a job costs besides its disk operations.
    pub job_ms: u64,
    /// Readiness while a worker is being restarted: kept or dropped.
    pub ready_while_restarting: bool,
    /// Sleeps again and again and tells how long each sleep lasted.
    pub ticker: bool,
    /// A task that asks for the shutdown signal only this long after its start.
    pub late_ms: Option<u64>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig {
            workers: 4,
            queue_cap: 16,
            drain_deadline_ms: 3000,
            request_deadline_ms: 1500,
            job_ms: 0,
            ready_while_restarting: true,
            ticker: false,
            late_ms: None,
        }
    }
}

impl PoolConfig {
    pub fn from_table(table: &toml::Table) -> Result<Self, String> {
        let config: PoolConfig = table
            .clone()
            .try_into()
            .map_err(|e: toml::de::Error| e.message().replace('\n', " "))?;
        if config.workers == 0 || config.workers > 64 {
            return Err(format!("workers = {} must be 1 to 64", config.workers));
        }
        if config.queue_cap == 0 {
            return Err("queue_cap = 0 must be at least 1".to_owned());
        }
        Ok(config)
    }
}
