//! A customer who takes nobody's word: checks signatures with public keys, opens what was wrapped, counts the keys.
//!
//! What is expected comes from the request and from plain cryptography, never from the service's own code.

use std::collections::BTreeSet;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{Answer, Choice, Client, Kind, client};
use crate::{ops::Op, trace::Outcome, workload::Clients};

/// Signs one message or a few at once, and checks each signature with the version's public key.
pub async fn sign_checked(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let count = 1 + op.key % 5;
    let messages: Vec<[u8; 9]> = (0..count).map(|n| message(&op, n as u8)).collect();
    let one = count == 1;
    let body = match one {
        true => json!({ "kid": key.kid, "message": B64.encode(messages[0]) }),
        false => {
            let items = messages.iter().map(|m| json!({ "message": B64.encode(m) }));
            json!({ "kid": key.kid, "messages": items.collect::<Vec<Value>>() })
        }
    };
    let Some(answer) = client.ask("kms.sign", "POST", "/v1/kms/sign", &body).await else {
        return;
    };
    client.tell_receipt("client.signed", &answer, Choice::Head);
    client.tell_messages(&answer, messages.iter().map(|m| &m[..]));
    let Some(public) = client.public_of(&answer).await else {
        return;
    };
    let signed: Vec<&Value> = match one {
        true => vec![&answer.body],
        false => answer.body["results"]
            .as_array()
            .into_iter()
            .flatten()
            .collect(),
    };
    let good = signed.len() == messages.len()
        && signed.iter().zip(&messages).all(|(one, message)| {
            let signature = bytes(&one["sigs"][0]["sig"]);
            verifies(&public, message, &signature)
        });
    client.checked(good, "its signatures hold, each for its message");
}

/// Wraps under a context and opens it again: under the same context, and in vain under another or changed.
pub async fn wrap_checked(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let (plain, context) = (client.message(), B64.encode(message(&op, 1)));
    let body = json!({ "kid": key.kid, "plaintext": plain, "context": context });
    let Some(answer) = client.ask("kms.wrap", "POST", "/v1/kms/wrap", &body).await else {
        return;
    };
    client.tell_receipt("client.used", &answer, Choice::Head);
    open_and_try(&client, &answer, &plain, &context).await;
}

