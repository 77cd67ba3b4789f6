//! Verified tokens: a list of the newest, each good under the keys that verified it and while its time lasts.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use ron_core::auth::{AuthError, Identity, TokenCache, TokenHash, Verified, Via};

use super::{Bench, Verdict, agree};

#[derive(Clone)]
struct Known {
    token: u64,
    generation: u64,
    expires: u64,
    not_before: Option<u64>,
    subject: String,
}

/// No clock is believed to be further off than this.
const MOST_LEEWAY: u64 = 300;
const NOON: u64 = 1_767_268_800;

pub fn drill(bench: &mut Bench) -> Verdict {
    let cap = bench.pick(0, 5) as usize;
    let mut cache = TokenCache::new(cap);
    let mut reference: Vec<Known> = Vec::new();
    for n in 0..60 {
        if bench.one_in(2) {
            let known = draw(bench, n);
            cache.insert(hash(known.token), known.generation, known.verified());
            match reference.iter_mut().find(|k| k.token == known.token) {
                Some(older) => *older = known,
                None => reference.push(known),
            }
            if reference.len() > cap {
                reference.remove(0);
            }
        }
        agree("len", cache.len(), reference.len())?;
        agree("is_empty", cache.is_empty(), reference.is_empty())?;
        let (token, generation) = (bench.pick(0, 9), bench.pick(1, 3));
        let (now, leeway) = (NOON + bench.pick(0, 1000), bench.pick(0, 400));
        let known = reference
            .iter()
            .find(|k| k.token == token && k.generation == generation);
        let expected = known.map(|known| known.judge(now, leeway));
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        let came = cache.get(hash(token), generation, wall, Duration::from_secs(leeway));
        let came = came.map(|identity| identity.map(|identity| identity.subject));
        let told = format!(
            "token {token} under keys {generation} at noon+{}",
            now - NOON
        );
        agree(&told, came, expected)?;
    }
    Ok(())
}

fn hash(token: u64) -> TokenHash {
    TokenHash::of(&format!("token {token}"))
}

fn draw(bench: &mut Bench, n: u64) -> Known {
    Known {
        token: bench.pick(0, 9),
        generation: bench.pick(1, 3),
        expires: NOON + bench.pick(0, 1000),
        not_before: bench.one_in(2).then(|| NOON + bench.pick(0, 1000)),
        subject: format!("subject {n}"),
    }
}

impl Known {
    fn verified(&self) -> Verified {
        Verified {
            identity: Identity {
                subject: self.subject.clone(),
                tenant: None,
                scopes: BTreeSet::new(),
                via: Via::Passport,
            },
            expires_ms: self.expires * 1000,
            not_before_ms: self.not_before.unwrap_or(0) * 1000,
        }
    }

    fn judge(&self, now: u64, leeway: u64) -> Result<String, AuthError> {
        let leeway = leeway.min(MOST_LEEWAY);
        if now >= self.expires + leeway {
            return Err(AuthError::Expired);
        }
        if self.not_before.is_some_and(|from| now + leeway < from) {
            return Err(AuthError::NotYetValid);
        }
        Ok(self.subject.clone())
    }
}
