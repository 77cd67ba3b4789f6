//! What clients ask of ron-kms. A call that needs a key makes it first, so that each operation stands alone.
//!
//! What a client learns from an answer (which version signed, where the record stands) is told to the
//! oracles; bytes of signatures and blobs never are.

mod acceptance;
mod auditor;
pub mod bearer;
mod crowd;
mod customer;
pub mod doors;
mod known;
pub mod operator;
mod rare;
mod table;
mod tokens;

pub use acceptance::serves;
pub use customer::WRONG;
pub use known::Known;
pub use table::CALLS;

use std::{sync::Arc, time::Duration};

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use bytes::Bytes;
use serde_json::{Value, json};

use self::known::{Key, Kind};
use crate::{
    ops::Op,
    timer,
    trace::Outcome,
    workload::{Asked, Clients},
};

/// Slots of keys that one tenant has; slot 17 is of tenant `t2`.
const SLOTS: u64 = 8;

/// Whoever carries out an operation.
struct Client<'a> {
    clients: &'a Clients,
    op: &'a Op,
}

/// Whom an ingress lets change the process.
const OPERATORS: &str = "operators";

fn scopes_of(tenant: &str) -> &'static str {
    match tenant {
        OPERATORS => "ops:admin",
        _ => "kms:sign,kms:verify,kms:wrap,kms:unwrap,kms:rotate,kms:read",
    }
}

/// An answer that was read.
struct Answer {
    body: Value,
    /// When the request was sent.
    began_us: u64,
}

fn client<'a>(clients: &'a Clients, op: &'a Op) -> Client<'a> {
    Client { clients, op }
}

