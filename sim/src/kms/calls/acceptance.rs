//! Is the service as good as new? What a careful operator would try once all faults have healed, from first to last.
//!
//! Each round takes a key of its own, so that nothing of the run before is in its way. Always: the first step that does
//! not come out as it must is what is missing, and the next round begins anew.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{Client, SLOTS, auditor, customer};
use crate::{kms::PORT, metrics_page, ops::Op, timer, trace::Outcome, workload::Clients};

type Missing = (Outcome, Bytes);

/// How long a record may wait for its checkpoint in a service at rest.
const COVERED_WITHIN: Duration = Duration::from_millis(3_500);
/// As many as a batch may have; more than are signed in place, so that it takes another way.
const LONG_BATCH: usize = 512;

/// Whether the node does all that it is there for.
pub async fn serves(clients: &Clients, on: &str, timeout: Duration) -> Missing {
    let op = Op {
        at_us: 0,
        client: 0,
        on: on.to_owned(),
        call: "kms.sign".to_owned(),
        key: clients.fresh_key(),
        // Of a tenant that may have been busy before.
        arg: SLOTS - 1,
        timeout_ms: timeout.as_millis() as u64,
    };
    let client = Client { clients, op: &op };
    match whole(&client).await {
        Ok(()) => (Outcome::Answered(200), Bytes::new()),
        Err(missing) => missing,
    }
}

async fn whole(client: &Client<'_>) -> Result<(), Missing> {
    let made = json!({ "tenant": "t0", "purpose": "sim", "alg": "ed25519" });
    let made = want(client, "POST", "/v1/kms/keys", &made, 201).await?;
    let kid = text(&made["kid"]);
    sign_promptly(client, &kid).await?;
    let record = rotate_once(client, &kid).await?;
    published(client, &kid).await?;
    long_batch(client, &kid).await?;
    out_of_use(client, &kid).await?;
    contexts(client).await?;
    counted(client, &kid).await?;
    asked_again(client).await?;
    covered(client, record).await?;
    // Alone behind a checkpoint.
    let body = json!({ "kid": kid, "message": client.message(), "op_id": format!("last-{}", client.op.key) });
    let last = want(client, "POST", "/v1/kms/sign", &body, 200).await?;
    let index = last["receipt"]["index"].as_u64();
    let index = index.ok_or_else(|| missing("an answer that waited tells its place in the log"))?;
    covered(client, index).await
}

/// What failed under an operation id may be asked for again, and is then done.
async fn asked_again(client: &Client<'_>) -> Result<(), Missing> {
    for body in client.known().failed_on(&client.op.on) {
        let (outcome, bytes) = client
            .send("kms.sign_op", "POST", "/v1/kms/sign", &body)
            .await;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        // The id may have been used for another message meanwhile, or the version be out of use; but nobody is at work on it.
        let refused = outcome == Outcome::Answered(409) && answer["code"] != "op_id_in_flight";
        if outcome != Outcome::Answered(200) && !refused {
            return Err((outcome, bytes));
        }
    }
    Ok(())
}

/// Answers that wait for their record come one right after the other, and what they signed verifies afresh.
async fn sign_promptly(client: &Client<'_>, kid: &str) -> Result<(), Missing> {
    let message = client.message();
    for n in 0..3 {
        let id = format!("new-{}-{n}", client.op.key);
        let body = json!({ "kid": kid, "message": message, "op_id": id });
        let signed = want(client, "POST", "/v1/kms/sign", &body, 200).await?;
        let again = want(client, "POST", "/v1/kms/sign", &body, 200).await?;
        holds(signed == again, "an operation id is answered twice alike")?;
        let body = json!({ "kid": signed["kid"], "message": message, "sigs": signed["sigs"] });
        let verified = want(client, "POST", "/v1/kms/verify", &body, 200).await?;
        holds(verified["valid"] == true, "a signature verifies")?;
        let fresh = verified.get("cache_age_ms").is_none();
        holds(
            fresh,
            "with the backend up nothing is verified by an old index",
        )?;
    }
    Ok(())
}

