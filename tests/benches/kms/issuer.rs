//! An issuer of tokens: one Ed25519 key, its JWKS document on loopback, one token that all requests carry.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use axum::{Router, routing::get};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use crate::load::Clients;

const ISSUER: &str = "https://issuer.bench";
const AUDIENCE: &str = "ron-kms";
const KID: &str = "bench";

pub struct Issuer {
    addr: SocketAddr,
    /// The line of the request head that carries the token.
    pub header: String,
}

pub fn start(clients: &Clients) -> Issuer {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).expect("a key");
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let jwks = json!({"keys": [{
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": KID, "x": x,
    }]})
    .to_string();
    let addr = clients.runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let app = Router::new().route("/jwks.json", get(move || async move { jwks }));
        tokio::spawn(async move { axum::serve(listener, app).await });
        addr
    });
    Issuer {
        addr,
        header: format!("authorization: Bearer {}\r\n", token(&pair)),
    }
}

impl Issuer {
    pub fn settings(&self) -> Vec<String> {
        vec![
            "auth.mode=passport".to_owned(),
            format!("auth.passport.issuer={ISSUER}"),
            format!("auth.passport.audience={AUDIENCE}"),
            format!("auth.passport.jwks_url=http://{}/jwks.json", self.addr),
        ]
    }
}

fn token(pair: &Ed25519KeyPair) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("a clock after 1970").as_secs();
    let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": KID});
    let claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "bench", "tenant": "acme",
        "scope": "kms:sign kms:rotate", "exp": now + 3600, "nbf": now - 60,
    });
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}
