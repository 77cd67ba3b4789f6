//! `memory`: keys that end with the process. What it sealed, no later process opens.

use std::sync::Arc;

use ron_core::{Env, seam::BoxFuture};

use super::{
    BackendError, Info, Made, Material, Message,
    local::{Local, RsaSource, backend_of_local},
};
use crate::{
    keys::{Algorithm, Secret, VersionedKid, nonce::Nonce, signing::Signature},
    keystore::Kek,
};

pub struct MemoryBackend(Local);

impl MemoryBackend {
    pub fn new(env: &Env) -> MemoryBackend {
        MemoryBackend(Local::new(env, "memory", fresh(env), None))
    }

    /// With another source of RSA secrets than the library's generator.
    pub fn with_rsa(env: &Env, rsa: RsaSource) -> MemoryBackend {
        MemoryBackend(Local::new(env, "memory", fresh(env), Some(rsa)))
    }
}

fn fresh(env: &Env) -> Arc<Kek> {
    Arc::new(Kek::random(&mut |buf: &mut [u8]| env.fill_random(buf)))
}

backend_of_local!(MemoryBackend);
