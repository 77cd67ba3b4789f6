//! The runtime: every part of the seam behind one value.

use std::{path::PathBuf, sync::Arc};

use ron_core::seam::{Abort, BoxFuture, Disk, Pool, Probe, Runtime, Tasks};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{Fatal, FileDisk, MemoryDisk, http::Clients, pools::Pools};

#[derive(Clone, Debug)]
pub struct TokioOptions {
    pub data: Data,
    /// Authorities to trust for outbound TLS besides the system's, as PEM.
    pub extra_ca_pem: Option<Vec<u8>>,
}

/// Where files live.
#[derive(Clone, Debug)]
pub enum Data {
    /// In a directory, which is created if absent.
    Directory(PathBuf),
    /// Nowhere: amnesia mode.
    Memory { limit_bytes: u64 },
}

pub struct TokioRuntime {
    pub(crate) handle: Handle,
    pub(crate) clients: Clients,
    pools: Pools,
    disk: Arc<dyn Disk>,
}

impl TokioRuntime {
    /// Tasks and timers will belong to `handle`'s runtime.
    pub fn new(handle: Handle, options: &TokioOptions) -> Result<Self, Fatal> {
        let disk: Arc<dyn Disk> = match &options.data {
            Data::Directory(root) => Arc::new(FileDisk::open(root).map_err(|error| {
                Fatal::Config(format!("data directory {}: {error}", root.display()))
            })?),
            Data::Memory { limit_bytes } => Arc::new(MemoryDisk::new(*limit_bytes)),
        };
        let clients = Clients::new(options.extra_ca_pem.as_deref())
            .map_err(|error| Fatal::Config(format!("outbound TLS: {error}")))?;
        Ok(TokioRuntime {
            handle,
            clients,
            pools: Pools::default(),
            disk,
        })
    }
}

impl Runtime for TokioRuntime {
    fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
}

impl Probe for TokioRuntime {}

impl Tasks for TokioRuntime {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        Box::new(Task(self.handle.spawn(task).abort_handle()))
    }

    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.pools.offload(pool, job)
    }
}

struct Task(AbortHandle);

impl Abort for Task {
    fn abort(&self) {
        self.0.abort();
    }
}
