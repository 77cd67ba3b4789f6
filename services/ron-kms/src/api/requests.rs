//! The requests' bodies, and what each asks of the engine.
//!
//! A field that is not listed is refused, so that a misspelt one is an error and no call takes a plain
//! secret by accident: `import` has a field for the wrapped form only.

use aws_lc_rs::digest;
use axum::http::StatusCode;
use ron_core::{
    api::fields::{Bounded, Label, Object, Ordinal, Whole},
    problem::Problem,
};
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{
    AlgName, Binary, KeyName, Nonce, OpId, Prehashed, SecretBinary, VersionName, text_len,
};
use crate::{
    ask::{Ask, Caller, KeyRef, OpIdAsk, VerifyAsk},
    audit::record::MAX_DIGESTS,
    backend::Message,
    error::KmsError,
    keys::{
        Kid,
        key::{MAX_WAIT_MS, MIN_WAIT_MS, Policy},
        sealing::{MAX_CONTEXT, MAX_PLAIN},
        signing::Signature,
    },
};

/// A batch is one leaf of the audit log, which lists so many digests at most.
pub const MAX_BATCH: usize = MAX_DIGESTS;
/// No algorithm has more parts.
pub const MAX_SIGNATURES: usize = 8;
/// From the call to the destruction, if the caller does not say.
pub const DEFAULT_WAIT_MS: u64 = 7 * MIN_WAIT_MS;
/// The tenant of keys made while nobody is identified and none is named.
pub const DEFAULT_TENANT: &str = "default";
pub const DEFAULT_PAGE: u64 = 100;
pub const MAX_PAGE: u64 = 1000;

