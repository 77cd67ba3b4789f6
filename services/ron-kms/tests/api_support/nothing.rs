//! A backend that offers no algorithm: every key is refused before anything is queued for it.

use ron_core::seam::BoxFuture;
use ron_kms::{
    backend::{Backend, BackendError, Info, Made, Material, Message},
    keys::{Algorithm, Secret, VersionedKid, nonce::Nonce, signing::Signature},
};

pub struct NoBackend(Info);

impl NoBackend {
    pub fn new() -> NoBackend {
        NoBackend(Info {
            name: "none",
            algorithms: Vec::new(),
            extractable: false,
        })
    }
}

fn gone<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, BackendError>> {
    Box::pin(async { Err(BackendError::Unavailable("there is none".into())) })
}

impl Backend for NoBackend {
    fn info(&self) -> &Info {
        &self.0
    }

    fn generate<'a>(
        &'a self,
        _: &'a VersionedKid,
        _: Algorithm,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        gone()
    }

    fn import<'a>(
        &'a self,
        _: &'a VersionedKid,
        _: Algorithm,
        _: Secret,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        gone()
    }

    fn sign<'a>(
        &'a self,
        _: &'a Material,
        _: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>> {
        gone()
    }

    fn wrap<'a>(
        &'a self,
        _: &'a Material,
        _: Option<Nonce>,
        _: &'a Secret,
        _: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>> {
        gone()
    }

    fn unwrap<'a>(
        &'a self,
        _: &'a Material,
        _: &'a [u8],
        _: &'a [u8],
    ) -> BoxFuture<'a, Result<Secret, BackendError>> {
        gone()
    }

    fn destroy<'a>(&'a self, _: &'a Material) -> BoxFuture<'a, Result<(), BackendError>> {
        gone()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        gone()
    }
}
