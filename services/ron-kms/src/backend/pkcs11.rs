//! `pkcs11`: keys that live in a token and never leave it.
//!
//! What is stored for a version is a reference: the random id under which the token keeps the object. A
//! call blocks, so each runs on one of as many threads as there are sessions. When the token fails, every
//! call answers [`BackendError::Unavailable`] at once until [`check`](Backend::check) has found it again.

mod objects;
mod token;

use std::{path::PathBuf, sync::Arc};

use cryptoki::{
    mechanism::{Mechanism, aead::GcmParams},
    object::ObjectHandle,
    session::Session,
};
use ron_core::{
    Env,
    seam::{BoxFuture, Pool},
};

use self::token::{Failure, Token};
use super::{Backend, BackendError, Info, Made, Material, Message};
use crate::keys::{
    Algorithm, Secret, Use, VersionedKid,
    nonce::{NONCE_LEN, Nonce},
    sealing::{
        HEADER_LEN, MAX_CONTEXT, MAX_PLAIN, SealingError, TAG_LEN, bound_data, check_blob, header,
    },
    signing::{Checked, Signature, SigningError, SigningKey},
};

/// Where the keys are and how to get at them.
#[derive(Debug)]
pub struct Pkcs11Config {
    /// The vendor's library.
    pub module: PathBuf,
    pub token: TokenName,
    pub pin: Secret,
    /// How many calls run at once; more wait.
    pub sessions: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenName {
    Label(String),
    Slot(u64),
}

pub struct Pkcs11Backend {
    env: Env,
    pool: Pool,
    token: Arc<Token>,
    info: Info,
}

impl Pkcs11Backend {
    /// Loads the module, logs in, and asks the token what it can do.
    pub async fn connect(env: &Env, config: Pkcs11Config) -> Result<Pkcs11Backend, BackendError> {
        let pool = Pool {
            name: "pkcs11",
            threads: config.sessions.clamp(1, MOST_SESSIONS),
        };
        let connected = env.offload(pool, move || Token::connect(config));
        let (token, algorithms) = connected.await.map_err(|_| lost())??;
        Ok(Pkcs11Backend {
            env: env.clone(),
            pool,
            token: Arc::new(token),
            info: Info {
                name: "pkcs11",
                algorithms,
                extractable: false,
            },
        })
    }

    /// Runs with a session, on a thread that may block.
    async fn with_session<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Token, &Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, BackendError> {
        let token = self.token.clone();
        let done = self.env.offload(self.pool, move || token.run(job));
        done.await.map_err(|_| lost())?
    }

    /// Runs with the object of a version, wherever the token has it.
    async fn with_object<T: Send + 'static>(
        &self,
        key: &Material,
        job: impl FnOnce(&Session, ObjectHandle) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.info.supports(key.algorithm)?;
        let reference = Reference::of(key)?;
        let known = key.opened.get_or_init(|| Box::new(token::Known::new()));
        let known = known.downcast_ref::<token::Known>().cloned();
        let known = known.ok_or_else(|| BackendError::Damaged(key.id.clone()))?;
        let algorithm = key.algorithm;
        self.with_session(move |token, session| {
            let object = token.find(session, &known, algorithm, &reference)?;
            job(session, object)
        })
        .await
    }

    fn fresh(&self, id: &VersionedKid) -> Reference {
        let mut number = [0; ID_LEN];
        self.env.fill_random(&mut number);
        Reference {
            id: id.clone(),
            number,
        }
    }
}

impl Backend for Pkcs11Backend {
    fn info(&self) -> &Info {
        &self.info
    }

