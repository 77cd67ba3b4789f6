//! Every token is judged as its facts demand: by the keys that the node can have, by its own clock, by the door.
//!
//! The verdict is worked out here a second time, from what the client knows of its token; nothing of the service's own
//! code is asked. Where the node may hold one set of keys or another, or a token ended while its request was under way,
//! more than one answer is right.

use std::collections::{BTreeMap, BTreeSet};

use super::{calm::Calm, held_keys::HeldKeys};
use crate::{
    kms::{
        calls::{bearer::Told, doors::DOORS},
        token::Facts,
    },
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "auth.tokens_judged",
    law: "a token is accepted, or refused for its own reason, by the keys the node can hold, its own clock and what the door needs",
    premise: EVERYWHERE,
    make: || Box::new(TokensJudged::default()),
};

#[derive(Default)]
struct TokensJudged {
    calm: Calm,
    held: HeldKeys,
    rules: BTreeMap<u32, Rules>,
}

/// What a node demands of tokens.
struct Rules {
    leeway_ms: u64,
    issuer: String,
    audience: String,
}

impl Oracle for TokensJudged {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        self.held.note(event, &self.calm);
        self.calm.note(event);
        let What::Probe {
            event: name,
            id,
            detail,
        } = &event.what
        else {
            return Ok(());
        };
        if *name == "kms.token_rules" {
            let (issuer, audience) = detail.split_once(' ').unwrap_or_default();
            let rules = Rules {
                leeway_ms: id * 1000,
                issuer: issuer.to_owned(),
                audience: audience.to_owned(),
            };
            self.rules.insert(event.node.unwrap_or_default(), rules);
        }
        match name.strip_prefix("token.") {
            Some(said) => self.judge(said, event, *id, detail),
            None => Ok(()),
        }
    }
}

impl TokensJudged {
    fn judge(&self, said: &str, event: &Event, status: u64, detail: &str) -> Verdict {
        let told: Told = serde_json::from_str(detail).map_err(|error| error.to_string())?;
        let Some(rules) = self.rules.get(&told.node) else {
            return Ok(());
        };
        let began = std::time::Duration::from_micros(told.began_us);
        let held = self.held.between(told.node, began, event.at, &self.calm);
        let mut right = BTreeSet::new();
        for keys in held {
            for wall_ms in [told.wall_ms.0, told.wall_ms.1] {
                right.insert(rules.verdict(&told.token, told.door, keys, wall_ms));
            }
        }
        if right.contains(said) {
            return Ok(());
        }
        let (kind, door) = (&told.token.kind, &DOORS[told.door]);
        let right: Vec<&str> = right.into_iter().collect();
        Err(format!(
            "a token ({kind}) at {} {} was answered {status}, {said}; right would be {}: {:?}, the node's clock at {} to {} ms",
            door.method,
            door.path,
            right.join(" or "),
            told.token,
            told.wall_ms.0,
            told.wall_ms.1,
        ))
    }
}

impl Rules {
    /// `passed`, or why not.
    fn verdict(
        &self,
        token: &Facts,
        door: usize,
        keys: Option<&BTreeSet<String>>,
        wall_ms: u64,
    ) -> &'static str {
        if let Some(refused) = self.identify(token, keys, wall_ms) {
            return refused;
        }
        let door = &DOORS[door];
        let has = |scope: &&str| token.scopes.iter().any(|own| own == scope);
        if !door.scopes.iter().all(has) {
            return "missing_scope";
        }
        if door.tenant && token.tenant.is_none() {
            return "tenant_missing";
        }
        "passed"
    }

    fn identify(
        &self,
        token: &Facts,
        keys: Option<&BTreeSet<String>>,
        wall_ms: u64,
    ) -> Option<&'static str> {
        let refused = match token.scheme.to_lowercase().as_str() {
            "" => "missing_credentials",
            "bearer" if token.misshapen => "malformed_token",
            "bearer" => return self.check_signed(token, keys, wall_ms),
            _ => "malformed_header",
        };
        Some(refused)
    }

    fn check_signed(
        &self,
        token: &Facts,
        keys: Option<&BTreeSet<String>>,
        wall_ms: u64,
    ) -> Option<&'static str> {
        let known = |keys: &BTreeSet<String>| token.kid.as_ref().is_some_and(|k| keys.contains(k));
        let refused = match (token.alg.as_str(), keys) {
            ("none", _) => "alg_none",
            ("XY1", _) => "alg_unknown",
            (_, None) => "no_keys",
            (_, Some(keys)) if !known(keys) => "unknown_kid",
            ("EdDSA", _) if !token.sound => "bad_signature",
            ("EdDSA", _) => return self.check_claims(token, wall_ms),
            _ => "alg_key_mismatch",
        };
        Some(refused)
    }

    fn check_claims(&self, token: &Facts, wall_ms: u64) -> Option<&'static str> {
        let ends = token.exp.unwrap_or(0) * 1000 + self.leeway_ms;
        let begins = (token.nbf.unwrap_or(0) * 1000).saturating_sub(self.leeway_ms);
        if token.senseless {
            Some("malformed_token")
        } else if token.issuer != self.issuer {
            Some("issuer_mismatch")
        } else if !token.audience.contains(&self.audience) {
            Some("audience_mismatch")
        } else if wall_ms >= ends {
            Some("expired")
        } else if wall_ms < begins {
            Some("not_yet_valid")
        } else {
            None
        }
    }
}
