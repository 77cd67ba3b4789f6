//! Keys in this process: sealed under the key-encryption key at rest, opened at their first use.
//!
//! What is short runs where it is called; RSA and long batches go to the CPU pool, so that no executor
//! thread is held for more than a few milliseconds. Randomness for keys comes from [`Env`] alone, but for
//! RSA, whose source is the caller's: a simulation hands out stored keys.

use std::sync::Arc;

use ron_core::{Env, seam::Pool};

use super::{BackendError, Info, Made, Material, Message};
use crate::{
    keys::{
        Algorithm, Secret, VersionedKid,
        nonce::Nonce,
        sealing::{SealingError, SealingKey},
        signing::{Signature, SigningError, SigningKey},
        xwing::XWingKey,
    },
    keystore::Kek,
};

/// Makes RSA secrets, as PKCS#8.
pub type RsaSource = Arc<dyn Fn() -> Result<Secret, SigningError> + Send + Sync>;

/// Hands out these keys in turn, for a world that must repeat itself: each a PKCS#8 document.
pub fn rsa_fixtures(documents: &'static [&'static [u8]]) -> RsaSource {
    let next = std::sync::atomic::AtomicUsize::new(0);
    Arc::new(move || {
        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let document = documents.get(at % documents.len().max(1));
        let document = document.ok_or(SigningError::Failed(Algorithm::RsaPss3072))?;
        SigningKey::import_pkcs8(Algorithm::RsaPss3072, document)
    })
}

#[derive(Clone)]
pub(super) struct Local {
    env: Env,
    kek: Arc<Kek>,
    rsa: RsaSource,
    info: Arc<Info>,
}

/// A key in use.
#[derive(Debug)]
enum Opened {
    Signing(SigningKey),
    Sealing(SealingKey),
    XWing(Box<XWingKey>),
}