impl Client<'_> {
    async fn send(
        &self,
        name: &'static str,
        method: &'static str,
        path: &str,
        body: &Value,
    ) -> (Outcome, Bytes) {
        self.send_as(None, name, method, path, body).await
    }

    /// As whom an ingress in front of the service knows.
    async fn send_as(
        &self,
        tenant: Option<&str>,
        name: &'static str,
        method: &'static str,
        path: &str,
        body: &Value,
    ) -> (Outcome, Bytes) {
        let told = tenant.map(|tenant| {
            [
                ("x-user", "sim"),
                ("x-groups", scopes_of(tenant)),
                ("x-tenant", tenant),
            ]
        });
        let asked = Asked {
            op: name,
            key: self.op.key,
            method,
            path,
            body: Bytes::from(body.to_string()),
            headers: told.as_ref().map_or(&[], |told| told),
        };
        let timeout = Duration::from_millis(self.op.timeout_ms);
        let tenant = self.op.arg / SLOTS;
        let crowd = self.known().crowd(&self.op.on, tenant);
        let same_id = body["op_id"].as_str();
        let same_id = same_id.map(|id| self.known().asking(&self.op.on, id));
        let before = crowd.enter(timer::elapsed(), uses_quota(name));
        let alone = same_id
            .as_ref()
            .map(|asking| asking.enter(timer::elapsed(), false));
        if let Some(waiting) = crowd.new_most_waiting(timer::elapsed()) {
            let detail = format_args!("{} t{tenant}", self.op.on);
            self.clients.tell("client.waiting", waiting, detail);
        }
        let (outcome, bytes) = self.clients.ask(&self.op.on, asked, timeout).await;
        let most = crowd.leave(before, &outcome);
        let asking = same_id.zip(alone);
        let asking = asking.map(|(asking, entered)| asking.leave(entered, &outcome));
        if let Outcome::Answered(status @ 400..) = outcome {
            self.tell_refusal(name, status, path, body, &bytes);
            let on = &self.op.on;
            if status == 429 {
                self.clients
                    .tell("client.crowded", most, format_args!("{on}"));
            }
            if let Some(asking) = asking {
                self.clients
                    .tell("client.asking_id", asking, format_args!("{on}"));
            }
        }
        (outcome, bytes)
    }

    /// Tells which request was refused with which code: `node key request code op_id|- retryable`.
    fn tell_refusal(&self, name: &str, status: u16, path: &str, body: &Value, answer: &[u8]) {
        let problem: Value = serde_json::from_slice(answer).unwrap_or_default();
        // An answer that broke off says nothing.
        let Some(code) = problem["code"].as_str() else {
            return;
        };
        let in_path = path.strip_prefix("/v1/kms/keys/");
        let in_path = in_path.and_then(|rest| rest.split(['/', '?']).next());
        let key = body["kid"].as_str().or(in_path).unwrap_or("-");
        let kid = key.split('#').next().unwrap_or("-");
        let (on, op_id) = (&self.op.on, body["op_id"].as_str().unwrap_or("-"));
        let again = problem["retryable"].as_bool().unwrap_or_default();
        let detail = format_args!("{on} {kid} {name} {code} {op_id} {again}");
        self.clients.tell("client.refused", status.into(), detail);
    }

    /// `None` unless the answer is a success.
    async fn ask(
        &self,
        name: &'static str,
        method: &'static str,
        path: &str,
        body: &Value,
    ) -> Option<Answer> {
        self.ask_told(name, method, path, body).await.1
    }

    /// The same, with the outcome.
    async fn ask_told(
        &self,
        name: &'static str,
        method: &'static str,
        path: &str,
        body: &Value,
    ) -> (Outcome, Option<Answer>) {
        let began_us = timer::elapsed().as_micros() as u64;
        let (outcome, bytes) = self.send(name, method, path, body).await;
        let body = match outcome {
            Outcome::Answered(200 | 201) => serde_json::from_slice(&bytes).ok(),
            _ => None,
        };
        (outcome, body.map(|body| Answer { body, began_us }))
    }

    fn known(&self) -> Arc<Known> {
        self.clients.known()
    }

    /// The key of the operation's slot, made if nobody made it yet.
    async fn key(&self, kind: Kind) -> Option<Key> {
        let slot = self.op.arg;
        if let Some(key) = self.known().get(&self.op.on, kind, slot) {
            return Some(key);
        }
        let alg = match (kind, slot % 2) {
            (Kind::Signs, _) => "ed25519",
            (Kind::Wraps, 0) => "aes-256-gcm",
            (Kind::Wraps, _) => "chacha20-poly1305",
        };
        let tenant = format!("t{}", slot / SLOTS);
        let body = json!({ "tenant": tenant, "purpose": "sim", "alg": alg });
        let answer = self
            .ask("kms.create", "POST", "/v1/kms/keys", &body)
            .await?;
        let kid = answer.body["kid"].as_str()?.to_owned();
        let on = &self.op.on;
        self.clients
            .tell("client.made", 0, format_args!("{on} {kid}"));
        self.known().change(&self.op.on, kind, slot, |key| {
            if key.kid.is_empty() {
                key.kid = kid;
            }
        });
        self.known().get(&self.op.on, kind, slot)
    }

    /// Tells where the operation stands: `node kid#vN began_us index|-`, and how the version was chosen.
    fn tell_receipt(&self, event: &'static str, answer: &Answer, by: Choice) {
        let receipt = &answer.body["receipt"];
        let seq = receipt["seq"].as_u64().unwrap_or(u64::MAX);
        let index = receipt["index"].as_u64();
        let index = index.map_or_else(|| "-".to_owned(), |index| index.to_string());
        let key = answer.body["kid"].as_str().unwrap_or("-");
        let (on, began) = (&self.op.on, answer.began_us);
        let by = match by {
            Choice::Head => "head",
            Choice::Named => "named",
            Choice::Kept => "kept",
        };
        let detail = format_args!("{on} {key} {began} {index} {by}");
        self.clients.tell(event, seq, detail);
    }

    /// Tells that an operation id has its result: it is kept from now on.
    fn tell_done_op(&self, id: &str) {
        let on = &self.op.on;
        self.clients
            .tell("client.done_op", 0, format_args!("{on} {id}"));
    }

    /// Tells that a change was asked for: from now on it may be the reason of a refusal.
    fn tell_changing(&self, kid: &str, what: &str) {
        let on = &self.op.on;
        let detail = format_args!("{on} {kid} {what}");
        self.clients.tell("client.changing", 0, detail);
    }

    /// Tells what the record of a change must say: `node kid what`, and the version or value.
    fn tell_change(&self, answer: &Answer, what: &str, value: u64) {
        let seq = answer.body["receipt"]["seq"].as_u64().unwrap_or(u64::MAX);
        let kid = answer.body["kid"].as_str().unwrap_or("-");
        let on = &self.op.on;
        let detail = format_args!("{on} {kid} {what} {value}");
        self.clients.tell("client.change_told", seq, detail);
        self.tell_receipt("client.changed", answer, Choice::Named);
    }

    fn message(&self) -> String {
        B64.encode(self.op.key.to_be_bytes())
    }

    /// Tells the digests of what was signed, as the record must have them.
    fn tell_messages<'m>(&self, answer: &Answer, messages: impl Iterator<Item = &'m [u8]>) {
        let seq = answer.body["receipt"]["seq"].as_u64().unwrap_or(u64::MAX);
        let digests = super::oracle::digests_told::shown(messages.map(|message| {
            let digest = digest::digest(&digest::SHA256, message);
            digest.as_ref().try_into().unwrap_or_default()
        }));
        let on = &self.op.on;
        self.clients
            .tell("client.message", seq, format_args!("{on} {digests}"));
    }
}

