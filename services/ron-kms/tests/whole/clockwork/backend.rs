//! The memory backend with moods: away, hanging, slow or deadly, call by call, and a note of each call.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use ron_core::{Env, seam::BoxFuture};
use ron_kms::{
    backend::{Backend, BackendError, Info, Made, Material, MemoryBackend, Message},
    keys::{Algorithm, Secret, VersionedKid, nonce::Nonce, signing::Signature},
};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Well, and it says that it signs without a wait.
    Quick,
    Away,
    Hangs,
    Slow(Duration),
    /// Whoever calls dies, this often.
    Kills(u32),
}

pub struct Moody {
    inner: MemoryBackend,
    env: Env,
    moods: Mutex<BTreeMap<&'static str, Mood>>,
    changed: watch::Sender<()>,
    /// Name of the call and when, in milliseconds since the start.
    calls: Mutex<Vec<(&'static str, u64)>>,
    started: std::time::Instant,
}

impl Moody {
    pub fn new(env: &Env) -> Moody {
        Moody {
            inner: MemoryBackend::new(env),
            env: env.clone(),
            moods: Mutex::default(),
            changed: watch::Sender::new(()),
            calls: Mutex::default(),
            started: env.now(),
        }
    }

    /// `""` is every call that has no mood of its own.
    pub fn set(&self, call: &'static str, mood: Mood) {
        self.moods.lock().unwrap().insert(call, mood);
        self.changed.send_replace(());
    }

    /// When this was called, in milliseconds since the start.
    pub fn calls(&self, call: &str) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        let own = calls.iter().filter(|(name, _)| *name == call);
        own.map(|(_, at)| *at).collect()
    }

    fn mood(&self, call: &'static str) -> Mood {
        let mut moods = self.moods.lock().unwrap();
        let name = if moods.contains_key(call) { call } else { "" };
        let mood = moods.get(name).copied().unwrap_or(Mood::Well);
        if let Mood::Kills(left) = mood {
            let next = match left {
                0 | 1 => Mood::Well,
                _ => Mood::Kills(left - 1),
            };
            moods.insert(name, next);
        }
        mood
    }

    async fn reach(&self, call: &'static str) -> Result<(), BackendError> {
        let at = self.env.now().duration_since(self.started);
        let at = at.as_millis() as u64;
        self.calls.lock().unwrap().push((call, at));
        let mut changed = self.changed.subscribe();
        loop {
            match self.mood(call) {
                Mood::Well | Mood::Quick => return Ok(()),
                Mood::Away => return Err(BackendError::Unavailable("it is away".into())),
                Mood::Slow(by) => {
                    self.env.sleep(by).await;
                    return Ok(());
                }
                Mood::Kills(0) => return Ok(()),
                Mood::Kills(_) => panic!("killed by the test"),
                Mood::Hangs => {
                    let _ = changed.changed().await;
                }
            }
        }
    }
}

impl Backend for Moody {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn generate<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Made, BackendError>> {
        Box::pin(async move {
            self.reach("generate").await?;
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
            self.reach("import").await?;
            self.inner.import(id, algorithm, secret).await
        })
    }

    fn sign<'a>(
        &'a self,
        key: &'a Material,
        inputs: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>> {
        Box::pin(async move {
            self.reach("sign").await?;
            self.inner.sign(key, inputs).await
        })
    }

    fn signs_at_once(&self, _: &Material, _: &[Message]) -> bool {
        self.moods.lock().unwrap().get("sign") == Some(&Mood::Quick)
    }

    fn wrap<'a>(
        &'a self,
        key: &'a Material,
        nonce: Option<Nonce>,
        plain: &'a Secret,
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>> {
        Box::pin(async move {
            self.reach("wrap").await?;
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
            self.reach("unwrap").await?;
            self.inner.unwrap(key, blob, context).await
        })
    }

    fn destroy<'a>(&'a self, key: &'a Material) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            self.reach("destroy").await?;
            self.inner.destroy(key).await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            self.reach("check").await?;
            self.inner.check().await
        })
    }
}
