//! The door: a mode, the current keys, the verified tokens, and the count of refusals.
//!
//! Checking a request takes no lock but the token cache's, for a look-up; keys are a snapshot that one
//! refresher replaces. An unknown key id nudges that refresher and is refused meanwhile. Who wants tokens but
//! has no keys can let nobody in: [`Gate::tell`] makes readiness say so.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Instant, SystemTime},
};

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::sync::Notify;

use super::{
    AuthError, Identity, KeySet, Mode, Passport, decide, jwt,
    token_cache::{TokenCache, TokenHash},
};
use crate::{
    lock::{LEAF, LockDecl, RankedMutex},
    readiness,
    telemetry::{Counters, Telemetry},
};

pub struct Gate {
    mode: Mode,
    keys: ArcSwap<KeySet>,
    tokens: RankedMutex<TokenCache>,
    failures: Counters,
    /// Open while there are keys.
    readiness: OnceLock<readiness::Gate>,
    pub(super) unknown_kid: Notify,
}

const MAX_CACHED_TOKENS: usize = 4096;

const TOKENS: LockDecl = LockDecl {
    name: "auth_tokens",
    rank: LEAF,
    guards: "the cache of verified tokens",
};

impl Gate {
    pub fn new(mode: Mode, telemetry: &Telemetry) -> Arc<Gate> {
        Arc::new(Gate {
            mode,
            keys: ArcSwap::default(),
            tokens: RankedMutex::new(TOKENS, TokenCache::new(MAX_CACHED_TOKENS)),
            failures: telemetry.kernel().auth_failures.clone(),
            readiness: OnceLock::new(),
            unknown_kid: Notify::new(),
        })
    }

    /// From now on this gate is open while there are keys. Told once, in mode `passport`, before the refresher runs.
    pub fn tell(&self, readiness: readiness::Gate) {
        let _ = self.readiness.set(readiness);
        self.tell_readiness();
    }

    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Replaces the keys; every token verified before is verified anew. Called by one task only.
    pub fn set_keys(&self, mut keys: KeySet) {
        keys.generation = self.keys.load().generation + 1;
        self.keys.store(Arc::new(keys));
        self.tell_readiness();
    }

    pub(super) fn keys_fetched_at(&self) -> Option<Instant> {
        self.keys.load().fetched_at
    }

    pub fn has_keys(&self) -> bool {
        !self.keys.load().is_empty()
    }

    /// Identifies the caller; a refusal is counted.
    pub fn check(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<Identity, AuthError> {
        let keys = self.keys.load();
        let identity = match &self.mode {
            Mode::Passport(passport) => self.check_token(passport, headers, &keys, now),
            mode => decide(mode, headers, peer, &keys, now),
        };
        identity.inspect_err(|error| {
            self.count(*error);
            if *error == AuthError::UnknownKid {
                self.unknown_kid.notify_one();
            }
        })
    }

    /// Counts a refusal that was decided elsewhere, such as a missing scope.
    pub fn count(&self, error: AuthError) {
        self.failures.with(&[error.reason()]).inc();
    }

    fn tell_readiness(&self) {
        match (self.readiness.get(), self.has_keys()) {
            (None, _) => {}
            (Some(gate), true) => gate.open(),
            (Some(gate), false) => gate.close("there are no keys to check tokens with"),
        }
    }

    fn check_token(
        &self,
        passport: &Passport,
        headers: &HeaderMap,
        keys: &KeySet,
        now: SystemTime,
    ) -> Result<Identity, AuthError> {
        let token = passport.token(headers)?;
        let hash = TokenHash::of(token);
        let known = self
            .tokens
            .lock()
            .get(hash, keys.generation, now, passport.leeway);
        if let Some(known) = known {
            return known;
        }
        // The signature is checked outside the lock: it takes longer than everything else here.
        let verified = jwt::verify(token, passport, keys)?;
        verified.check_time(now, passport.leeway)?;
        let identity = verified.identity.clone();
        self.tokens.lock().insert(hash, keys.generation, verified);
        Ok(identity)
    }

    #[cfg(test)]
    pub(super) fn cached_tokens(&self) -> usize {
        self.tokens.lock().len()
    }
}
