//! A client that comes to ron-kms with a token, and tells what came of it.
//!
//! Each answer is told with the facts of the token, the door, and what the service's own clock showed when the request
//! left and when its answer came: `token.passed`, or `token.` and the reason of the refusal.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Answer, Choice, Client, Kind, SLOTS,
    doors::{DOORS, KEYS, SIGN, find},
};
use crate::{
    issuer::{self, schedule::Schedule},
    kms::{
        sized_for_a_world,
        token::{Facts, Occasion, Token},
    },
    ops::Op,
    seed::{self, SimRng},
    timer,
    trace::Outcome,
    workload::{Asked, Clients},
};

/// What a client tells of one answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    pub node: u32,
    /// Its place in [`DOORS`].
    pub door: usize,
    pub began_us: u64,
    /// The service's clock when the request left and when the answer came, in milliseconds.
    pub wall_ms: (u64, u64),
    pub token: Facts,
}

/// Tokens in use, and what they are made with.
#[derive(Default)]
pub struct Wallet {
    pub kept: Mutex<BTreeMap<(String, u64), Token>>,
    rules: Mutex<BTreeMap<String, Arc<Rules>>>,
    issuer: OnceLock<Schedule>,
}

/// What a service wants of tokens.
pub struct Rules {
    pub leeway_s: u64,
    issuer: String,
    audience: String,
}

/// Answers that may come before anybody looks at the token, or instead of what it asks for.
const NEUTRAL: &[&str] = &["draining", "busy", "rate_limited", "deadline_exceeded", ""];

/// Why a token is refused, and the event that tells it.
const REASONS: &[(&str, &str)] = &[
    ("missing_credentials", "token.missing_credentials"),
    ("malformed_header", "token.malformed_header"),
    ("malformed_token", "token.malformed_token"),
    ("alg_none", "token.alg_none"),
    ("alg_unknown", "token.alg_unknown"),
    ("alg_key_mismatch", "token.alg_key_mismatch"),
    ("unknown_kid", "token.unknown_kid"),
    ("no_keys", "token.no_keys"),
    ("bad_signature", "token.bad_signature"),
    ("expired", "token.expired"),
    ("not_yet_valid", "token.not_yet_valid"),
    ("issuer_mismatch", "token.issuer_mismatch"),
    ("audience_mismatch", "token.audience_mismatch"),
    ("missing_scope", "token.missing_scope"),
    ("tenant_missing", "token.tenant_missing"),
    ("untrusted_peer", "token.untrusted_peer"),
];

/// A client with tokens, at one operation.
pub(super) struct Bearer<'a> {
    pub client: Client<'a>,
    pub rules: Arc<Rules>,
    pub tenant: String,
}

