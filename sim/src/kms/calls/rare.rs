//! What clients ask of ron-kms now and then: wrong questions, minimum versions, destruction, other tenants.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{Client, Kind, SLOTS, client, verify_as};
use crate::{ops::Op, trace::Outcome, workload::Clients};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A signature counts for its message alone.
pub async fn verify_wrong(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some((_, by, sigs)) = client.key(Kind::Signs).await.and_then(|key| key.signed) else {
        return;
    };
    let message = B64.encode(b"never signed");
    let body = json!({ "kid": by, "message": message, "sigs": sigs });
    let path = "/v1/kms/verify";
    if let Some(answer) = client.ask("kms.verify", "POST", path, &body).await {
        let valid = answer.body["valid"] == Value::Bool(true);
        clients.tell(
            "client.verified_wrong",
            u64::from(valid),
            format_args!("{by}"),
        );
    }
}

pub async fn destroy_first(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/destroy", key.kid);
    let body = json!({ "version": 1, "wait_ms": DAY_MS });
    client.tell_changing(&key.kid, "destroy");
    let began_us = crate::timer::elapsed().as_micros() as u64;
    let (outcome, answer) = client.ask_told("kms.destroy", "POST", &path, &body).await;
    if let Some(answer) = answer {
        client.tell_change(&answer, "destroy_scheduled", 1);
    }
    // It comes back disabled at most: as good as disabled from here on.
    if outcome == Outcome::Answered(200) {
        let detail = format_args!("{} {}#v1", op.on, key.kid);
        clients.tell("client.disabled", began_us, detail);
    }
}

pub async fn cancel_first(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/destroy/cancel", key.kid);
    let body = json!({ "version": 1 });
    if let Some(answer) = client.ask("kms.cancel", "POST", &path, &body).await {
        client.tell_change(&answer, "destroy_cancelled", 1);
    }
}

pub async fn raise_minimum(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}", key.kid);
    let Some(shown) = client.ask("kms.show", "GET", &path, &Value::Null).await else {
        return;
    };
    let head = shown.body["head"].as_u64().unwrap_or(1);
    set_policy(&client, &key.kid, head, None).await;
}

pub async fn rotate_daily(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    if let Some(key) = client.key(Kind::Signs).await {
        set_policy(&client, &key.kid, 1, Some(DAY_MS)).await;
    }
}

async fn set_policy(client: &Client<'_>, kid: &str, minimum: u64, rotate_after_ms: Option<u64>) {
    let path = format!("/v1/kms/keys/{kid}/policy");
    let body = json!({ "min_version": minimum, "rotate_after_ms": rotate_after_ms });
    client.tell_changing(kid, "minimum");
    let (outcome, answer) = client.ask_told("kms.policy", "PUT", &path, &body).await;
    if let Some(answer) = answer {
        client.tell_change(&answer, "min_version", minimum);
    }
    if outcome == Outcome::Answered(200) {
        let detail = format_args!("{} {kid}", client.op.on);
        client.clients.tell("client.minimum", minimum, detail);
    }
}

/// With the headers that an ingress sets.
pub async fn tenant_sign(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let (own, slot) = (tenant(op.arg), op.arg);
    if client.known().get(&op.on, Kind::Signs, slot).is_none() {
        let body = json!({ "tenant": own, "purpose": "sim", "alg": "ed25519" });
        let making = client.send_as(Some(&own), "kms.create", "POST", "/v1/kms/keys", &body);
        let (outcome, bytes) = making.await;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let (Outcome::Answered(201), Some(kid)) = (outcome, body["kid"].as_str()) else {
            return;
        };
        client.known().change(&op.on, Kind::Signs, slot, |key| {
            if key.kid.is_empty() {
                key.kid = kid.to_owned();
            }
        });
    }
    let Some(key) = client.known().get(&op.on, Kind::Signs, slot) else {
        return;
    };
    let body = json!({ "kid": key.kid, "message": client.message() });
    let signing = client.send_as(Some(&own), "kms.sign", "POST", "/v1/kms/sign", &body);
    let (outcome, bytes) = signing.await;
    if outcome != Outcome::Answered(200) {
        return;
    }
    clients.tell("client.tenant_signed", op.arg, format_args!("{own}"));
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let by = answer["kid"].as_str().unwrap_or_default().to_owned();
    client.known().change(&op.on, Kind::Signs, slot, |key| {
        key.signed = Some((client.message(), by, answer["sigs"].clone()));
    });
}

