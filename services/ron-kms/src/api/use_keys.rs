//! Using keys: sign, verify, wrap, unwrap, data keys, attestation.

use axum::response::Response;
use ron_core::problem::Problem;

use super::{
    Call,
    answer::{Answer, encoded_len},
    misanswered, parse, refusal,
    requests::{Attest, DataKey, Sign, Unwrap, Verify, Wrap},
};
use crate::{ask::Reply, keys::signing::Signature};

pub async fn sign(mut call: Call) -> Result<Response, Problem> {
    let body = call.bytes().await?;
    let request: Sign = parse(&body)?;
    let batch = request.is_batch();
    let ask = request.into_ask(&body)?;
    drop(body);
    let reply = call.api.0.kms.ask(call.caller, ask).await;
    let Reply::Signed {
        key,
        algorithm,
        signatures,
        attestation,
        receipt,
    } = reply.map_err(refusal)?
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

pub async fn verify(mut call: Call) -> Result<Response, Problem> {
    let request: Verify = call.json().await?;
    let ask = request.into_ask()?;
    let kid = ask.key.kid.clone();
    let reply = call.kms().verify(&call.caller, ask).await;
    let reply = reply.map_err(refusal)?;
    let key = kid.version(reply.version).ok_or_else(misanswered)?;
    let mut answer = Answer::with_room(0);
    answer.plain("valid", reply.valid).kid(&key);
    if let Some(age) = reply.cache_age_ms {
        answer.plain("cache_age_ms", age);
    }
    Ok(answer.done())
}

pub async fn wrap(mut call: Call) -> Result<Response, Problem> {
    let body = call.bytes().await?;
    let ask = parse::<Wrap>(&body)?.into_ask(&body);
    drop(body);
    match call
        .api
        .0
        .kms
        .ask(call.caller, ask)
        .await
        .map_err(refusal)?
    {
        Reply::Wrapped { key, blob, receipt } => {
            let mut answer = Answer::with_room(encoded_len(blob.len()));
            answer.kid(&key).binary("wrapped", &blob).receipt(receipt);
            Ok(answer.done())
        }
        _ => Err(misanswered()),
    }
}

pub async fn unwrap(mut call: Call) -> Result<Response, Problem> {
    let ask = call.json::<Unwrap>().await?.into_ask();
    match call
        .api
        .0
        .kms
        .ask(call.caller, ask)
        .await
        .map_err(refusal)?
    {
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

pub async fn data_key(mut call: Call) -> Result<Response, Problem> {
    let body = call.bytes().await?;
    let ask = parse::<DataKey>(&body)?.into_ask(&body);
    match call
        .api
        .0
        .kms
        .ask(call.caller, ask)
        .await
        .map_err(refusal)?
    {
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

pub async fn attest(mut call: Call) -> Result<Response, Problem> {
    let (key, nonce) = call.json::<Attest>().await?.into_parts()?;
    let attested = call.kms().attest(&call.caller, key, nonce).await;
    let attested = attested.map_err(refusal)?;
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
