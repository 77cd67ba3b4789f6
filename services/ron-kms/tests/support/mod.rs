//! A process on the real runtime: a data directory of its own, or none, and a way to wait for futures.
#![allow(dead_code, reason = "each test uses its part of it")]
#![allow(
    clippy::disallowed_methods,
    reason = "it makes and removes directories from outside of the service"
)]

#[cfg(feature = "pkcs11")]
pub mod token;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use ron_core::Env;
use ron_io::{Data, TokioOptions, TokioRuntime};
use tokio::runtime::{Builder, Runtime};

pub struct World {
    runtime: Runtime,
}

impl World {
    pub fn new() -> World {
        World {
            runtime: Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .unwrap(),
        }
    }

    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A process that forgets.
    pub fn forgetful(&self) -> Env {
        self.env(Data::Memory {
            limit_bytes: 64 << 20,
        })
    }

    pub fn on(&self, directory: &Path) -> Env {
        self.env(Data::Directory(directory.to_owned()))
    }

    fn env(&self, data: Data) -> Env {
        let options = TokioOptions {
            data,
            extra_ca_pem: None,
        };
        Env::new(TokioRuntime::new(self.runtime.handle().clone(), &options).unwrap())
    }
}

/// An empty directory, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = root.join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