pub async fn tenant_verify(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let key = client.known().get(&op.on, Kind::Signs, op.arg);
    if let Some(signed) = key.and_then(|key| key.signed) {
        verify_as(&client, Some(&tenant(op.arg)), signed).await;
    }
}

/// Fills the room for results.
pub async fn flood_op(clients: Clients, op: Op) {
    let of_t1 = Op { arg: SLOTS, ..op };
    let client = client(&clients, &of_t1);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let id = format!("flood-{}", of_t1.key);
    let body = json!({ "kid": key.kid, "message": client.message(), "op_id": id });
    client
        .send("kms.sign_op", "POST", "/v1/kms/sign", &body)
        .await;
}

/// Every version that is still there, at once.
pub async fn destroy_whole(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.key(Kind::Signs).await else {
        return;
    };
    let path = format!("/v1/kms/keys/{}/destroy", key.kid);
    client.tell_changing(&key.kid, "destroy");
    let body = json!({ "wait_ms": DAY_MS });
    client.send("kms.destroy_all", "POST", &path, &body).await;
}

pub async fn tenant_foreign(clients: Clients, op: Op) {
    let client = client(&clients, &op);
    let Some(key) = client.known().get(&op.on, Kind::Signs, op.arg) else {
        return;
    };
    let (own, other) = (tenant(op.arg), tenant(op.arg + SLOTS));
    let kid = &key.kid;
    let sign = json!({ "kid": kid, "message": client.message() });
    let wrap = json!({ "kid": kid, "plaintext": "AAAA" });
    let unwrap = json!({ "kid": format!("{kid}#v1"), "wrapped": "AAAA" });
    let verify =
        json!({ "kid": kid, "message": "AAAA", "sigs": [{ "alg": "ed25519", "sig": "AAAA" }] });
    let attest = json!({ "kid": kid, "nonce": B64.encode([7; 16]) });
    let policy = json!({ "min_version": 1, "rotate_after_ms": null });
    let import = json!({ "wrapped": "AAAA", "under": format!("{kid}#v1") });
    let of_key = |rest: &str| format!("/v1/kms/keys/{kid}{rest}");
    let use_of = |rest: &str| format!("/v1/kms/{rest}");
    let (none, first) = (json!({}), json!({ "version": 1 }));
    for (name, method, path, body) in [
        ("kms.sign", "POST", use_of("sign"), &sign),
        ("kms.verify", "POST", use_of("verify"), &verify),
        ("kms.wrap", "POST", use_of("wrap"), &wrap),
        ("kms.unwrap", "POST", use_of("unwrap"), &unwrap),
        (
            "kms.data_key",
            "POST",
            use_of("data-key"),
            &json!({ "kid": kid }),
        ),
        ("kms.attest", "POST", use_of("attest"), &attest),
        ("kms.show", "GET", of_key(""), &Value::Null),
        ("kms.show", "GET", of_key("/versions/1"), &Value::Null),
        ("kms.rotate", "POST", of_key("/rotate"), &none),
        ("kms.switch", "POST", of_key("/versions/1/disable"), &none),
        ("kms.switch", "POST", of_key("/versions/1/enable"), &none),
        ("kms.policy", "PUT", of_key("/policy"), &policy),
        ("kms.destroy", "POST", of_key("/destroy"), &first),
        ("kms.cancel", "POST", of_key("/destroy/cancel"), &first),
        ("kms.import", "POST", of_key("/import"), &import),
    ] {
        let asking = client.send_as(Some(&other), name, method, &path, body);
        if let Outcome::Answered(status @ 200..300) = asking.await.0 {
            let detail = format_args!("{name} with a key of {own} as {other}");
            clients.tell("client.crossed_tenants", u64::from(status), detail);
        }
    }
    for path in ["/v1/kms/keys?limit=1000", "/v1/kms/jwks.json"] {
        let asking = client.send_as(Some(&other), "kms.list", "GET", path, &Value::Null);
        let (outcome, bytes) = asking.await;
        if String::from_utf8_lossy(&bytes).contains(kid.as_str()) {
            let status = if let Outcome::Answered(status) = outcome {
                status
            } else {
                0
            };
            let detail = format_args!("{path} shows a key of {own} to {other}");
            clients.tell("client.crossed_tenants", u64::from(status), detail);
        }
    }
}

fn tenant(slot: u64) -> String {
    format!("t{}", slot / SLOTS)
}
