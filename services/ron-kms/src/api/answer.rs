//! Writing answers: the frequent ones straight into one string, sized before, the others through serde.
//!
//! Binary is base64url without padding. An answer that carries a secret is wiped once it is sent, and no
//! cache may keep it.

use std::fmt::{Display, Write};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{
    ask::Receipt,
    keys::{VersionedKid, signing::Signature},
};

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
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

    pub fn receipt(&mut self, receipt: Receipt) -> &mut Answer {
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

pub fn with_type(kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Nothing here has a map with keys that are no text, or a value that refuses.
    let body = serde_json::to_string(value).unwrap_or_default();
    let mut response = with_type(JSON, Body::from(body));
    *response.status_mut() = status;
    response
}

const FRAME: usize = 160;
