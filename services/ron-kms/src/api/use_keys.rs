//! Using keys: sign, verify, wrap, unwrap, data keys, attestation.

use axum::response::Response;
use ron_core::{
    api::{Json, JsonText},
    problem::Problem,
};

use super::{
    Call,
    answer::{Answer, encoded_len},
    misanswered,
    requests::{Attest, DataKey, Sign, Unwrap, Verify, Wrap},
};
use crate::{ask::Reply, keys::signing::Signature};

pub async fn sign(
    call: Call,
    JsonText(request, body): JsonText<Sign>,
) -> Result<Response, Problem> {
    let batch = request.is_batch();
    let ask = request.into_ask(&body)?;
    drop(body);
    let reply = call.api.state.ask(call.identity.into(), ask).await?;
    let Reply::Signed {
        key,
        algorithm,
        signatures,
        attestation,
        receipt,
    } = reply
    else {
        return Err(misanswered());
    };
    let room: usize = signatures.iter().flatten().map(sig_room).sum();
    let mut answer = Answer::with_room(room + attestation.as_ref().map_or(0, String::len));
    answer.kid(&key).word("alg", algorithm.name());
    match (batch, &signatures[..]) {
        (false, [one]) => answer.sigs(one),
        (false, _) => return Err(misanswered()),
        (true, all) => answer.results(all),
    };
    if let Some(evidence) = &attestation {
        answer.json("att", evidence);
    }
    answer.receipt(receipt);
    Ok(answer.done())
}

pub async fn verify(call: Call, Json(request): Json<Verify>) -> Result<Response, Problem> {
    let ask = request.into_ask()?;
    let kid = ask.key.kid.clone();
    let reply = call.api.state.verify(&call.identity.into(), ask).await?;
    let key = kid.version(reply.version).ok_or_else(misanswered)?;
    let mut answer = Answer::with_room(0);
    answer.plain("valid", reply.valid).kid(&key);
    if let Some(age) = reply.cache_age_ms {
        answer.plain("cache_age_ms", age);
    }
    Ok(answer.done())
}

pub async fn wrap(
    call: Call,
    JsonText(request, body): JsonText<Wrap>,
) -> Result<Response, Problem> {
    let ask = request.into_ask(&body);
    drop(body);
    match call.api.state.ask(call.identity.into(), ask).await? {
        Reply::Wrapped { key, blob, receipt } => {
            let mut answer = Answer::with_room(encoded_len(blob.len()));
            answer.kid(&key).binary("wrapped", &blob).receipt(receipt);
            Ok(answer.done())
        }
        _ => Err(misanswered()),
    }
}

pub async fn unwrap(call: Call, Json(request): Json<Unwrap>) -> Result<Response, Problem> {
    let ask = request.into_ask();
    match call.api.state.ask(call.identity.into(), ask).await? {
        Reply::Unwrapped {
            key,
            plain,
            receipt,
        } => {
            let mut answer = Answer::with_room(encoded_len(plain.len()));
            answer.kid(&key).binary("plaintext", plain.expose());
            answer.receipt(receipt);
            Ok(answer.done_secret())
        }
        _ => Err(misanswered()),
    }
}

pub async fn data_key(
    call: Call,
    JsonText(request, body): JsonText<DataKey>,
) -> Result<Response, Problem> {
    let ask = request.into_ask(&body);
    match call.api.state.ask(call.identity.into(), ask).await? {
        Reply::DataKey {
            key,
            plain,
            blob,
            receipt,
        } => {
            let room = encoded_len(plain.len()) + encoded_len(blob.len());
            let mut answer = Answer::with_room(room);
            answer.kid(&key).binary("plaintext", plain.expose());
            answer.binary("wrapped", &blob).receipt(receipt);
            Ok(answer.done_secret())
        }
        _ => Err(misanswered()),
    }
}

pub async fn attest(call: Call, Json(request): Json<Attest>) -> Result<Response, Problem> {
    let (key, nonce) = (request.kid.0, request.nonce.0);
    let caller = call.identity.into();
    let attested = call.api.state.attest(&caller, key, nonce).await?;
    let mut answer = Answer::with_room(2 * attested.statement.len() + 256);
    answer.text("statement", &attested.statement);
    answer.word("alg", "ed25519");
    answer.binary("sig", &attested.signature);
    answer.binary("public", &attested.public);
    Ok(answer.done())
}

fn sig_room(signature: &Signature) -> usize {
    encoded_len(signature.bytes.len())
}
