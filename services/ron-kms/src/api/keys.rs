//! Keys: made, listed, rotated, disabled, destroyed; and their public halves as the world reads them.
//!
//! An answer to a change is the key as it then is, with the receipt of the change.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    sync::Arc,
};

use axum::{
    body::Body,
    extract::FromRequestParts,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use ron_core::problem::{ApiPath, ApiQuery, Problem};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Call, answer, misanswered, refusal,
    requests::{CancelDestroy, Create, Destroy, Import, Nothing, Page, Rotate, SetPolicy},
};
use crate::{
    ask::{Ask, Receipt, Reply},
    error::KmsError,
    index::{Entry, Held},
    keys::{
        Algorithm, Kid, Use, VersionedKid,
        key::{Refusal, State, Version, WallMs},
        public::{Jwk, PublicKey},
    },
};

pub const DEFAULT_PAGE: usize = 100;
pub const MAX_PAGE: usize = 1000;

pub async fn create(mut call: Call) -> Result<Response, Problem> {
    let ask = call.json::<Create>().await?.into_ask(&call.caller)?;
    let (kid, mut response) = change(call, ask, StatusCode::CREATED).await?;
    // A kid is made of characters that a header takes.
    if let Ok(place) = HeaderValue::try_from(format!("/v1/kms/keys/{kid}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

pub async fn rotate(mut call: Call) -> Result<Response, Problem> {
    let kid = call.path().await?;
    let Rotate { from } = call.json_or_nothing().await?;
    changed(call, Ask::Rotate { kid, from }).await
}

pub async fn disable(call: Call) -> Result<Response, Problem> {
    switch(call, Ask::Disable).await
}

pub async fn enable(call: Call) -> Result<Response, Problem> {
    switch(call, Ask::Enable).await
}

pub async fn destroy(mut call: Call) -> Result<Response, Problem> {
    let kid = call.path().await?;
    let ask = call.json_or_nothing::<Destroy>().await?.into_ask(kid);
    changed(call, ask).await
}

pub async fn cancel_destroy(mut call: Call) -> Result<Response, Problem> {
    let kid = call.path().await?;
    let ask = call.json_or_nothing::<CancelDestroy>().await?.into_ask(kid);
    changed(call, ask).await
}

pub async fn set_policy(mut call: Call) -> Result<Response, Problem> {
    let kid = call.path().await?;
    let ask = call.json::<SetPolicy>().await?.into_ask(kid);
    changed(call, ask).await
}

pub async fn import(mut call: Call) -> Result<Response, Problem> {
    let kid = call.path().await?;
    let ask = call.json::<Import>().await?.into_ask(kid);
    changed(call, ask).await
}

pub async fn list(mut call: Call) -> Result<Response, Problem> {
    let ApiQuery(page) = ApiQuery::<Page>::from_request_parts(&mut call.parts, &()).await?;
    let limit = page.limit.unwrap_or(DEFAULT_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query")
            .detail(format_args!("limit: 1 to {MAX_PAGE} are allowed")));
    }
    let all = call.kms().index().visible(&call.caller);
    let start = page.after.map_or(0, |after| {
        all.partition_point(|entry| *entry.key.kid() <= after)
    });
    let shown = &all[start..all.len().min(start.saturating_add(limit))];
    let more = start + shown.len() < all.len();
    let body = PageView {
        keys: shown.iter().map(|entry| KeyView::of(entry)).collect(),
        next: shown.last().filter(|_| more).map(|last| last.key.kid()),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

pub async fn show(mut call: Call) -> Result<Response, Problem> {
    let kid: Kid = call.path().await?;
    let index = call.kms().index();
    let entry = index.find(&call.caller, &kid).map_err(refusal)?;
    let view = KeyView::of(entry).with_versions(entry);
    Ok(answer::json(StatusCode::OK, &view))
}

pub async fn show_version(mut call: Call) -> Result<Response, Problem> {
    let (kid, number): (Kid, u32) = call.path().await?;
    let index = call.kms().index();
    let entry = index.find(&call.caller, &kid).map_err(refusal)?;
    let missing = || refusal(Refusal::NoSuchVersion(number).into());
    let version = entry.key.versions().get(&number).ok_or_else(missing)?;
    let held = entry.held(number).ok_or_else(missing)?;
    let id = kid.version(number).ok_or_else(missing)?;
    let shown = held.public.as_ref();
    let shown = shown.filter(|_| entry.may_show(number, call.now_ms()));
    let body = OneVersionView {
        version: VersionView::of(id, version),
        alg: entry.key.algorithm(),
        used_to: entry.key.algorithm().key_use(),
        public: shown.map(PublicView::of).transpose()?,
    };
    Ok(answer::json(StatusCode::OK, &body))
}

pub fn jwks(call: Call) -> Ready<Result<Response, Problem>> {
    let now = call.now_ms();
    let index = call.kms().index();
    let set = index.key_set(&call.caller, |entries| key_set(entries, now));
    ready(Ok(answer::with_type(answer::JWK_SET, Body::from(set))))
}

/// Enabled versions only: what these may do does not depend on the time.
fn key_set(entries: &[Arc<Entry>], now: u64) -> Bytes {
    let keys = entries.iter().flat_map(|entry| {
        let shown = entry.versions.iter().filter(move |(number, _)| {
            let version = entry.key.versions().get(number);
            let enabled = version.is_some_and(|version| version.state == State::Enabled);
            enabled && entry.may_show(**number, now)
        });
        shown.flat_map(|(_, held)| named_jwks(held))
    });
    let set = BTreeMap::from([("keys", keys.collect::<Vec<Jwk>>())]);
    // Maps from text to text.
    serde_json::to_vec(&set).unwrap_or_default().into()
}

// ------------------------------------------------------------------------------------ changes

impl Call {
    async fn path<T: DeserializeOwned + Send>(&mut self) -> Result<T, Problem> {
        let ApiPath(path) = ApiPath::from_request_parts(&mut self.parts, &()).await?;
        Ok(path)
    }
}

async fn switch(mut call: Call, ask: fn(VersionedKid) -> Ask) -> Result<Response, Problem> {
    let (kid, number): (Kid, u32) = call.path().await?;
    let Nothing {} = call.json_or_nothing().await?;
    let id = kid.version(number);
    let id = id.ok_or_else(|| refusal(Refusal::NoSuchVersion(number).into()))?;
    changed(call, ask(id)).await
}

async fn changed(call: Call, ask: Ask) -> Result<Response, Problem> {
    let (_, response) = change(call, ask, StatusCode::OK).await?;
    Ok(response)
}

async fn change(call: Call, ask: Ask, status: StatusCode) -> Result<(Kid, Response), Problem> {
    let reply = call.api.0.kms.ask(call.caller, ask).await;
    let Reply::Key { kid, receipt, .. } = reply.map_err(refusal)? else {
        return Err(misanswered());
    };
    let index = call.api.0.kms.index();
    let entry = index.get(&kid);
    let entry = entry.ok_or_else(|| refusal(KmsError::NoSuchKey))?;
    let mut view = KeyView::of(entry).with_versions(entry);
    view.receipt = Some(ReceiptView::of(receipt));
    let response = answer::json(status, &view);
    Ok((kid, response))
}

// -------------------------------------------------------------------------------------- views

#[derive(Serialize)]
struct PageView<'a> {
    keys: Vec<KeyView<'a>>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a Kid>,
}

#[derive(Serialize)]
struct KeyView<'a> {
    kid: &'a Kid,
    tenant: &'a str,
    purpose: &'a str,
    alg: Algorithm,
    #[serde(rename = "use")]
    used_to: Use,
    head: u32,
    policy: PolicyView,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<VersionView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptView>,
}

#[derive(Serialize)]
struct PolicyView {
    min_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotate_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct VersionView {
    kid: VersionedKid,
    version: u32,
    state: &'static str,
    created_ms: WallMs,
    /// When it is or was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<WallMs>,
}

#[derive(Serialize)]
struct OneVersionView<'a> {
    #[serde(flatten)]
    version: VersionView,
    alg: Algorithm,
    #[serde(rename = "use")]
    used_to: Use,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<PublicView<'a>>,
}

#[derive(Serialize)]
struct PublicView<'a> {
    #[serde(serialize_with = "as_base64url")]
    raw: &'a [u8],
    /// One per standard algorithm: two for a hybrid.
    parts: Vec<PartView>,
}

#[derive(Serialize)]
struct PartView {
    alg: Algorithm,
    spki: String,
    pem: String,
    jwk: Jwk,
}

#[derive(Serialize)]
struct ReceiptView {
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl<'a> KeyView<'a> {
    fn of(entry: &'a Entry) -> KeyView<'a> {
        let key = &entry.key;
        let policy = key.policy();
        KeyView {
            kid: key.kid(),
            tenant: key.tenant(),
            purpose: key.purpose(),
            alg: key.algorithm(),
            used_to: key.algorithm().key_use(),
            head: key.head(),
            policy: PolicyView {
                min_version: policy.min_version,
                rotate_after_ms: policy.rotate_after_ms,
            },
            versions: None,
            receipt: None,
        }
    }

    fn with_versions(mut self, entry: &Entry) -> KeyView<'a> {
        let versions = entry.key.versions().iter();
        let views = versions
            .filter_map(|(number, version)| Some(VersionView::of(entry.key.id(*number)?, version)));
        self.versions = Some(views.collect());
        self
    }
}

impl VersionView {
    fn of(kid: VersionedKid, version: &Version) -> VersionView {
        let (state, at_ms) = match version.state {
            State::Enabled => ("enabled", None),
            State::Disabled => ("disabled", None),
            State::Scheduled { at_ms } => ("scheduled", Some(at_ms)),
            State::Destroyed { at_ms } => ("destroyed", Some(at_ms)),
        };
        VersionView {
            version: kid.version(),
            kid,
            state,
            created_ms: version.created_ms,
            at_ms,
        }
    }
}

impl<'a> PublicView<'a> {
    fn of(public: &'a PublicKey) -> Result<PublicView<'a>, Problem> {
        let spki = public.spki().map_err(|error| refusal(error.into()))?;
        let parts = public.algorithm().parts().iter().zip(spki);
        let parts = parts.zip(public.jwks()).map(|((alg, der), jwk)| PartView {
            alg: *alg,
            spki: URL_SAFE_NO_PAD.encode(&der),
            pem: pem(&der),
            jwk,
        });
        Ok(PublicView {
            raw: public.raw(),
            parts: parts.collect(),
        })
    }
}

impl ReceiptView {
    fn of(receipt: Receipt) -> ReceiptView {
        ReceiptView {
            seq: receipt.seq,
            index: receipt.index,
        }
    }
}

/// The parts of a hybrid share their version's name: who verifies needs both.
fn named_jwks(held: &Held) -> Vec<Jwk> {
    let mut jwks = held.public.as_ref().map_or_else(Vec::new, PublicKey::jwks);
    for jwk in &mut jwks {
        jwk.insert("kid", held.material.id.to_string());
    }
    jwks
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN PUBLIC KEY-----\n");
    for (at, c) in text.chars().enumerate() {
        if at > 0 && at % PEM_LINE == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem.push_str("\n-----END PUBLIC KEY-----\n");
    pem
}

const PEM_LINE: usize = 64;

fn as_base64url<S: serde::Serializer>(bytes: &&[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
}
