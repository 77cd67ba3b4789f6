//! The HTTP surface, `/v1/kms`: who may call what, what each route takes, answers and refuses. No logic.
//!
//! One table: the router, the scopes and the OpenAPI document all come from it; the kernel's
//! [`api`](ron_core::api) is the way in.

mod answer;
mod audit;
pub mod fields;
mod keys;
pub mod requests;
mod use_keys;

use axum::{
    Router,
    http::{Method, StatusCode},
};
use ron_core::{
    Env,
    api::{About, Api, ApiError, Endpoint, Need, Route, route},
    auth::{Identity, Mode},
    problem::Problem,
    telemetry::{Counters, Telemetry},
};
use serde_json::{Value, json};

use crate::{ask::Caller, audit::record::MAX_NAME, engine::Kms, error};

pub const SIGN: &str = "kms:sign";
pub const VERIFY: &str = "kms:verify";
pub const WRAP: &str = "kms:wrap";
pub const UNWRAP: &str = "kms:unwrap";
pub const ROTATE: &str = "kms:rotate";
pub const READ: &str = "kms:read";
pub const AUDIT: &str = "kms:audit";

type Call = ron_core::api::Call<Kms>;

// Who may enter can be named in a record.
const _: () = assert!(ron_core::api::MAX_SUBJECT <= MAX_NAME);

/// Everything below `/v1/kms`. Admission, correlation ids and the fallbacks go around it.
pub fn router(kms: Kms, env: &Env, telemetry: &Telemetry, mode: &Mode) -> Router {
    api().router(kms, env, telemetry, mode)
}

/// All routes, as the router has them.
pub fn endpoints() -> Vec<Endpoint> {
    api().endpoints().cloned().collect()
}

/// The description of this API, as served in this mode.
pub fn document(mode: &Mode) -> Value {
    api().document(mode)
}

/// Requests that were refused, by route and code.
pub fn refused_counters(telemetry: &Telemetry) -> Counters {
    ron_core::api::refused_counters(telemetry, "kms_refused_total")
}

fn api() -> Api<Kms> {
    let about = About {
        title: "ron-kms",
        description: "Keys that never leave, and an audit log anyone can verify. Binary is base64url without \
            padding; a field that is not listed is refused; every error is `application/problem+json` with a stable \
            `code`.",
        path: "/v1/kms/openapi.json",
        errors: || {
            let own = error::examples()
                .into_iter()
                .map(|e| (e.status(), e.code()));
            own.chain([(misanswered().status(), misanswered().code())])
                .collect()
        },
    };
    Api::new(about, routes())
}

/// What may become of anything that asks the engine.
const ENGINE: &[&str] = &[
    "key_not_found",
    "version_not_found",
    "draining",
    "timeout",
    "worker_lost",
    "backend_unavailable",
    "store_unavailable",
    "audit_integrity",
    "audit_unavailable",
    "invalid_request",
    "internal",
];
/// Of anything that takes a place in its queue.
const QUEUE: &[&str] = &["busy", "tenant_busy", "secret_damaged", "alg_unsupported"];
/// Of any use of a version.
const USE: &[&str] = &[
    "version_disabled",
    "version_destroyed",
    "destroy_scheduled",
    "below_min_version",
    "wrong_use",
];
const SIGNING: &[&str] = &["prehash_invalid", "signing_failed", "secret_invalid"];
const SEALING: &[&str] = &[
    "too_long",
    "wrapping_failed",
    "secret_invalid",
    "blob_invalid",
    "nonces_exhausted",
    "store_behind_log",
    "nonce_unavailable",
];
const OP_ID: &[&str] = &["op_id_conflict", "op_id_in_flight"];
const POLICY: &[&str] = &["rotate_after_too_short", "min_version_out_of_range"];
const LOG: &[&str] = &[
    "record_not_found",
    "store_unavailable",
    "timeout",
    "audit_integrity",
];

const OK: StatusCode = StatusCode::OK;