/// Whether a request takes a place in its tenant's quota: what only reads does not.
fn uses_quota(request: &str) -> bool {
    const READ: &[&str] = &[
        "kms.verify",
        "kms.attest",
        "kms.show",
        "kms.list",
        "kms.jwks",
        "kms.audit",
    ];
    // What is wrong on purpose, or asked for in the end, may be anything.
    const ANY: &[&str] = &[WRONG, "kms.accept"];
    !READ.contains(&request) && !ANY.contains(&request)
}

/// Which version an answer is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The newest at some moment between the question and its answer.
    Head,
    /// One that the caller named.
    Named,
    /// The one of an earlier answer, perhaps: nothing may have been signed now.
    Kept,
}

async fn sign(clients: Clients, op: Op) {
    sign_by(&clients, &op, Choice::Head, |key| key.kid.clone()).await;
}

async fn sign_first(clients: Clients, op: Op) {
    sign_by(&clients, &op, Choice::Named, |key| {
        format!("{}#v1", key.kid)
    })
    .await;
}

async fn sign_by(clients: &Clients, op: &Op, choice: Choice, name: impl FnOnce(&Key) -> String) {
    let client = Client { clients, op };
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let message = client.message();
    let body = json!({ "kid": name(&key), "message": message });
    let began = timer::elapsed();
    let answer = client.ask("kms.sign", "POST", "/v1/kms/sign", &body).await;
    let Some(answer) = answer else {
        return;
    };
    let took = (timer::elapsed() - began).as_micros() as u64;
    let tenant = op.arg / SLOTS;
    clients.tell("client.sign_us", took, format_args!("t{tenant}"));
    client.tell_receipt("client.signed", &answer, choice);
    client.tell_messages(&answer, [&op.key.to_be_bytes()[..]].into_iter());
    let by = answer.body["kid"].as_str().unwrap_or_default().to_owned();
    let signatures = answer.body["sigs"].clone();
    client.known().change(&op.on, Kind::Signs, op.arg, |key| {
        key.signed = Some((message, by, signatures));
    });
}

/// The same id asks for the same thing, however often.
async fn sign_op(clients: Clients, op: Op) {
    sign_op_with(clients, op, 0).await;
}

/// The same id for something else: refused, unless the id was never used.
async fn sign_op_other(clients: Clients, op: Op) {
    sign_op_with(clients, op, 1).await;
}

async fn sign_op_with(clients: Clients, op: Op, variant: u64) {
    let slot = Op {
        arg: 0,
        ..op.clone()
    };
    let client = client(&clients, &slot);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let id = format!("op-{}", op.arg);
    let message = (op.arg + (variant << 32)).to_be_bytes();
    let body = json!({ "kid": key.kid, "message": B64.encode(message), "op_id": id });
    let answer = client
        .ask("kms.sign_op", "POST", "/v1/kms/sign", &body)
        .await;
    if answer.is_none() {
        client.known().failed(&op.on, &body);
    }
    if let Some(answer) = answer {
        client.tell_done_op(&id);
        let sigs = blake3::hash(answer.body["sigs"].to_string().as_bytes()).to_hex();
        let seq = answer.body["receipt"]["seq"].as_u64().unwrap_or(u64::MAX);
        clients.tell(
            "client.signed_op",
            op.arg,
            format_args!("{} {seq} {} for message {variant}", op.on, &sigs[..16]),
        );
        client.tell_receipt("client.signed", &answer, Choice::Kept);
        client.tell_messages(&answer, [&message[..]].into_iter());
    }
}

async fn batch(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let messages: Vec<[u8; 2]> = (0..16).map(|n| [n, op.key as u8]).collect();
    let items = messages.iter().map(|m| json!({ "message": B64.encode(m) }));
    let body = json!({ "kid": key.kid, "messages": items.collect::<Vec<Value>>() });
    let answer = client.ask("kms.batch", "POST", "/v1/kms/sign", &body).await;
    if let Some(answer) = answer {
        client.tell_receipt("client.signed", &answer, Choice::Head);
        client.tell_messages(&answer, messages.iter().map(|m| &m[..]));
    }
}

