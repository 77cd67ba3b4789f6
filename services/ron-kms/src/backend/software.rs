//! `software`: keys sealed under the key store's data key, used in this process.

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

pub struct SoftwareBackend(Local);

impl SoftwareBackend {
    /// `kek` is [`KeyStore::kek`](crate::keystore::KeyStore::kek)'s.
    pub fn new(env: &Env, kek: Arc<Kek>) -> SoftwareBackend {
        SoftwareBackend(Local::new(env, "software", kek, None))
    }

    /// With another source of RSA secrets than the library's generator.
    pub fn with_rsa(env: &Env, kek: Arc<Kek>, rsa: RsaSource) -> SoftwareBackend {
        SoftwareBackend(Local::new(env, "software", kek, Some(rsa)))
    }
}

backend_of_local!(SoftwareBackend);