impl<'a> Bearer<'a> {
    pub fn new(clients: &'a Clients, op: &'a Op) -> Bearer<'a> {
        let client = Client { clients, op };
        Bearer {
            rules: client.known().tokens.rules(clients, &op.on),
            client,
            tenant: format!("t{}", op.arg / SLOTS),
        }
    }

    /// What an operation draws is its own, whatever the others do.
    pub fn rng(&self) -> SimRng {
        let seed = self.client.clients.world().seed();
        seed::stream(seed, &format!("token {}", self.client.op.key))
    }

    pub fn wall_ms(&self) -> u64 {
        let world = self.client.clients.world();
        let node = world.find(&self.client.op.on).expect("validated");
        world.node_parts(node).clock.shown().as_millis() as u64
    }

    pub fn occasion<T>(&self, make: impl FnOnce(&Occasion<'_>) -> T) -> T {
        make(&Occasion {
            schedule: self.client.known().tokens.issuer(self.client.clients),
            at: timer::elapsed(),
            wall_s: self.wall_ms() / 1000,
            leeway_s: self.rules.leeway_s,
            issuer: &self.rules.issuer,
            audience: &self.rules.audience,
            tenant: &self.tenant,
        })
    }

    pub fn good(&self, scopes: &[&str], rng: &mut SimRng) -> Token {
        self.occasion(|now| now.good(scopes, 600, rng))
    }

    pub fn known_key(&self) -> Option<String> {
        let op = self.client.op;
        let known = self.client.known().get(&op.on, Kind::Signs, op.arg);
        known.map(|key| key.kid)
    }

    /// Made if nobody made it yet.
    pub async fn own_key(&self, rng: &mut SimRng) -> Option<String> {
        if let Some(kid) = self.known_key() {
            return Some(kid);
        }
        let token = self.good(&["kms:rotate"], rng);
        let body = json!({ "tenant": self.tenant, "purpose": "sim", "alg": "ed25519" });
        let (outcome, body) = self.bring(&token, find("POST", KEYS), "", &body).await;
        let (Outcome::Answered(201), Some(kid)) = (outcome, body["kid"].as_str()) else {
            return None;
        };
        let op = self.client.op;
        let known = self.client.known();
        known.change(&op.on, Kind::Signs, op.arg, |key| {
            if key.kid.is_empty() {
                key.kid = kid.to_owned();
            }
        });
        self.known_key()
    }

    pub async fn sign(&self, token: &Token, kid: &str) {
        let body = json!({ "kid": kid, "message": self.client.message() });
        let began_us = timer::elapsed().as_micros() as u64;
        let (outcome, body) = self.bring(token, find("POST", SIGN), kid, &body).await;
        if outcome == Outcome::Answered(200) {
            let answer = Answer { body, began_us };
            self.client
                .tell_receipt("client.signed", &answer, Choice::Head);
            let message = self.client.op.key.to_be_bytes();
            self.client
                .tell_messages(&answer, [&message[..]].into_iter());
        }
    }

    /// Asks at a door, and tells what came of it.
    pub async fn bring(
        &self,
        token: &Token,
        door: usize,
        kid: &str,
        body: &Value,
    ) -> (Outcome, Value) {
        let (clients, op) = (self.client.clients, self.client.op);
        let path = DOORS[door].path.replace("{kid}", kid);
        let asked = Asked {
            op: "kms.token",
            key: op.key,
            method: DOORS[door].method,
            path: &path,
            body: body.to_string().into(),
            headers: match token.facts.scheme.is_empty() {
                true => &[],
                false => &[("authorization", token.text.as_str())],
            },
        };
        let node = clients.world().find(&op.on).expect("validated");
        let (began, left) = (timer::elapsed(), self.wall_ms());
        let timeout = Duration::from_millis(op.timeout_ms);
        let (outcome, bytes) = clients.ask(&op.on, asked, timeout).await;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(event) = event(&outcome, &body) {
            let told = Told {
                node: node.0,
                door,
                began_us: began.as_micros() as u64,
                // What is left of the millisecond is still to come.
                wall_ms: (left, self.wall_ms() + 1),
                token: token.facts.clone(),
            };
            let Outcome::Answered(status) = outcome else {
                return (outcome, body);
            };
            let told = serde_json::to_string(&told).unwrap_or_default();
            clients.tell(event, u64::from(status), format_args!("{told}"));
        }
        (outcome, body)
    }

    /// Nobody is shown the keys of others.
    pub fn check_listed(&self, body: &Value) {
        let listed = body["keys"].as_array();
        let tenants = listed
            .into_iter()
            .flatten()
            .filter_map(|k| k["tenant"].as_str());
        for tenant in tenants.filter(|tenant| *tenant != self.tenant) {
            let detail = format_args!("a key of {tenant} was listed for {}", self.tenant);
            self.client
                .clients
                .tell("client.crossed_tenants", 200, detail);
        }
    }
}

/// What an answer says of the token; nothing if it may have come before anybody looked.
fn event(outcome: &Outcome, body: &Value) -> Option<&'static str> {
    match outcome {
        Outcome::Answered(200..300) => Some("token.passed"),
        Outcome::Answered(_) => {
            let code = body["code"].as_str().unwrap_or_default();
            let reason = REASONS.iter().find(|(reason, _)| *reason == code);
            match reason {
                Some((_, event)) => Some(event),
                None if NEUTRAL.contains(&code) => None,
                None => Some("token.passed"),
            }
        }
        _ => None,
    }
}

impl Wallet {
    fn issuer(&self, clients: &Clients) -> &Schedule {
        self.issuer.get_or_init(|| {
            let world = clients.world();
            let all = world.node_ids().into_iter();
            let issuer = all
                .into_iter()
                .find(|n| world.service_of(*n) == issuer::NAME);
            let config = issuer.map(|node| world.config_of(node)).unwrap_or_default();
            let config = crate::service::read_config(&config).expect("checked before the start");
            Schedule::draw(world.seed(), &config)
        })
    }

    fn rules(&self, clients: &Clients, on: &str) -> Arc<Rules> {
        let mut all = self.rules.lock().unwrap();
        let rules = all.entry(on.to_owned()).or_insert_with(|| {
            let world = clients.world();
            let node = world.find(on).expect("validated");
            let config = sized_for_a_world(&world.config_of(node));
            let passport = config.expect("checked before the start").auth.passport;
            Arc::new(Rules {
                leeway_s: passport.leeway_secs,
                issuer: passport.issuer,
                audience: passport.audience,
            })
        });
        rules.clone()
    }
}
