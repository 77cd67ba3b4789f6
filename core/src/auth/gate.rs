//! The door: a mode, the current keys, the verified tokens, and the count of refusals.
//!
//! Checking a request takes no lock but the token cache's, for a look-up; keys are a snapshot that one
//! refresher replaces. An unknown key id asks that refresher for keys and is refused meanwhile. Who wants tokens but
//! has no keys can let nobody in: [`Gate::tell`] makes readiness say so.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Instant, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderMap;
use tokio::sync::Notify;

use super::{
    AuthError, Identity, KeySet, KidHash, Mode, Passport, decide, jwt, operator,
    refresh::MAX_ASKED,
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
    /// What the operator's token of this start hashes to, once there is one.
    pub(super) operator: ArcSwapOption<blake3::Hash>,
    pub(super) asked: Asked,
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
            operator: ArcSwapOption::empty(),
            asked: Asked::new(),
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
        let identity = match (operator::presented(headers), &self.mode) {
            (Some(token), _) => operator::identify(token, peer, self.operator.load().as_deref()),
            (None, Mode::Passport(passport)) => self.check_token(passport, headers, now),
            (None, mode) => decide(mode, headers, peer, &self.keys.load(), now),
        };
        identity.inspect_err(|error| self.count(*error))
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
        now: SystemTime,
    ) -> Result<Identity, AuthError> {
        let keys = self.keys.load();
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
        let verified = jwt::verify(token, passport, &keys).inspect_err(|error| {
            if *error == AuthError::UnknownKid
                && let Some(kid) = jwt::named_kid(token)
            {
                self.asked.add(kid);
            }
        })?;
        verified.check_time(now, passport.leeway)?;
        let identity = verified.identity.clone();
        // Under the keys that verified it, even if they were replaced meanwhile.
        self.tokens.lock().insert(hash, keys.generation, verified);
        Ok(identity)
    }

    #[cfg(test)]
    pub(super) fn cached_tokens(&self) -> usize {
        self.tokens.lock().len()
    }
}

/// Key ids that nobody knew, on their way from the requests to the refresher.
pub(super) struct Asked {
    waiting: RankedMutex<BTreeSet<KidHash>>,
    wake: Notify,
}

const ASKED: LockDecl = LockDecl {
    name: "auth_asked",
    rank: LEAF,
    guards: "unknown key ids that wait for the refresher",
};

impl Asked {
    fn new() -> Asked {
        Asked {
            waiting: RankedMutex::new(ASKED, BTreeSet::new()),
            wake: Notify::new(),
        }
    }

    /// One that finds no room is merged with those waiting: the same fetch serves it.
    fn add(&self, kid: KidHash) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MAX_ASKED {
            waiting.insert(kid);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }

    pub(super) fn take(&self) -> BTreeSet<KidHash> {
        std::mem::take(&mut *self.waiting.lock())
    }
}