impl Local {
    pub fn new(env: &Env, name: &'static str, kek: Arc<Kek>, rsa: Option<RsaSource>) -> Local {
        Local {
            env: env.clone(),
            kek,
            rsa: rsa.unwrap_or_else(|| Arc::new(SigningKey::generate_rsa)),
            info: Arc::new(Info {
                name,
                algorithms: Algorithm::ALL.to_vec(),
                extractable: true,
            }),
        }
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    pub async fn generate(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
    ) -> Result<Made, BackendError> {
        self.info.supports(algorithm)?;
        let fill = &mut |buf: &mut [u8]| self.env.fill_random(buf);
        let secret = match algorithm {
            Algorithm::RsaPss3072 => return self.generate_rsa(id).await,
            Algorithm::XWing => XWingKey::generate(fill),
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => {
                SealingKey::generate(algorithm, fill)?
            }
            _ => SigningKey::generate(algorithm, fill)?,
        };
        self.make(id, algorithm, &secret)
    }

    pub async fn import(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        secret: Secret,
    ) -> Result<Made, BackendError> {
        self.info.supports(algorithm)?;
        if algorithm != Algorithm::RsaPss3072 {
            return self.make(id, algorithm, &secret);
        }
        let (local, id) = (self.clone(), id.clone());
        self.on_cpu(move || local.make(&id, algorithm, &secret))
            .await
    }

    pub async fn sign(
        &self,
        key: &Material,
        inputs: &[Message],
    ) -> Result<Vec<Vec<Signature>>, BackendError> {
        if key.algorithm == Algorithm::RsaPss3072 {
            return self.sign_rsa(key, inputs).await;
        }
        let opened = self.opened(key)?;
        if self.signs_at_once(key, inputs) {
            return sign_all(&opened, inputs);
        }
        let inputs = inputs.to_vec();
        self.on_cpu(move || sign_all(&opened, &inputs)).await
    }

    /// RSA never does: opening a key of it checks its primes.
    pub fn signs_at_once(&self, key: &Material, inputs: &[Message]) -> bool {
        key.algorithm != Algorithm::RsaPss3072 && cost_us(key.algorithm, inputs) <= INLINE_US
    }

    pub fn wrap(
        &self,
        key: &Material,
        nonce: Option<Nonce>,
        plain: &Secret,
        context: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match (&*self.opened(key)?, nonce) {
            (Opened::Sealing(sealing), Some(nonce)) => {
                Ok(sealing.wrap(nonce, plain.expose(), context)?)
            }
            (Opened::XWing(xwing), None) => {
                let fill = &mut |buf: &mut [u8]| self.env.fill_random(buf);
                Ok(xwing.wrap(plain.expose(), context, fill)?)
            }
            (Opened::Sealing(_) | Opened::XWing(_), _) => {
                Err(SealingError::Failed(key.algorithm).into())
            }
            (Opened::Signing(_), _) => Err(SealingError::NotForWrapping(key.algorithm).into()),
        }
    }

    pub fn unwrap(
        &self,
        key: &Material,
        blob: &[u8],
        context: &[u8],
    ) -> Result<Secret, BackendError> {
        match &*self.opened(key)? {
            Opened::Sealing(sealing) => Ok(sealing.unwrap(blob, context)?),
            Opened::XWing(xwing) => Ok(xwing.unwrap(blob, context)?),
            Opened::Signing(_) => Err(SealingError::NotForWrapping(key.algorithm).into()),
        }
    }

    async fn generate_rsa(&self, id: &VersionedKid) -> Result<Made, BackendError> {
        let (local, id) = (self.clone(), id.clone());
        self.on_cpu(move || {
            let secret = (local.rsa)()?;
            local.make(&id, Algorithm::RsaPss3072, &secret)
        })
        .await
    }

    /// Opening an RSA key checks its primes: that belongs on the CPU pool too.
    async fn sign_rsa(
        &self,
        key: &Material,
        inputs: &[Message],
    ) -> Result<Vec<Vec<Signature>>, BackendError> {
        let inputs = inputs.to_vec();
        if key.opened.get().is_some() {
            let opened = self.opened(key)?;
            return self.on_cpu(move || sign_all(&opened, &inputs)).await;
        }
        let local = self.clone();
        let (id, algorithm, sealed) = (key.id.clone(), key.algorithm, key.sealed.clone());
        let (opened, signed) = self
            .on_cpu(move || {
                let opened = Arc::new(local.open(&id, algorithm, &sealed)?);
                let signed = sign_all(&opened, &inputs);
                Ok((opened, signed))
            })
            .await?;
        let _ = key.opened.set(Box::new(opened));
        signed
    }

    /// Seals a secret that makes a proper key, and only such a one.
    fn make(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        secret: &Secret,
    ) -> Result<Made, BackendError> {
        let public = match self.ready(id, algorithm, secret)? {
            Opened::Signing(signing) => signing.public().raw().to_vec(),
            Opened::Sealing(_) => Vec::new(),
            Opened::XWing(xwing) => xwing.public().raw(),
        };
        let fill = &mut |buf: &mut [u8]| self.env.fill_random(buf);
        let sealed = self.kek.seal_key(id, algorithm, secret, fill);
        let sealed = sealed.ok_or(SealingError::Failed(algorithm))?;
        Ok(Made { sealed, public })
    }

    fn opened(&self, key: &Material) -> Result<Arc<Opened>, BackendError> {
        let damaged = || BackendError::Damaged(key.id.clone());
        if let Some(opened) = key.opened.get() {
            let opened = opened.downcast_ref::<Arc<Opened>>();
            return opened.cloned().ok_or_else(damaged);
        }
        let opened = Arc::new(self.open(&key.id, key.algorithm, &key.sealed)?);
        let _ = key.opened.set(Box::new(opened.clone()));
        Ok(opened)
    }

    fn open(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        sealed: &[u8],
    ) -> Result<Opened, BackendError> {
        let secret = self.kek.open_key(id, algorithm, sealed);
        let secret = secret.ok_or_else(|| BackendError::Damaged(id.clone()))?;
        self.ready(id, algorithm, &secret)
    }

    fn ready(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        secret: &Secret,
    ) -> Result<Opened, BackendError> {
        Ok(match algorithm {
            Algorithm::XWing => Opened::XWing(Box::new(XWingKey::from_secret(id.clone(), secret)?)),
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => {
                Opened::Sealing(SealingKey::from_secret(id.clone(), algorithm, secret)?)
            }
            _ => Opened::Signing(SigningKey::from_secret(algorithm, secret)?),
        })
    }

    async fn on_cpu<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let done = self.env.offload(Pool::CPU, job).await;
        done.map_err(|_| BackendError::Unavailable("the job was lost".to_owned()))?
    }
}