    fn generate<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        Box::pin(async move {
            self.info.supports(algorithm)?;
            let reference = self.fresh(id);
            let sealed = reference.to_bytes();
            let generate = move |_: &Token, session: &Session| {
                objects::generate(session, algorithm, &reference)
            };
            let public = self.with_session(generate).await?;
            Ok(Made { sealed, public })
        })
    }

    fn import<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
        secret: Secret,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        Box::pin(async move {
            self.info.supports(algorithm)?;
            let reference = self.fresh(id);
            let sealed = reference.to_bytes();
            let public = self.with_session(move |_: &Token, session: &Session| {
                let public = public_of(algorithm, &secret)?;
                objects::import(session, algorithm, &reference, &secret)?;
                Ok(public)
            });
            let public = public.await?;
            Ok(Made { sealed, public })
        })
    }

    fn sign<'a>(
        &'a self,
        key: &'a Material,
        inputs: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>> {
        Box::pin(async move {
            let algorithm = key.algorithm;
            if algorithm.key_use() != Use::Sign {
                return Err(SigningError::NotForSigning(algorithm).into());
            }
            for input in inputs {
                Checked::new(algorithm, input.input())?;
            }
            let inputs = inputs.to_vec();
            self.with_object(key, move |session, object| {
                let sign = |input: &Message| {
                    let bytes = objects::sign(session, object, algorithm, input)?;
                    if algorithm.signature_len() != Some(bytes.len()) {
                        return Err(SigningError::Failed(algorithm).into());
                    }
                    Ok(vec![Signature { algorithm, bytes }])
                };
                inputs.iter().map(sign).collect()
            })
            .await
        })
    }

    fn wrap<'a>(
        &'a self,
        key: &'a Material,
        nonce: Option<Nonce>,
        plain: &'a Secret,
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>> {
        Box::pin(async move {
            let algorithm = wraps(key.algorithm)?;
            if plain.len() > MAX_PLAIN || context.len() > MAX_CONTEXT {
                return Err(SealingError::TooLong.into());
            }
            let nonce = nonce.ok_or(SealingError::Failed(algorithm))?.to_bytes();
            let mut blob = header(algorithm, &nonce);
            let aad = bound_data(&key.id, &blob, context);
            let plain = Secret::copy_of(plain.expose());
            let sealed = self.with_object(key, move |session, object| {
                let mut nonce = nonce;
                let gcm = Mechanism::AesGcm(GcmParams::new(&mut nonce, &aad, TAG_BITS.into())?);
                Ok(session.encrypt(&gcm, object, plain.expose())?)
            });
            blob.extend_from_slice(&sealed.await?);
            Ok(blob)
        })
    }

    fn unwrap<'a>(
        &'a self,
        key: &'a Material,
        blob: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Secret, BackendError>> {
        Box::pin(async move {
            let algorithm = wraps(key.algorithm)?;
            if context.len() > MAX_CONTEXT || blob.len() > HEADER_LEN + MAX_PLAIN + TAG_LEN {
                return Err(SealingError::TooLong.into());
            }
            check_blob(algorithm, blob, HEADER_LEN + TAG_LEN)?;
            let (head, sealed) = blob.split_at(HEADER_LEN);
            let aad = bound_data(&key.id, head, context);
            let mut nonce = [0; NONCE_LEN];
            nonce.copy_from_slice(&head[HEADER_LEN - NONCE_LEN..]);
            let sealed = sealed.to_vec();
            self.with_object(key, move |session, object| {
                let gcm = Mechanism::AesGcm(GcmParams::new(&mut nonce, &aad, TAG_BITS.into())?);
                match session.decrypt(&gcm, object, &sealed) {
                    Ok(plain) => Ok(Secret::new(plain)),
                    // Tokens say in many ways that a tag is wrong: what matters is that they are well.
                    Err(_) if token::is_well(session) => Err(SealingError::DoesNotOpen.into()),
                    Err(error) => Err(error.into()),
                }
            })
            .await
        })
    }

    fn destroy<'a>(&'a self, key: &'a Material) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            // Once erased from the store, nothing tells where the object was: it was destroyed before.
            if key.sealed.is_empty() {
                return Ok(());
            }
            let (reference, algorithm) = (Reference::of(key)?, key.algorithm);
            self.with_session(move |_, session| {
                for object in objects::find_all(session, algorithm, &reference)? {
                    session.destroy_object(object)?;
                }
                Ok(())
            })
            .await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            let token = self.token.clone();
            let checked = self.env.offload(self.pool, move || token.check());
            checked.await.map_err(|_| lost())?
        })
    }
}

/// Where the token keeps a version: by a random id, so that what a crash left behind is never taken for
/// it, and by the version's name.
struct Reference {
    id: VersionedKid,
    number: [u8; ID_LEN],
}

impl Reference {
    fn of(key: &Material) -> Result<Reference, BackendError> {
        let damaged = || BackendError::Damaged(key.id.clone());
        let number = key.sealed.strip_prefix(&REFERENCE).ok_or_else(damaged)?;
        Ok(Reference {
            id: key.id.clone(),
            number: number.try_into().map_err(|_| damaged())?,
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        [&REFERENCE[..], &self.number].concat()
    }
}

/// How a reference begins: `P`, then its format. Secrets that the key store seals begin otherwise.
const REFERENCE: [u8; 2] = [b'P', 1];
const ID_LEN: usize = 16;
const TAG_BITS: u64 = 8 * TAG_LEN as u64;
const MOST_SESSIONS: usize = 64;

fn lost() -> BackendError {
    BackendError::Unavailable("the call was lost".to_owned())
}

fn wraps(algorithm: Algorithm) -> Result<Algorithm, BackendError> {
    match algorithm {
        Algorithm::Aes256Gcm => Ok(algorithm),
        _ if algorithm.key_use() == Use::Wrap => Err(BackendError::Unsupported(algorithm)),
        _ => Err(SealingError::NotForWrapping(algorithm).into()),
    }
}

/// Checks the secret as well: the token gets proper keys only.
fn public_of(algorithm: Algorithm, secret: &Secret) -> Result<Vec<u8>, Failure> {
    if algorithm == Algorithm::Aes256Gcm {
        let proper = algorithm.secret_len() == Some(secret.len());
        let bad = Failure::from(SealingError::BadSecret(algorithm));
        return proper.then(Vec::new).ok_or(bad);
    }
    let key = SigningKey::from_secret(algorithm, secret)?;
    Ok(key.public().raw().to_vec())
}