/// A data key comes twice: plain, and wrapped. They are the same.
pub async fn data_key_checked(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let context = B64.encode(message(&op, 2));
    let body = json!({ "kid": key.kid, "context": context });
    let path = "/v1/kms/data-key";
    let Some(answer) = client.ask("kms.data_key", "POST", path, &body).await else {
        return;
    };
    client.tell_receipt("client.used", &answer, Choice::Head);
    let plain = answer.body["plaintext"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    client.checked(
        bytes(&answer.body["plaintext"]).len() == 32,
        "a data key has 32 bytes",
    );
    open_and_try(&client, &answer, &plain, &context).await;
}

async fn open_and_try(client: &Client<'_>, answer: &Answer, plain: &str, context: &str) {
    let (kid, blob) = (&answer.body["kid"], &answer.body["wrapped"]);
    let right = json!({ "kid": kid, "wrapped": blob, "context": context });
    if let Some(opened) = client.ask("kms.unwrap", "POST", UNWRAP, &right).await {
        let same = opened.body["plaintext"] == Value::String(plain.to_owned());
        client.checked(same, "what was wrapped comes back");
    }
    let other = json!({ "kid": kid, "wrapped": blob, "context": "b3RoZXI" });
    let bare = json!({ "kid": kid, "wrapped": blob });
    let mut changed = bytes(blob);
    let middle = changed.len() / 2;
    if let Some(byte) = changed.get_mut(middle) {
        *byte ^= 1;
    }
    let changed = json!({ "kid": kid, "wrapped": B64.encode(&changed), "context": context });
    for (wrong, what) in [
        (other, "another context opens nothing"),
        (bare, "no context opens nothing that was wrapped under one"),
        (changed, "a changed blob does not open"),
    ] {
        let (outcome, _) = client.send(WRONG, "POST", UNWRAP, &wrong).await;
        client.checked(!matches!(outcome, Outcome::Answered(200..300)), what);
    }
}

/// A hybrid key signs with both of its halves, and one half alone, or one twice, proves nothing.
pub async fn hybrid_checked(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let made = json!({ "tenant": "t1", "purpose": "sim", "alg": "ed25519+ml-dsa-65" });
    let Some(key) = client
        .ask("kms.create", "POST", "/v1/kms/keys", &made)
        .await
    else {
        return;
    };
    let message = client.message();
    let body = json!({ "kid": key.body["kid"], "message": message });
    let Some(answer) = client.ask("kms.sign", "POST", "/v1/kms/sign", &body).await else {
        return;
    };
    let sigs = answer.body["sigs"].as_array().cloned().unwrap_or_default();
    client.checked(sigs.len() == 2, "a hybrid key signs with both halves");
    let [classic, lattice] = &sigs[..] else {
        return;
    };
    for (given, valid) in [
        (vec![classic, lattice], true),
        (vec![classic], false),
        (vec![lattice], false),
        (vec![classic, classic], false),
    ] {
        let body = json!({ "kid": answer.body["kid"], "message": message, "sigs": given });
        let name = if valid { "kms.verify" } else { WRONG };
        let (outcome, bytes) = client.send(name, "POST", "/v1/kms/verify", &body).await;
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if outcome == Outcome::Answered(200) {
            let holds = told["valid"] == Value::Bool(valid);
            client.checked(holds, "a hybrid signature holds as a whole or not at all");
        }
    }
}

/// Asks the service for evidence of a key, and checks what it signed.
pub async fn attest_checked(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let nonce = B64.encode([message(&op, 3), message(&op, 4)].concat());
    let body = json!({ "kid": key.kid, "nonce": nonce });
    let path = "/v1/kms/attest";
    let Some(answer) = client.ask("kms.attest", "POST", path, &body).await else {
        return;
    };
    let statement = answer.body["statement"].as_str().unwrap_or_default();
    let (public, signature) = (bytes(&answer.body["public"]), bytes(&answer.body["sig"]));
    let signed = verifies(&public, statement.as_bytes(), &signature);
    client.checked(signed, "an attestation is signed by the key it names");
    let told = statement.contains(&nonce) && statement.contains(&key.kid);
    client.checked(told, "an attestation names its nonce and its key");
}

/// Rotates the wrapping key; what was wrapped before must still open.
pub async fn rotate_wrapping(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/rotate", key.kid);
    client.send("kms.rotate", "POST", &path, &json!({})).await;
}

/// Up to the last version that a key may have, and one more, which is refused.
pub async fn fill_versions(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/rotate", key.kid);
    let mut head = 1;
    for _ in 0..=VERSIONS {
        let body = json!({ "from": head });
        let name = if head < VERSIONS { "kms.rotate" } else { WRONG };
        let (outcome, bytes) = client.send(name, "POST", &path, &body).await;
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match outcome {
            Outcome::Answered(200) => head += 1,
            Outcome::Answered(409) => {
                let full = told["code"] == "too_many_versions" && head == VERSIONS;
                return client.checked(full, "a key is full with its last version");
            }
            _ => return,
        }
    }
    client.checked(false, "a key has no more versions than it may have");
}

/// The same wrap under the same operation id, however often: the same blob.
pub async fn wrap_op(clients: Clients, op: Op) {
    let slot = Op {
        arg: 0,
        ..op.clone()
    };
    let client = client(&clients, &slot);
    let Some(key) = client.key(Kind::Wraps).await else {
        return;
    };
    let plain = B64.encode(op.arg.to_be_bytes());
    let id = format!("wrap-{}", op.arg);
    let body = json!({ "kid": key.kid, "plaintext": plain, "op_id": id });
    let Some(answer) = client
        .ask("kms.wrap_op", "POST", "/v1/kms/wrap", &body)
        .await
    else {
        return;
    };
    client.tell_done_op(&id);
    let blob = blake3::hash(answer.body["wrapped"].to_string().as_bytes()).to_hex();
    let seq = answer.body["receipt"]["seq"].as_u64().unwrap_or(u64::MAX);
    clients.tell(
        "client.signed_op",
        op.arg + (1 << 32),
        format_args!("{} {seq} {} wrapped", op.on, &blob[..16]),
    );
    client.tell_receipt("client.used", &answer, Choice::Kept);
}

/// Goes through all keys, a few at a time: each that was made is there, once, in order.
pub async fn list(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    if client.key(Kind::Signs).await.is_none() {
        return;
    }
    let made: BTreeSet<String> = client.known().made_on(&op.on);
    let (limit, mut after, mut listed) = (1 + op.key % 3, String::new(), Vec::new());
    loop {
        let path = format!("/v1/kms/keys?limit={limit}{after}");
        let Some(page) = client.ask("kms.list", "GET", &path, &Value::Null).await else {
            return;
        };
        let keys = page.body["keys"].as_array().cloned().unwrap_or_default();
        client.checked(
            keys.len() as u64 <= limit,
            "a page has no more than was asked for",
        );
        listed.extend(
            keys.iter()
                .filter_map(|key| key["kid"].as_str().map(str::to_owned)),
        );
        match page.body["next"].as_str() {
            Some(next) if listed.len() < MOST => after = format!("&after={next}"),
            Some(_) => return client.checked(false, "the pages of a list end"),
            None => break,
        }
    }
    let in_order = listed.windows(2).all(|pair| pair[0] < pair[1]);
    client.checked(in_order, "keys are listed once and in order");
    let listed: BTreeSet<String> = listed.into_iter().collect();
    client.checked(made.is_subset(&listed), "every key that was made is listed");
}

/// What is shown of a key agrees with itself and with what was told before.
pub async fn show(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}", key.kid);
    let Some(answer) = client.ask("kms.show", "GET", &path, &Value::Null).await else {
        return;
    };
    let shown = &answer.body;
    tell_enabled(&client, &answer);
    let head = shown["head"].as_u64().unwrap_or(0);
    let numbers = shown["versions"].as_array().into_iter().flatten();
    let numbers: Vec<u64> = numbers.filter_map(|v| v["version"].as_u64()).collect();
    let whole =
        numbers.iter().copied().eq(1..=head) && shown["kid"] == Value::String(key.kid.clone());
    client.checked(whole, "a key is shown with all its versions");
    // The version that signed last is there, and is no newer than the head.
    let signed = key
        .signed
        .as_ref()
        .and_then(|(_, by, _)| by.rsplit_once("#v"));
    let signed = signed.and_then(|(_, n)| n.parse::<u64>().ok()).unwrap_or(1);
    client.checked(signed <= head, "no version is newer than the head");
}