/// How old a head may become before it is rotated; how short that may be, the configuration says.
type RotateAfter = Whole<1, { u64::MAX }>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CreateRequest")]
pub struct Create {
    /// The caller's own, if there is one; else `default`.
    pub tenant: Option<Label>,
    pub purpose: Label,
    pub alg: AlgName,
    pub policy: Option<Object<FirstPolicy>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstPolicy {
    pub min_version: Option<Ordinal>,
    /// How old the head may become before it is rotated; absent for never.
    pub rotate_after_ms: Option<RotateAfter>,
}

/// Replaces the whole policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicyRequest")]
pub struct SetPolicy {
    /// Versions below it neither sign nor wrap; it only rises.
    pub min_version: Ordinal,
    /// How old the head may become before it is rotated; absent for never.
    pub rotate_after_ms: Option<RotateAfter>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RotateRequest")]
pub struct Rotate {
    /// The head the caller knows: if another is, nothing is rotated and the answer is `head_moved`.
    pub from: Option<Ordinal>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DestroyRequest")]
pub struct Destroy {
    /// Absent for all of them.
    pub version: Option<Ordinal>,
    /// A week if absent.
    pub wait_ms: Option<Whole<MIN_WAIT_MS, MAX_WAIT_MS>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CancelDestroyRequest")]
pub struct CancelDestroy {
    /// Absent for all that are scheduled.
    pub version: Option<Ordinal>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ImportRequest")]
pub struct Import {
    /// PKCS#8, or for a key that wraps the raw bytes, wrapped by `under`.
    pub wrapped: Binary,
    pub under: VersionName,
    /// What was wrapped with one is unwrapped with the same.
    #[schemars(extend("maxLength" = text_len(MAX_CONTEXT)))]
    pub context: Option<Binary>,
}

/// Nothing to say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SignRequest", transform = one_of_three)]
pub struct Sign {
    pub kid: KeyName,
    pub message: Option<Binary>,
    pub prehash: Option<Object<Prehashed>>,
    pub messages: Option<Bounded<Object<Item>, MAX_BATCH>>,
    pub op_id: Option<OpId>,
    /// The answer carries the newest attestation evidence, if there is some.
    #[serde(default)]
    pub attest: bool,
}

/// One message of a batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = one_of_two)]
pub struct Item {
    pub message: Option<Binary>,
    pub prehash: Option<Object<Prehashed>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VerifyRequest", transform = one_of_two)]
pub struct Verify {
    pub kid: KeyName,
    pub message: Option<Binary>,
    pub prehash: Option<Object<Prehashed>>,
    pub sigs: Bounded<Object<Sig>, MAX_SIGNATURES>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sig {
    pub alg: AlgName,
    pub sig: Binary,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WrapRequest")]
pub struct Wrap {
    pub kid: KeyName,
    #[schemars(extend("maxLength" = text_len(MAX_PLAIN)))]
    pub plaintext: SecretBinary,
    /// What was wrapped with one is unwrapped with the same.
    #[schemars(extend("maxLength" = text_len(MAX_CONTEXT)))]
    pub context: Option<Binary>,
    pub op_id: Option<OpId>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UnwrapRequest")]
pub struct Unwrap {
    pub kid: VersionName,
    pub wrapped: Binary,
    /// What was wrapped with one is unwrapped with the same.
    #[schemars(extend("maxLength" = text_len(MAX_CONTEXT)))]
    pub context: Option<Binary>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DataKeyRequest")]
pub struct DataKey {
    pub kid: KeyName,
    /// What was wrapped with one is unwrapped with the same.
    #[schemars(extend("maxLength" = text_len(MAX_CONTEXT)))]
    pub context: Option<Binary>,
    pub op_id: Option<OpId>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttestRequest")]
pub struct Attest {
    pub kid: KeyName,
    pub nonce: Nonce,
}

/// The query of `GET /keys`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// 100 if absent.
    pub limit: Option<Whole<1, MAX_PAGE>>,
    /// The `next` of the page before.
    pub after: Option<Kid>,
}

impl Create {
    /// The caller's own tenant, if there is one; naming another is refused.
    pub fn into_ask(self, caller: &Caller) -> Result<Ask, Problem> {
        let named = self.tenant.map(|label| label.0);
        if named
            .as_deref()
            .is_some_and(|tenant| !caller.may_touch(tenant))
        {
            return Err(KmsError::ForeignTenant.into());
        }
        let tenant = named.or_else(|| caller.tenant.clone());
        let policy = self.policy.map(|Object(policy)| policy);
        let policy = policy.as_ref();
        Ok(Ask::Create {
            tenant: tenant.unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
            purpose: self.purpose.0,
            algorithm: self.alg.0,
            policy: Policy {
                min_version: policy.and_then(|p| p.min_version).map_or(1, Whole::number),
                rotate_after_ms: policy.and_then(|p| p.rotate_after_ms).map(Whole::get),
            },
        })
    }
}

impl SetPolicy {
    pub fn into_ask(self, kid: Kid) -> Ask {
        let policy = Policy {
            min_version: self.min_version.number(),
            rotate_after_ms: self.rotate_after_ms.map(Whole::get),
        };
        Ask::SetPolicy { kid, policy }
    }
}

impl Destroy {
    pub fn into_ask(self, kid: Kid) -> Ask {
        Ask::ScheduleDestroy {
            key: KeyRef {
                kid,
                version: self.version.map(Whole::number),
            },
            wait_ms: self.wait_ms.map_or(DEFAULT_WAIT_MS, Whole::get),
        }
    }
}

impl CancelDestroy {
    pub fn into_ask(self, kid: Kid) -> Ask {
        let version = self.version.map(Whole::number);
        Ask::CancelDestroy {
            key: KeyRef { kid, version },
        }
    }
}

impl Import {
    pub fn into_ask(self, kid: Kid) -> Ask {
        Ask::Import {
            kid,
            under: self.under.0,
            blob: self.wrapped.0,
            context: bytes(self.context),
        }
    }
}

impl Sign {
    pub fn is_batch(&self) -> bool {
        self.messages.is_some()
    }

    /// `body` is what this was parsed from.
    pub fn into_ask(self, body: &[u8]) -> Result<Ask, Problem> {
        let messages = match (self.message, self.prehash, self.messages) {
            (None, None, Some(batch)) => {
                let items = batch.0.into_iter().enumerate();
                items
                    .map(|(at, Object(item))| one(item.message, item.prehash, Some(at)))
                    .collect::<Result<_, _>>()?
            }
            (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => return Err(not_one(None)),
            (message, prehash, None) => vec![one(message, prehash, None)?],
        };
        Ok(Ask::Sign {
            key: self.kid.0,
            messages,
            op_id: op_id(self.op_id, body),
            attest: self.attest,
        })
    }
}

impl Verify {
    pub fn into_ask(self) -> Result<VerifyAsk, Problem> {
        let signatures = self.sigs.0.into_iter().map(|Object(sig)| Signature {
            algorithm: sig.alg.0,
            bytes: sig.sig.0,
        });
        Ok(VerifyAsk {
            key: self.kid.0,
            message: one(self.message, self.prehash, None)?,
            signatures: signatures.collect(),
        })
    }
}

impl Wrap {
    pub fn into_ask(self, body: &[u8]) -> Ask {
        Ask::Wrap {
            key: self.kid.0,
            plain: self.plaintext.0,
            context: bytes(self.context),
            op_id: op_id(self.op_id, body),
        }
    }
}

impl Unwrap {
    pub fn into_ask(self) -> Ask {
        Ask::Unwrap {
            key: self.kid.0,
            blob: self.wrapped.0,
            context: bytes(self.context),
        }
    }
}

impl DataKey {
    pub fn into_ask(self, body: &[u8]) -> Ask {
        Ask::DataKey {
            key: self.kid.0,
            context: bytes(self.context),
            op_id: op_id(self.op_id, body),
        }
    }
}

/// Each alone is enough, and no two may be there; one that is null is not there.
fn exactly_one(schema: &mut Schema, names: &[&str]) {
    let alone = |name: &&str| {
        let given = json!({ "not": { "type": "null" } });
        json!({ "required": [name], "properties": { *name: given } })
    };
    let choices: Vec<Value> = names.iter().map(alone).collect();
    schema.insert("oneOf".to_owned(), choices.into());
}

fn one_of_two(schema: &mut Schema) {
    exactly_one(schema, &["message", "prehash"]);
}

fn one_of_three(schema: &mut Schema) {
    exactly_one(schema, &["message", "prehash", "messages"]);
}

fn bytes(context: Option<Binary>) -> Vec<u8> {
    context.map_or_else(Vec::new, |context| context.0)
}

fn op_id(id: Option<OpId>, body: &[u8]) -> Option<OpIdAsk> {
    let id = id?.0;
    let mut request = [0; 32];
    request.copy_from_slice(digest::digest(&digest::SHA256, body).as_ref());
    Some(OpIdAsk { id, request })
}

fn one(
    message: Option<Binary>,
    prehash: Option<Object<Prehashed>>,
    at: Option<usize>,
) -> Result<Message, Problem> {
    match (message, prehash) {
        (Some(message), None) => Ok(Message::Whole(message.0)),
        (None, Some(Object(prehash))) => Ok(prehash.into()),
        _ => Err(not_one(at)),
    }
}

#[cold]
fn not_one(at: Option<usize>) -> Problem {
    match at {
        Some(at) => {
            let path = format!("messages[{at}]");
            let detail = format!("{path}: exactly one of message, prehash is allowed");
            invalid(&path, &detail)
        }
        None => invalid(".", "exactly one of message, prehash, messages is allowed"),
    }
}

fn invalid(path: &str, detail: &str) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field")
        .detail(detail)
        .with("path", path)
}