/// The longest that a call may take where it is called.
const INLINE_US: u64 = 2_000;

/// About how long signing takes; only its size matters.
fn cost_us(algorithm: Algorithm, inputs: &[Message]) -> u64 {
    let each = match algorithm {
        Algorithm::Ed25519 | Algorithm::EcdsaP256 => 25,
        Algorithm::EcdsaP384 | Algorithm::MlDsa65 | Algorithm::Ed25519MlDsa65 => 250,
        _ => 2_500,
    };
    let bytes = |input: &Message| match input {
        Message::Whole(bytes) | Message::Prehashed { digest: bytes, .. } => bytes.len() as u64,
    };
    let hashed: u64 = inputs.iter().map(bytes).sum();
    each * inputs.len() as u64 + hashed / 300
}

fn sign_all(key: &Opened, inputs: &[Message]) -> Result<Vec<Vec<Signature>>, BackendError> {
    let key = match key {
        Opened::Signing(key) => key,
        Opened::Sealing(key) => return Err(SigningError::NotForSigning(key.algorithm()).into()),
        Opened::XWing(_) => return Err(SigningError::NotForSigning(Algorithm::XWing).into()),
    };
    let signed = inputs.iter().map(|input| key.sign(input.input()));
    Ok(signed.collect::<Result<_, _>>()?)
}

/// The trait, for a type whose only field is a [`Local`].
macro_rules! backend_of_local {
    ($backend:ty) => {
        impl crate::backend::Backend for $backend {
            fn info(&self) -> &Info {
                self.0.info()
            }

            fn generate<'a>(
                &'a self,
                id: &'a VersionedKid,
                algorithm: Algorithm,
            ) -> BoxFuture<'a, Result<Made, BackendError>> {
                Box::pin(self.0.generate(id, algorithm))
            }

            fn import<'a>(
                &'a self,
                id: &'a VersionedKid,
                algorithm: Algorithm,
                secret: Secret,
            ) -> BoxFuture<'a, Result<Made, BackendError>> {
                Box::pin(self.0.import(id, algorithm, secret))
            }

            fn sign<'a>(
                &'a self,
                key: &'a Material,
                inputs: &'a [Message],
            ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>> {
                Box::pin(self.0.sign(key, inputs))
            }

            fn signs_at_once(&self, key: &Material, inputs: &[Message]) -> bool {
                self.0.signs_at_once(key, inputs)
            }

            fn wrap<'a>(
                &'a self,
                key: &'a Material,
                nonce: Option<Nonce>,
                plain: &'a Secret,
                context: &'a [u8],
            ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>> {
                Box::pin(async move { self.0.wrap(key, nonce, plain, context) })
            }

            fn unwrap<'a>(
                &'a self,
                key: &'a Material,
                blob: &'a [u8],
                context: &'a [u8],
            ) -> BoxFuture<'a, Result<Secret, BackendError>> {
                Box::pin(async move { self.0.unwrap(key, blob, context) })
            }

            /// The sealed secret is the store's to erase; an opened one ends with its [`Material`].
            fn destroy<'a>(&'a self, _: &'a Material) -> BoxFuture<'a, Result<(), BackendError>> {
                Box::pin(async { Ok(()) })
            }

            fn check(&self) -> BoxFuture<'_, Result<(), BackendError>> {
                Box::pin(async { Ok(()) })
            }
        }
    };
}
pub(super) use backend_of_local;
