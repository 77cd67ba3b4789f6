//! Writing answers: the frequent ones straight into one string, sized before, the others through serde.
//!
//! Binary is base64url without padding. An answer that carries a secret is wiped once it is sent, and no
//! cache may keep it.

use std::fmt::{Display, Write};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use ron_core::api::{JSON, with_type};
use schemars::JsonSchema;
use serde::Serialize;
use zeroize::Zeroizing;

pub use super::fields::Binary;
use crate::{
    ask,
    keys::{Algorithm, VersionedKid, signing::Signature},
};

pub const JWK_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// An answer under construction: an object that is still open.
pub struct Answer(String);

impl Answer {
    /// `room` is for the values; what else an answer has fits besides.
    pub fn with_room(room: usize) -> Answer {
        let mut out = String::with_capacity(room + FRAME);
        out.push('{');
        Answer(out)
    }

    /// A value that needs no quotes: a number or a truth.
    pub fn plain(&mut self, name: &str, value: impl Display) -> &mut Answer {
        self.name(name);
        // Writing to a string does not fail.
        let _ = write!(self.0, "{value}");
        self
    }

    /// A value that needs no escapes: a name of ours.
    pub fn word(&mut self, name: &str, value: impl Display) -> &mut Answer {
        self.name(name);
        let _ = write!(self.0, "\"{value}\"");
        self
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Answer {
        self.name(name);
        self.0.push_str(&serde_json::Value::from(value).to_string());
        self
    }

    /// A value that is JSON already.
    pub fn json(&mut self, name: &str, value: &str) -> &mut Answer {
        self.name(name);
        self.0.push_str(value);
        self
    }

    pub fn binary(&mut self, name: &str, bytes: &[u8]) -> &mut Answer {
        self.name(name);
        self.0.push('"');
        URL_SAFE_NO_PAD.encode_string(bytes, &mut self.0);
        self.0.push('"');
        self
    }

    pub fn kid(&mut self, key: &VersionedKid) -> &mut Answer {
        self.name("kid");
        let _ = write!(self.0, "\"{}#v{}\"", key.kid().as_str(), key.version());
        self
    }

    pub fn receipt(&mut self, receipt: ask::Receipt) -> &mut Answer {
        self.name("receipt");
        self.0.push('{');
        self.plain("seq", receipt.seq);
        if let Some(index) = receipt.index {
            self.plain("index", index);
        }
        self.0.push('}');
        self
    }

    /// The standard signatures over one message.
    pub fn sigs(&mut self, signatures: &[Signature]) -> &mut Answer {
        self.name("sigs");
        self.0.push('[');
        for signature in signatures {
            self.separate();
            self.0.push('{');
            self.word("alg", signature.algorithm.name());
            self.binary("sig", &signature.bytes);
            self.0.push('}');
        }
        self.0.push(']');
        self
    }

    /// One element per message, in their order.
    pub fn results(&mut self, all: &[Vec<Signature>]) -> &mut Answer {
        self.name("results");
        self.0.push('[');
        for signatures in all {
            self.separate();
            self.0.push('{');
            self.sigs(signatures);
            self.0.push('}');
        }
        self.0.push(']');
        self
    }

    pub fn done(mut self) -> Response {
        self.0.push('}');
        with_type(JSON, Body::from(self.0))
    }

    /// The same for an answer that only its receiver may keep.
    pub fn done_secret(mut self) -> Response {
        self.0.push('}');
        let wiped = Zeroizing::new(self.0.into_bytes());
        let mut response = with_type(JSON, Body::from(Bytes::from_owner(wiped)));
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn name(&mut self, name: &str) {
        self.separate();
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    fn separate(&mut self) {
        if !self.0.ends_with(['{', '[']) {
            self.0.push(',');
        }
    }
}

/// How long bytes are as text, with the names and quotes around them.
pub fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4 + 64
}

const FRAME: usize = 160;

// --------------------------------------------------------------------- their shapes, for the document

/// Where the operation stands in the audit log.
#[derive(Serialize, JsonSchema)]
pub struct Receipt {
    /// The number of the operation.
    seq: u64,
    /// The record's place, if it was durable before the answer left.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

impl From<ask::Receipt> for Receipt {
    fn from(receipt: ask::Receipt) -> Receipt {
        Receipt {
            seq: receipt.seq,
            index: receipt.index,
        }
    }
}

macro_rules! shapes {
    ($($(#[$about:meta])* $name:ident { $($(#[$more:meta])* $field:ident: $kind:ty,)+ })+) => {$(
        #[derive(JsonSchema)]
        $(#[$about])*
        #[expect(dead_code, reason = "what is written by hand, as a type")]
        pub struct $name {
            $($(#[$more])* $field: $kind,)+
        }
    )+};
}

shapes! {
    /// One standard signature.
    OneSignature {
        alg: Algorithm,
        sig: Binary,
    }
    Signed {
        sigs: Vec<OneSignature>,
    }
    /// Either `sigs`, to a single `message` or `prehash`, or `results`, one for each of `messages`.
    #[schemars(extend("oneOf" = [{ "required": ["sigs"] }, { "required": ["results"] }]))]
    SignAnswer {
        kid: VersionedKid,
        alg: Algorithm,
        #[serde(skip_serializing_if = "Option::is_none")]
        sigs: Option<Vec<OneSignature>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        results: Option<Vec<Signed>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        att: Option<Evidence>,
        receipt: Receipt,
    }
    Evidence {
        /// JSON text; its bytes are what is signed.
        statement: String,
        sig: Binary,
        /// The Ed25519 key that verifies `sig`.
        public: Binary,
    }
    AttestAnswer {
        /// JSON text over nonce, public key hash, backend and extractability; its bytes are what is signed.
        statement: String,
        #[schemars(extend("const" = "ed25519"))]
        alg: String,
        sig: Binary,
        /// The key that verifies `sig`.
        public: Binary,
    }
    VerifyAnswer {
        valid: bool,
        kid: VersionedKid,
        /// How old the key index is, while it cannot be refreshed.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_age_ms: Option<u64>,
    }
    WrapAnswer {
        kid: VersionedKid,
        wrapped: Binary,
        receipt: Receipt,
    }
    UnwrapAnswer {
        kid: VersionedKid,
        plaintext: Binary,
        receipt: Receipt,
    }
    DataKeyAnswer {
        kid: VersionedKid,
        /// 32 fresh bytes.
        plaintext: Binary,
        wrapped: Binary,
        receipt: Receipt,
    }
}
