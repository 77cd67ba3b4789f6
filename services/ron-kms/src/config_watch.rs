//! The config watch: puts a reloaded configuration in force and asks the backend again.

use std::{sync::Arc, time::Duration};

use ron_core::{
    bus::{KernelEvent, Subscriber},
    lock::{LockDecl, RankedMutex},
    snapshot::SnapshotWriter,
    supervisor::TaskContext,
};

use crate::{config::Config, engine::Engine};

pub const CONFIG_LOCK: LockDecl = LockDecl {
    name: "config",
    rank: 8,
    guards: "the writer of the configuration in force",
};

/// Where the newest configuration is found.
pub type Source = Arc<dyn Fn() -> Arc<Config> + Send + Sync>;

pub(crate) struct ConfigWatch {
    pub engine: Arc<Engine>,
    pub writer: RankedMutex<SnapshotWriter<Config>>,
    pub source: Source,
}

impl ConfigWatch {
    pub async fn run(self: Arc<Self>, mut events: Subscriber, context: TaskContext) {
        // What was published before this incarnation listened is in force already, or is put so now.
        self.apply();
        loop {
            let event = tokio::select! {
                biased;
                () = context.stop.wait() => return,
                event = events.recv() => event,
            };
            match event {
                Some(KernelEvent::ConfigUpdated { version }) => {
                    self.apply();
                    let up = tokio::select! {
                        biased;
                        () = context.stop.wait() => return,
                        up = self.engine.refresh() => up,
                    };
                    tracing::info!(version, backend_up = up, "configuration reloaded");
                    context.env.probe("kms.config", version, format_args!(""));
                }
                Some(_) => {}
                None => return context.stop.wait().await,
            }
        }
    }

    fn apply(&self) {
        let config = (self.source)();
        let ttl = Duration::from_millis(config.verify.cache_ttl_ms);
        self.engine.verify.lock().set_ttl(ttl);
        self.writer.lock().publish((*config).clone());
    }
}
