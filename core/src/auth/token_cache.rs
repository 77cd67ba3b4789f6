//! Tokens that were verified before: a signature is checked once, times and keys at every use.
//!
//! Always: at most `cap` tokens, the oldest goes first; a token counts only under the key-set that
//! verified it, so that a revoked key ends all of its tokens at the next refresh.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, SystemTime},
};

use super::{AuthError, Identity, jwt::Verified};

/// The cache holds no token that could be stolen from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(token: &str) -> Self {
        TokenHash(blake3::hash(token.as_bytes()).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenCache {
    cap: usize,
    tokens: BTreeMap<TokenHash, (u64, Verified)>,
    /// Oldest first; exactly the keys of `tokens`.
    order: VecDeque<TokenHash>,
}

impl TokenCache {
    pub fn new(cap: usize) -> Self {
        TokenCache {
            cap,
            tokens: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// What is known of the token under this generation of keys. Expired ones are refused here, again.
    pub fn get(
        &self,
        token: TokenHash,
        generation: u64,
        now: SystemTime,
        leeway: Duration,
    ) -> Option<Result<Identity, AuthError>> {
        let (known, verified) = self.tokens.get(&token)?;
        if *known != generation {
            return None;
        }
        let timely = verified.check_time(now, leeway);
        Some(timely.map(|()| verified.identity.clone()))
    }

    pub fn insert(&mut self, token: TokenHash, generation: u64, verified: Verified) {
        if self.cap == 0 {
            return;
        }
        if self.tokens.insert(token, (generation, verified)).is_none() {
            self.order.push_back(token);
        }
        if self.tokens.len() > self.cap
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens.remove(&oldest);
        }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::auth::Via;

    fn verified(subject: &str, expires_ms: u64) -> Verified {
        let identity = Identity {
            subject: subject.to_owned(),
            tenant: None,
            scopes: BTreeSet::new(),
            via: Via::Passport,
        };
        Verified {
            identity,
            expires_ms,
            not_before_ms: 0,
        }
    }

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn a_cached_token_still_expires_and_dies_with_its_keys() {
        let mut cache = TokenCache::new(4);
        let hash = TokenHash::of("t");
        cache.insert(hash, 1, verified("a", 100_000));
        let none = Duration::ZERO;
        assert_eq!(
            cache.get(hash, 1, at(99), none).unwrap().unwrap().subject,
            "a"
        );
        assert_eq!(
            cache.get(hash, 1, at(100), none),
            Some(Err(AuthError::Expired))
        );
        assert_eq!(cache.get(hash, 2, at(99), none), None);
        assert_eq!(cache.get(TokenHash::of("u"), 1, at(99), none), None);
    }

    proptest! {
        #[test]
        fn the_cache_holds_the_newest_tokens_and_never_more_than_its_cap(
            cap in 0usize..6,
            tokens in proptest::collection::vec(0u8..12, 0..60),
        ) {
            let mut cache = TokenCache::new(cap);
            let mut model: Vec<u8> = Vec::new();
            for token in tokens {
                cache.insert(TokenHash::of(&token.to_string()), 0, verified("x", 10_000));
                if !model.contains(&token) {
                    model.push(token);
                }
                if model.len() > cap {
                    model.remove(0);
                }
                prop_assert_eq!(cache.len(), model.len());
                for t in 0..12 {
                    let hash = TokenHash::of(&t.to_string());
                    let found = cache.get(hash, 0, at(1), Duration::ZERO).is_some();
                    prop_assert_eq!(found, model.contains(&t));
                }
            }
        }
    }
}
