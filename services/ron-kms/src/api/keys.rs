//! Keys: made, listed, rotated, disabled, destroyed; and their public halves as the world reads them.
//!
//! An answer to a change is the key as it then is, with the receipt of the change.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use ron_core::{
    api::{Json, JsonOrNothing, Path, Query, fields::Ordinal, json, with_type},
    problem::Problem,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Call,
    answer::{Binary, JWK_SET, Receipt},
    misanswered,
    requests::{
        CancelDestroy, Create, DEFAULT_PAGE, Destroy, Import, Nothing, Page, Rotate, SetPolicy,
    },
};
use crate::{
    ask::{Ask, Caller, Reply},
    engine::Kms,
    error::KmsError,
    index::{Entry, Held},
    keys::{
        Algorithm, Kid, Use, VersionedKid,
        key::{Refusal, State, Version, WallMs},
        public::{Jwk, PublicKey},
    },
};

pub async fn create(call: Call, Json(request): Json<Create>) -> Result<Response, Problem> {
    let caller = call.identity.into();
    let ask = request.into_ask(&caller)?;
    let (kid, mut response) = change(&call.api.state, caller, ask, StatusCode::CREATED).await?;
    // A kid is made of characters that a header takes.
    if let Ok(place) = HeaderValue::try_from(format!("/v1/kms/keys/{kid}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

pub async fn rotate(
    call: Call,
    (Path(kid), JsonOrNothing(Rotate { from })): (Path<Kid>, JsonOrNothing<Rotate>),
) -> Result<Response, Problem> {
    let from = from.map(Ordinal::number);
    changed(call, Ask::Rotate { kid, from }).await
}

/// A version by its key and number, and nothing in the body.
type OneVersion = (Path<(Kid, Ordinal)>, JsonOrNothing<Nothing>);

pub async fn disable(call: Call, version: OneVersion) -> Result<Response, Problem> {
    switch(call, version, Ask::Disable).await
}

pub async fn enable(call: Call, version: OneVersion) -> Result<Response, Problem> {
    switch(call, version, Ask::Enable).await
}

pub async fn destroy(
    call: Call,
    (Path(kid), JsonOrNothing(request)): (Path<Kid>, JsonOrNothing<Destroy>),
) -> Result<Response, Problem> {
    changed(call, request.into_ask(kid)).await
}

pub async fn cancel_destroy(
    call: Call,
    (Path(kid), JsonOrNothing(request)): (Path<Kid>, JsonOrNothing<CancelDestroy>),
) -> Result<Response, Problem> {
    changed(call, request.into_ask(kid)).await
}

pub async fn set_policy(
    call: Call,
    (Path(kid), Json(request)): (Path<Kid>, Json<SetPolicy>),
) -> Result<Response, Problem> {
    changed(call, request.into_ask(kid)).await
}

pub async fn import(
    call: Call,
    (Path(kid), Json(request)): (Path<Kid>, Json<Import>),
) -> Result<Response, Problem> {
    changed(call, request.into_ask(kid)).await
}

pub fn list(call: Call, Query(page): Query<Page>) -> Ready<Result<Response, Problem>> {
    let limit = page.limit.map_or(DEFAULT_PAGE, |limit| limit.get()) as usize;
    let all = call.api.state.index().visible(&call.identity.into());
    let start = page.after.map_or(0, |after| {
        all.partition_point(|entry| *entry.key.kid() <= after)
    });
    let shown = &all[start..all.len().min(start.saturating_add(limit))];
    let more = start + shown.len() < all.len();
    let body = PageView {
        keys: shown.iter().map(|entry| KeyView::of(entry)).collect(),
        next: shown.last().filter(|_| more).map(|last| last.key.kid()),
    };
    ready(Ok(json(StatusCode::OK, &body)))
}

pub fn show(call: Call, Path(kid): Path<Kid>) -> Ready<Result<Response, Problem>> {
    let index = call.api.state.index();
    let found = index.find(&call.identity.into(), &kid);
    let view = found.map(|entry| KeyView::of(entry).with_versions(entry));
    ready(
        view.map(|view| json(StatusCode::OK, &view))
            .map_err(Problem::from),
    )
}

pub async fn show_version(
    call: Call,
    Path((kid, number)): Path<(Kid, Ordinal)>,
) -> Result<Response, Problem> {
    let (number, now) = (number.number(), call.api.env.wall_ms());
    let index = call.api.state.index();
    let entry = index.find(&call.identity.into(), &kid)?;
    let missing = || KmsError::from(Refusal::NoSuchVersion(number));
    let version = entry.key.versions().get(&number).ok_or_else(missing)?;
    let held = entry.held(number).ok_or_else(missing)?;
    let id = kid.version(number).ok_or_else(missing)?;
    let shown = held.public.as_ref();
    let shown = shown.filter(|_| entry.may_show(number, now));
    let body = OneVersionView {
        version: VersionView::of(id, version),
        alg: entry.key.algorithm(),
        used_to: entry.key.algorithm().key_use(),
        public: shown.map(PublicView::of).transpose()?,
    };
    Ok(json(StatusCode::OK, &body))
}

pub fn jwks(call: Call, (): ()) -> Ready<Result<Response, Problem>> {
    let now = call.api.env.wall_ms();
    let index = call.api.state.index();
    let set = index.key_set(&call.identity.into(), |entries| key_set(entries, now));
    ready(Ok(with_type(JWK_SET, Body::from(set))))
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
    let set = KeySet {
        keys: keys.collect(),
    };
    // Maps from text to text.
    serde_json::to_vec(&set).unwrap_or_default().into()
}

// ------------------------------------------------------------------------------------ changes

async fn switch(
    call: Call,
    (Path((kid, number)), JsonOrNothing(Nothing {})): OneVersion,
    ask: fn(VersionedKid) -> Ask,
) -> Result<Response, Problem> {
    let number = number.number();
    let id = kid.version(number);
    let id = id.ok_or_else(|| KmsError::from(Refusal::NoSuchVersion(number)))?;
    changed(call, ask(id)).await
}

async fn changed(call: Call, ask: Ask) -> Result<Response, Problem> {
    let caller = call.identity.into();
    let (_, response) = change(&call.api.state, caller, ask, StatusCode::OK).await?;
    Ok(response)
}

async fn change(
    kms: &Kms,
    caller: Caller,
    ask: Ask,
    status: StatusCode,
) -> Result<(Kid, Response), Problem> {
    let Reply::Key { kid, receipt, .. } = kms.ask(caller, ask).await? else {
        return Err(misanswered());
    };
    let index = kms.index();
    let entry = index.get(&kid).ok_or(KmsError::NoSuchKey)?;
    let mut view = KeyView::of(entry).with_versions(entry);
    view.receipt = Some(receipt.into());
    let response = json(status, &view);
    Ok((kid, response))
}

// -------------------------------------------------------------------------------------- views

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyPage")]
pub struct PageView<'a> {
    keys: Vec<KeyView<'a>>,
    /// The `after` of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a Kid>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyView<'a> {
    kid: &'a Kid,
    tenant: &'a str,
    purpose: &'a str,
    alg: Algorithm,
    #[serde(rename = "use")]
    used_to: Use,
    head: u32,
    policy: PolicyView,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<VersionView>>,
    /// Of the change, if this answers one.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
struct PolicyView {
    min_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotate_after_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Version")]
struct VersionView {
    kid: VersionedKid,
    version: u32,
    #[schemars(extend("enum" = ["enabled", "disabled", "scheduled", "destroyed"]))]
    state: &'static str,
    created_ms: WallMs,
    /// When it is or was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<WallMs>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OneVersion")]
pub struct OneVersionView<'a> {
    #[serde(flatten)]
    version: VersionView,
    alg: Algorithm,
    #[serde(rename = "use")]
    used_to: Use,
    /// Of a key that signs, until its destruction is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<PublicView<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Public")]
struct PublicView<'a> {
    #[serde(serialize_with = "as_base64url")]
    #[schemars(with = "Binary")]
    raw: &'a [u8],
    /// One per standard algorithm: two for a hybrid.
    parts: Vec<PartView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PublicPart")]
struct PartView {
    alg: Algorithm,
    /// SubjectPublicKeyInfo in DER.
    #[schemars(with = "Binary")]
    spki: String,
    pem: String,
    jwk: Jwk,
}

/// RFC 7517. The parts of a hybrid key share their `kid`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JwkSet")]
pub struct KeySet {
    keys: Vec<Jwk>,
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
        let spki = public.spki().map_err(KmsError::from)?;
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
