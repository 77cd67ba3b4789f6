//! The software backend, with what a real token does besides: it takes time, goes away, hangs.

use std::{sync::Arc, time::Duration};

use ron_core::{Env, seam::BoxFuture};
use ron_kms::{
    backend::{Backend, BackendError, Info, Made, Material, Message, software::SoftwareBackend},
    keys::{Algorithm, Secret, VersionedKid, nonce::Nonce, signing::Signature},
    keystore::Kek,
};

use crate::{
    chaos::{Chaos, Outage},
    timer,
};

/// What a use of a key costs, before a slow backend multiplies it.
const COST: Duration = Duration::from_micros(50);

pub struct SimBackend {
    inner: SoftwareBackend,
    env: Env,
    chaos: Arc<Chaos>,
    /// In every other life signing takes no time, as with keys in the process: then it needs no signer.
    quick: bool,
}

impl SimBackend {
    pub fn new(env: &Env, kek: Arc<Kek>, chaos: Arc<Chaos>) -> SimBackend {
        SimBackend {
            inner: SoftwareBackend::new(env, kek),
            env: env.clone(),
            chaos,
            quick: is_quick(env),
        }
    }

    /// As long as the backend hangs, so does its caller; while it is away, every call fails.
    async fn reach(&self, cost: Duration) -> Result<(), BackendError> {
        let cost = cost * self.chaos.backend_slowness();
        if !cost.is_zero() {
            self.env.sleep(cost).await;
        }
        while let Some(until) = self.chaos.outage(Outage::Hangs) {
            // By the world's clock: the node's own may be ahead, and would wait no time at all.
            timer::sleep_until(until).await;
        }
        match self.chaos.outage(Outage::Away) {
            None => Ok(()),
            Some(_) => Err(BackendError::Unavailable("the token is not there".into())),
        }
    }
}

fn is_quick(env: &Env) -> bool {
    let mut drawn = [0];
    env.fill_random(&mut drawn);
    drawn[0] & 1 == 0
}

impl Backend for SimBackend {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn generate<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        Box::pin(async move {
            self.reach(COST).await?;
            self.inner.generate(id, algorithm).await
        })
    }

    fn import<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
        secret: Secret,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        Box::pin(async move {
            self.reach(COST).await?;
            self.inner.import(id, algorithm, secret).await
        })
    }

    fn sign<'a>(
        &'a self,
        key: &'a Material,
        inputs: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>> {
        Box::pin(async move {
            if !self.signs_at_once(key, inputs) {
                self.reach(COST * inputs.len() as u32).await?;
            }
            self.inner.sign(key, inputs).await
        })
    }

    fn signs_at_once(&self, key: &Material, inputs: &[Message]) -> bool {
        let well = self.chaos.backend_slowness() <= 1
            && self.chaos.outage(Outage::Hangs).is_none()
            && self.chaos.outage(Outage::Away).is_none();
        self.quick && well && self.inner.signs_at_once(key, inputs)
    }

    fn wrap<'a>(
        &'a self,
        key: &'a Material,
        nonce: Option<Nonce>,
        plain: &'a Secret,
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>> {
        Box::pin(async move {
            self.reach(COST).await?;
            self.inner.wrap(key, nonce, plain, context).await
        })
    }

    fn unwrap<'a>(
        &'a self,
        key: &'a Material,
        blob: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Secret, BackendError>> {
        Box::pin(async move {
            self.reach(COST).await?;
            self.inner.unwrap(key, blob, context).await
        })
    }

    fn destroy<'a>(&'a self, key: &'a Material) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.reach(COST).await?;
            self.inner.destroy(key).await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            self.reach(Duration::ZERO).await?;
            self.inner.check().await
        })
    }
}
