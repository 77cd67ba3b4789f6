//! A service that is deliberately not deterministic, so that the determinism check can be seen to fail.

use std::io::Read as _;

use ron_core::{config::ConfigErrors, seam::BoxFuture};

use crate::{
    pool::{self, PoolService},
    service::{ProcessContext, SimService},
    trace::StopReport,
};

/// The pool, after a sleep whose length comes from the real world.
pub struct Flaky;

impl SimService for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    fn port(&self) -> u16 {
        pool::PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        PoolService.check_config(config)
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(async move {
            let mut real = [0; 2];
            if let Ok(mut file) = std::fs::File::open("/dev/urandom") {
                let _ = file.read_exact(&mut real);
            }
            let micros = u64::from(u16::from_le_bytes(real));
            process
                .env
                .sleep(std::time::Duration::from_micros(micros))
                .await;
            PoolService.run(process).await
        })
    }
}