/// A rotation that names the head it knows happens once. Gives the place of its record.
async fn rotate_once(client: &Client<'_>, kid: &str) -> Result<u64, Missing> {
    let path = format!("/v1/kms/keys/{kid}/rotate");
    let from = json!({ "from": 1 });
    let rotated = want(client, "POST", &path, &from, 200).await?;
    holds(rotated["head"] == 2, "a rotation gives the next version")?;
    refused(client, &path, &from, "head_moved").await?;
    let body = json!({ "kid": kid, "message": client.message() });
    let signed = want(client, "POST", "/v1/kms/sign", &body, 200).await?;
    holds(
        signed["kid"] == format!("{kid}#v2"),
        "the newest version signs",
    )?;
    let index = rotated["receipt"]["index"].as_u64();
    index.ok_or_else(|| missing("a change tells its place in the log"))
}

async fn published(client: &Client<'_>, kid: &str) -> Result<(), Missing> {
    let set = want(client, "GET", "/v1/kms/jwks.json", &Value::Null, 200).await?;
    let names = set["keys"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|key| key["kid"].as_str()).collect();
    let both = [1, 2].map(|n| names.contains(&format!("{kid}#v{n}").as_str()));
    holds(both == [true, true], "the key set has every version in use")
}

async fn long_batch(client: &Client<'_>, kid: &str) -> Result<(), Missing> {
    let messages: Vec<[u8; 2]> = (0..LONG_BATCH).map(|n| [n as u8, (n >> 8) as u8]).collect();
    let items = messages.iter().map(|m| json!({ "message": B64.encode(m) }));
    let body = json!({ "kid": kid, "messages": items.collect::<Vec<Value>>() });
    let signed = want(client, "POST", "/v1/kms/sign", &body, 200).await?;
    let path = format!("/v1/kms/keys/{kid}/versions/2");
    let shown = want(client, "GET", &path, &Value::Null, 200).await?;
    let public = customer::bytes(&shown["public"]["raw"]);
    let signed = signed["results"].as_array().cloned().unwrap_or_default();
    let good = |n: usize| {
        let signature = customer::bytes(&signed[n]["sigs"][0]["sig"]);
        customer::verifies(&public, &messages[n], &signature)
    };
    let good = signed.len() == LONG_BATCH && good(0) && good(LONG_BATCH - 1);
    holds(good, "a long batch is signed in order")
}

/// The head out of use: nothing else signs in its place. Scheduled for destruction: it stays so until that is cancelled.
async fn out_of_use(client: &Client<'_>, kid: &str) -> Result<(), Missing> {
    let version = |n: u8, how: &str| format!("/v1/kms/keys/{kid}/versions/{n}/{how}");
    let (none, sign) = (
        json!({}),
        json!({ "kid": kid, "message": client.message() }),
    );
    client.tell_changing(kid, "disable");
    want(client, "POST", &version(2, "disable"), &none, 200).await?;
    refused(client, "/v1/kms/sign", &sign, "version_disabled").await?;
    want(client, "POST", &version(2, "enable"), &none, 200).await?;
    want(client, "POST", "/v1/kms/sign", &sign, 200).await?;
    let (path, first) = (
        format!("/v1/kms/keys/{kid}/destroy"),
        json!({ "version": 1 }),
    );
    client.tell_changing(kid, "destroy");
    want(client, "POST", &path, &first, 200).await?;
    refused(client, &version(1, "disable"), &none, "destroy_scheduled").await?;
    refused(client, &version(1, "enable"), &none, "destroy_scheduled").await?;
    let shown = format!("/v1/kms/keys/{kid}");
    let shown = want(client, "GET", &shown, &Value::Null, 200).await?;
    let still = shown["versions"][0]["state"] == "scheduled";
    holds(
        still,
        "a version to be destroyed stays so until that is cancelled",
    )
}