#[rustfmt::skip]
fn routes() -> Vec<Route<Kms>> {
    use Need::{Scope, Tenant};
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    const KID: &str = "q83vASNFZ4mrze8BI0VniQ";
    const KID_1: &str = "q83vASNFZ4mrze8BI0VniQ#v1";
    const CACHED: &[&str] = &["Cache-Control"];
    let prehash = || json!({ "alg": "sha-256", "digest": "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ" });
    let sig = |alg: &str| json!({ "alg": alg, "sig": "c2ln" });
    vec![
        used(route(POST, "/v1/kms/sign", Tenant(&[SIGN]), use_keys::sign, "Sign one message or a batch"))
            .example(json!({ "kid": KID, "message": "aGVsbG8" }))
            .example(json!({ "kid": KID_1, "prehash": prehash(), "op_id": "order-17", "attest": true }))
            .example(json!({ "kid": KID, "messages": [{ "message": "aGVsbG8" }, { "prehash": prehash() }] }))
            .answers::<answer::SignAnswer>(OK)
            .refuses(SIGNING).refuses(OP_ID).refuses(&["batch_too_large"]),
        route(POST, "/v1/kms/verify", Tenant(&[VERIFY]), use_keys::verify,
            "Verify a signature: one that does not verify, or is none, is no error")
            .example(json!({ "kid": KID_1, "message": "aGVsbG8", "sigs": [sig("ed25519")] }))
            .example(json!({ "kid": KID, "message": "aGVsbG8", "sigs": [sig("ed25519"), sig("ml-dsa-65")] }))
            .answers::<answer::VerifyAnswer>(OK)
            .refuses(ENGINE).refuses(USE).refuses(SIGNING)
            .refuses(&["signature_invalid", "verify_cache_expired", "alg_unsupported"]),
        used(route(POST, "/v1/kms/wrap", Tenant(&[WRAP]), use_keys::wrap, "Wrap a secret"))
            .example(json!({ "kid": KID, "plaintext": "c2VjcmV0", "context": "ZGI", "op_id": "w-1" }))
            .answers::<answer::WrapAnswer>(OK)
            .refuses(SEALING).refuses(OP_ID),
        used(route(POST, "/v1/kms/unwrap", Tenant(&[UNWRAP]), use_keys::unwrap, "Unwrap a secret"))
            .example(json!({ "kid": KID_1, "wrapped": "AQcAAAA", "context": "ZGI" }))
            .answers_as::<answer::UnwrapAnswer>(OK, "application/json", CACHED)
            .refuses(SEALING),
        used(route(POST, "/v1/kms/data-key", Tenant(&[WRAP]), use_keys::data_key, "A fresh data key, plain and wrapped"))
            .example(json!({ "kid": KID, "context": "ZGI", "op_id": "d-1" }))
            .answers_as::<answer::DataKeyAnswer>(OK, "application/json", CACHED)
            .refuses(SEALING).refuses(OP_ID),
        route(POST, "/v1/kms/attest", Tenant(&[READ]), use_keys::attest, "A signed statement about a key")
            .example(json!({ "kid": KID, "nonce": "AAECAwQFBgcICQoLDA0ODw" }))
            .answers::<answer::AttestAnswer>(OK)
            .refuses(ENGINE).refuses(USE).refuses(&["busy", "tenant_busy"]),
        route(POST, "/v1/kms/keys", Tenant(&[ROTATE]), keys::create, "Make a key")
            .example(json!({ "purpose": "tokens", "alg": "ed25519" }))
            .example(json!({ "tenant": "default", "purpose": "backups", "alg": "aes-256-gcm",
                "policy": { "min_version": 1, "rotate_after_ms": 7_776_000_000_u64 } }))
            .answers_as::<keys::KeyView<'_>>(StatusCode::CREATED, "application/json", &["Location"])
            .refuses(ENGINE).refuses(QUEUE).refuses(POLICY)
            .refuses(&["tenant_forbidden", "too_many_keys", "signing_failed", "wrapping_failed"]),
        route(GET, "/v1/kms/keys", Tenant(&[READ]), keys::list, "The caller's keys, by kid")
            .answers::<keys::PageView<'_>>(OK),
        route(GET, "/v1/kms/keys/{kid}", Tenant(&[READ]), keys::show, "One key")
            .answers::<keys::KeyView<'_>>(OK)
            .refuses(&["key_not_found"]),
        route(GET, "/v1/kms/keys/{kid}/versions/{n}", Tenant(&[READ]), keys::show_version,
            "One version, with its public key")
            .answers::<keys::OneVersionView<'_>>(OK)
            .refuses(&["key_not_found", "version_not_found", "signing_failed"]),
        changed(route(POST, "/v1/kms/keys/{kid}/versions/{n}/disable", Tenant(&[ROTATE]), keys::disable,
            "Stop using a version")),
        changed(route(POST, "/v1/kms/keys/{kid}/versions/{n}/enable", Tenant(&[ROTATE]), keys::enable,
            "Use a version again")),
        changed(route(POST, "/v1/kms/keys/{kid}/rotate", Tenant(&[ROTATE]), keys::rotate, "Make a new head"))
            .example(json!({}))
            .example(json!({ "from": 1 }))
            .refuses(&["head_moved", "too_many_versions", "signing_failed", "wrapping_failed"]),
        changed(route(POST, "/v1/kms/keys/{kid}/destroy", Tenant(&[ROTATE]), keys::destroy,
            "Schedule destruction; until then it can be cancelled"))
            .example(json!({ "version": 1, "wait_ms": 86_400_000 })),
        changed(route(POST, "/v1/kms/keys/{kid}/destroy/cancel", Tenant(&[ROTATE]), keys::cancel_destroy,
            "Cancel a scheduled destruction"))
            .example(json!({ "version": 1 }))
            .refuses(&["not_scheduled"]),
        changed(route(Method::PUT, "/v1/kms/keys/{kid}/policy", Tenant(&[ROTATE]), keys::set_policy,
            "Replace the policy"))
            .example(json!({ "min_version": 1, "rotate_after_ms": 86_400_000 }))
            .refuses(POLICY),
        // It opens what was wrapped: who may not unwrap must not learn from its refusals what is inside.
        changed(route(POST, "/v1/kms/keys/{kid}/import", Tenant(&[ROTATE, UNWRAP]), keys::import,
            "A secret made elsewhere becomes the new head"))
            .example(json!({ "wrapped": "AQcAAAA", "under": KID_1, "context": "aW1wb3J0" }))
            .refuses(USE).refuses(SEALING).refuses(&["too_many_versions", "signing_failed"]),
        route(GET, "/v1/kms/jwks.json", Tenant(&[READ]), keys::jwks, "Public keys of enabled versions")
            .answers_as::<keys::KeySet>(OK, "application/jwk-set+json", &[]),
        route(GET, "/v1/kms/audit/checkpoint", Scope(&[AUDIT]), audit::checkpoint,
            "The newest checkpoint: a note with an Ed25519 signature and an ML-DSA-44 cosignature")
            .answers_as::<String>(OK, "text/plain; charset=utf-8", CACHED)
            .refuses(LOG),
        route(GET, "/v1/kms/audit/tile/{*path}", Scope(&[AUDIT]), audit::tile,
            "A tile of hashes, or with `entries/` an entry bundle; paths are those of C2SP tlog-tiles")
            .answers_as::<String>(OK, "application/octet-stream", CACHED)
            .refuses(LOG),
        route(GET, "/v1/kms/audit/proof/{index}", Scope(&[AUDIT]), audit::proof,
            "The offline receipt of one record, `c2sp.org/tlog-proof@v1`, once a checkpoint covers it")
            .answers_as::<String>(OK, "text/plain; charset=utf-8", CACHED)
            .refuses(LOG).refuses(&["not_covered"]),
    ]
}

/// A use of a key by the pool.
fn used(line: Route<Kms>) -> Route<Kms> {
    line.refuses(ENGINE).refuses(QUEUE).refuses(USE)
}

/// A change of a key.
fn changed(line: Route<Kms>) -> Route<Kms> {
    let line = line.answers::<keys::KeyView<'_>>(OK);
    line.refuses(ENGINE)
        .refuses(QUEUE)
        .refuses(&["version_destroyed", "destroy_scheduled"])
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Caller {
        Caller {
            actor: identity.subject,
            tenant: identity.tenant,
        }
    }
}

/// The engine answered another question than was asked.
fn misanswered() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal")
        .detail("the engine's answer does not fit the request")
}