async fn rotate(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/rotate", key.kid);
    clients.tell(
        "client.rotating",
        op.key,
        format_args!("{} {}", op.on, key.kid),
    );
    let (ended, answer) = client
        .ask_told("kms.rotate", "POST", &path, &json!({}))
        .await;
    let head = answer
        .as_ref()
        .and_then(|answer| answer.body["head"].as_u64());
    match (ended, head) {
        (_, Some(head)) => clients.tell("client.rotate_ended", op.key, format_args!("{head}")),
        // Certainly not done.
        (Outcome::NotSent | Outcome::Answered(400..500), None) => {
            clients.tell("client.rotate_ended", op.key, format_args!("refused"));
        }
        _ => {}
    }
    if let Some(answer) = answer {
        let head = answer.body["head"].as_u64().unwrap_or(0);
        clients.tell(
            "client.rotated",
            head,
            format_args!("{} {}", op.on, key.kid),
        );
        client.tell_change(&answer, "rotated", head);
    }
}

async fn verify(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    if let Some(signed) = key.signed {
        verify_as(&client, None, signed).await;
    }
}

/// Tells the verdict, and by how old an index: `node began_us`.
async fn verify_as(
    client: &Client<'_>,
    tenant: Option<&str>,
    (message, by, sigs): (String, String, Value),
) {
    let (clients, on) = (client.clients, &client.op.on);
    let body = json!({ "kid": by, "message": message, "sigs": sigs });
    let began_us = timer::elapsed().as_micros();
    let (outcome, bytes) = client
        .send_as(tenant, "kms.verify", "POST", "/v1/kms/verify", &body)
        .await;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if let (Outcome::Answered(409), Some(code)) = (&outcome, answer["code"].as_str()) {
        clients.tell("client.verify_refused", 0, format_args!("{code} {by}"));
    }
    let age = answer["cache_age_ms"].as_u64();
    if outcome == Outcome::Answered(200) {
        let valid = answer["valid"] == Value::Bool(true);
        clients.tell("client.verified", u64::from(valid), format_args!("{by}"));
        if let Some(age) = age {
            let detail = format_args!("{on} {began_us}");
            clients.tell("client.verified_stale", age, detail);
        }
    }
    if answer["code"] == "verify_cache_expired" {
        let detail = format_args!("{on} {began_us}");
        clients.tell("client.verify_expired", age.unwrap_or(0), detail);
    }
}

async fn wrap(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let plain = client.message();
    let body = json!({ "kid": key.kid, "plaintext": plain });
    let answer = client.ask("kms.wrap", "POST", "/v1/kms/wrap", &body).await;
    let Some(answer) = answer else {
        return;
    };
    client.tell_receipt("client.used", &answer, Choice::Head);
    let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
    let kept = (text("kid"), text("wrapped"), plain);
    client.known().change(&op.on, Kind::Wraps, op.arg, |key| {
        key.wrapped = Some(kept);
    });
}

async fn unwrap(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let Some((name, blob, plain)) = key.wrapped else {
        return;
    };
    let body = json!({ "kid": name, "wrapped": blob });
    let answer = client
        .ask("kms.unwrap", "POST", "/v1/kms/unwrap", &body)
        .await;
    if let Some(answer) = answer {
        let (on, began) = (&op.on, answer.began_us);
        clients.tell("client.opened", 0, format_args!("{on} {name} {began} -"));
        let same = answer.body["plaintext"] == Value::String(plain);
        clients.tell("client.unwrapped", u64::from(same), format_args!("{name}"));
    }
}

async fn data_key(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let body = json!({ "kid": key.kid });
    let answer = client
        .ask("kms.data_key", "POST", "/v1/kms/data-key", &body)
        .await;
    if let Some(answer) = answer {
        client.tell_receipt("client.used", &answer, Choice::Head);
    }
}

async fn switch(clients: Clients, op: Op, kind: Kind, how: &'static str) {
    let client = client(&clients, &op);
    let Some(key) = client.key(kind).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/versions/1/{how}", key.kid);
    // An enable may take effect from the moment it is sent, a disable only once it is answered.
    if how == "enable" {
        clients.tell(
            "client.enabling",
            0,
            format_args!("{} {}#v1", op.on, key.kid),
        );
    }
    if how == "disable" {
        client.tell_changing(&key.kid, "disable");
    }
    let began_us = timer::elapsed().as_micros() as u64;
    let (outcome, answer) = client
        .ask_told("kms.switch", "POST", &path, &json!({}))
        .await;
    if let Some(answer) = answer {
        let what = if how == "enable" {
            "enabled"
        } else {
            "disabled"
        };
        client.tell_change(&answer, what, 1);
    }
    if how == "enable" && outcome != Outcome::Unknown {
        clients.tell(
            "client.enable_ended",
            0,
            format_args!("{} {}#v1", op.on, key.kid),
        );
    }
    if outcome == Outcome::Answered(200) && how == "disable" {
        clients.tell(
            "client.disabled",
            began_us,
            format_args!("{} {}#v1", op.on, key.kid),
        );
    }
}