fn tell_enabled(client: &Client<'_>, answer: &Answer) {
    let versions = answer.body["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["state"] == "enabled") {
        let (on, began) = (&client.op.on, answer.began_us);
        let name = version["kid"].as_str().unwrap_or_default();
        let detail = format_args!("{on} {name} {began} -");
        client.clients.tell("client.shown_enabled", 0, detail);
    }
}

/// The published keys verify what was signed.
pub async fn key_set(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some((message, by, sigs)) = client.key(Kind::Signs).await.and_then(|key| key.signed) else {
        return;
    };
    let path = "/v1/kms/jwks.json";
    let Some(set) = client.ask("kms.jwks", "GET", path, &Value::Null).await else {
        return;
    };
    let keys = set.body["keys"].as_array().into_iter().flatten();
    let own = keys.filter(|key| key["kid"] == Value::String(by.clone()));
    for key in own {
        let message = B64.decode(&message).unwrap_or_default();
        let good = verifies(&bytes(&key["x"]), &message, &bytes(&sigs[0]["sig"]));
        client.checked(good, "a published key verifies what its version signed");
    }
}

impl Client<'_> {
    /// The public key of the version that an answer names, asked for once.
    async fn public_of(&self, answer: &Answer) -> Option<Vec<u8>> {
        let name = answer.body["kid"].as_str()?;
        if let Some(public) = self.known().public(&self.op.on, name) {
            return Some(public);
        }
        let (kid, version) = name.split_once("#v")?;
        let path = format!("/v1/kms/keys/{kid}/versions/{version}");
        let shown = self.ask("kms.show", "GET", &path, &Value::Null).await?;
        let public = bytes(&shown.body["public"]["raw"]);
        // Of a version that is out of use meanwhile nothing may be shown.
        if public.is_empty() {
            return None;
        }
        self.known().keep_public(&self.op.on, name, &public);
        Some(public)
    }

    fn checked(&self, holds: bool, what: &'static str) {
        let on = &self.op.on;
        self.clients.tell(
            "client.checked",
            u64::from(holds),
            format_args!("{on}: {what}"),
        );
    }
}

/// Requests that are wrong on purpose.
pub const WRONG: &str = "kms.wrong";
const UNWRAP: &str = "/v1/kms/unwrap";
/// As many as a key may have.
const VERSIONS: u64 = 1024;
/// More keys than any run makes.
const MOST: usize = 10_000;

fn message(op: &Op, n: u8) -> [u8; 9] {
    let mut message = [n; 9];
    message[1..].copy_from_slice(&op.key.to_be_bytes());
    message
}

pub fn bytes(value: &Value) -> Vec<u8> {
    B64.decode(value.as_str().unwrap_or_default())
        .unwrap_or_default()
}

pub fn verifies(public: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let key = UnparsedPublicKey::new(&ED25519, public);
    key.verify(message, signature).is_ok()
}