/// A context counts to its last byte.
async fn contexts(client: &Client<'_>) -> Result<(), Missing> {
    let made = json!({ "tenant": "t0", "purpose": "sim", "alg": "aes-256-gcm" });
    let made = want(client, "POST", "/v1/kms/keys", &made, 201).await?;
    let (kid, mut context) = (text(&made["kid"]), [9; 40]);
    let wrap = json!({ "kid": kid, "plaintext": client.message(), "context": B64.encode(context) });
    let wrapped = want(client, "POST", "/v1/kms/wrap", &wrap, 200).await?;
    let body = |context: &[u8]| json!({ "kid": wrapped["kid"], "wrapped": wrapped["wrapped"], "context": B64.encode(context) });
    let opened = want(client, "POST", "/v1/kms/unwrap", &body(&context), 200).await?;
    holds(
        opened["plaintext"] == client.message(),
        "what was wrapped comes back",
    )?;
    context[39] = 8;
    refused(client, "/v1/kms/unwrap", &body(&context), "blob_invalid").await
}

/// One signature is counted once.
async fn counted(client: &Client<'_>, kid: &str) -> Result<(), Missing> {
    let before = signatures(client).await?;
    let body = json!({ "kid": kid, "message": client.message() });
    want(client, "POST", "/v1/kms/sign", &body, 200).await?;
    let after = signatures(client).await?;
    holds(after == before + 1, "one signature is counted once")
}

async fn signatures(client: &Client<'_>) -> Result<u64, Missing> {
    let to = format!("{}:{PORT}", client.op.on);
    let patience = Duration::from_millis(client.op.timeout_ms);
    let asking = client.clients.exchange(&to, "/metrics", "GET", patience);
    let (outcome, body) = asking.await;
    if outcome != Outcome::Answered(200) {
        return Err((outcome, body));
    }
    let page = String::from_utf8_lossy(&body);
    let labels = ["action=\"sign\"", "code=\"ok\""];
    let value = metrics_page::value(&page, "kms_operations_total", &labels);
    value.ok_or_else(|| missing("signatures are counted"))
}

/// The log at rest is covered to its last record, and gives a proof of each.
async fn covered(client: &Client<'_>, index: u64) -> Result<(), Missing> {
    let until = timer::now() + COVERED_WITHIN;
    while auditor::covers(client)
        .await
        .is_none_or(|size| size <= index)
    {
        if timer::now() > until {
            return Err(missing("a checkpoint comes within its interval"));
        }
        timer::sleep(Duration::from_millis(100)).await;
    }
    let proven = auditor::proves(client, index).await;
    // A partial bundle that is gone meanwhile proves nothing.
    holds(proven != Some(false), "a covered record has its proof")
}

async fn want(
    client: &Client<'_>,
    method: &'static str,
    path: &str,
    body: &Value,
    status: u16,
) -> Result<Value, Missing> {
    let (outcome, bytes) = client.send("kms.accept", method, path, body).await;
    match outcome {
        Outcome::Answered(found) if found == status => {
            Ok(serde_json::from_slice(&bytes).unwrap_or_default())
        }
        other => Err((other, bytes)),
    }
}

async fn refused(
    client: &Client<'_>,
    path: &str,
    body: &Value,
    code: &'static str,
) -> Result<(), Missing> {
    let (_, bytes) = client.send(customer::WRONG, "POST", path, body).await;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match answer["code"] == code {
        true => Ok(()),
        false => Err(missing(&format!(
            "{path} is refused with {code}, not {answer}"
        ))),
    }
}

fn holds(it: bool, what: &str) -> Result<(), Missing> {
    it.then_some(()).ok_or_else(|| missing(what))
}

fn missing(what: &str) -> Missing {
    (
        Outcome::Unknown,
        Bytes::from(format!("it does not hold that {what}")),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
