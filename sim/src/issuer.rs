//! An issuer of tokens: it publishes the keys that its tokens are signed with, as a JWKS document, and changes them.
//!
//! Nobody asks it for tokens: clients sign their own with its keys, good ones and others, and know what they are.
//! Always: what it publishes when, and when it answers nonsense, is drawn from the seed before the world begins
//! ([`schedule`]), so a restart changes nothing of it; each fetch is told with who asked and what was answered.

pub mod schedule;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    http::{Response, StatusCode, header},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use bytes::Bytes;
use ron_core::{
    Env,
    config::ConfigErrors,
    seam::BoxFuture,
    serve::{Hosts, Peer, ServeOptions},
};
use serde_json::{Value, json};

use self::schedule::{STRAY, Schedule, Trouble};
use crate::{
    service::{ProcessContext, SimService, read_config},
    timer,
    trace::StopReport,
};

pub const NAME: &str = "issuer";
pub const PORT: u16 = 7600;

ron_core::settings! {
    /// How it changes its keys, and how well it answers.
    pub struct IssuerConfig {
        /// Mean time from one new key to the next.
        rotate_every_s: u64 = 120 => 5..=10_000, restart;
        /// Most time for which an old key stays published beside the new one.
        overlap_s: u64 = 60 => 0..=10_000, restart;
        /// What `Cache-Control` says; 0 for nothing.
        max_age_s: u64 = 60 => 0..=1_000_000, restart;
        /// Mean time between two spells of nonsense; 0 for none.
        trouble_every_s: u64 = 0 => 0..=10_000, restart;
        /// Longest such spell.
        trouble_s: u64 = 20 => 1..=10_000, restart;
    }
}

pub struct Issuer;

impl SimService for Issuer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        read_config::<IssuerConfig>(config).map(|_| ())
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(run(process))
    }
}

struct Desk {
    env: Env,
    schedule: Schedule,
    fetches: AtomicU64,
}

async fn run(process: ProcessContext) -> StopReport {
    let env = process.env.clone();
    let config: IssuerConfig = read_config(&process.config).expect("checked before the start");
    let desk = Arc::new(Desk {
        env: env.clone(),
        schedule: Schedule::draw(process.seed, &config),
        fetches: AtomicU64::new(0),
    });
    let ready = || async { r#"{"ready":true,"missing":[],"degraded":[]}"# };
    let router = Router::new()
        .route("/readyz", get(ready))
        .route("/keys", get(keys))
        .route("/moved", get(moved))
        .with_state(desk);
    let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = env.listen(addr).await.expect("the port is free");
    let options = ServeOptions {
        hosts: Hosts::any().into(),
        ..ServeOptions::default()
    };
    let allowed = options.close_grace + Duration::from_secs(1);
    env.serve(listener, router, options, process.shutdown).await;
    StopReport {
        allowed,
        ..StopReport::default()
    }
}

/// Tells `who good max-age kid,kid` or `who bad how`, and answers so.
async fn keys(State(desk): State<Arc<Desk>>, Extension(peer): Extension<Peer>) -> Response<Body> {
    let number = desk.fetches.fetch_add(1, Ordering::Relaxed) + 1;
    let (at, who) = (timer::elapsed(), peer.addr.ip());
    let schedule = &desk.schedule;
    if let Some(trouble) = schedule.trouble(at) {
        desk.env.probe(
            "issuer.asked",
            number,
            format_args!("{who} bad {trouble:?}"),
        );
        return desk.nonsense(trouble).await;
    }
    let published: Vec<String> = schedule.published(at).map(schedule::kid).collect();
    let max_age = schedule.max_age_s();
    let listed = published.join(",");
    let how = format_args!("{who} good {} {listed}", max_age.unwrap_or(0));
    desk.env.probe("issuer.asked", number, how);
    answer(max_age, &desk.document(published))
}

/// Where a spell of nonsense sends its askers: whoever follows believes a stranger.
async fn moved(State(desk): State<Arc<Desk>>) -> Response<Body> {
    answer(None, &desk.document(vec![STRAY.to_owned()]))
}

fn answer(max_age: Option<u64>, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    if let Some(seconds) = max_age {
        let text = format!("public, max-age={seconds}");
        if let Ok(value) = text.parse() {
            response.headers_mut().insert(header::CACHE_CONTROL, value);
        }
    }
    response
}

impl Desk {
    /// The keys of these names, and beside them what no service may use: a shared secret, and a key to encrypt with.
    fn document(&self, kids: Vec<String>) -> Value {
        let mut keys: Vec<Value> = kids.iter().map(|kid| self.jwk(kid, "sig")).collect();
        keys.push(self.jwk(schedule::FOR_ENCRYPTION, "enc"));
        let secret = B64.encode(self.schedule.secret(schedule::SHARED));
        keys.push(json!({ "kty": "oct", "kid": schedule::SHARED, "k": secret }));
        json!({ "keys": keys })
    }

    fn jwk(&self, kid: &str, usage: &str) -> Value {
        let x = B64.encode(self.schedule.public(kid));
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "use": usage, "x": x })
    }

    /// Nothing of what is in these answers may be believed.
    async fn nonsense(&self, trouble: Trouble) -> Response<Body> {
        let strange = self.document(vec![STRAY.to_owned()]).to_string();
        let mut response = Response::new(Body::from(match trouble {
            Trouble::Garbage => strange.replace('{', "<"),
            Trouble::Twice => self
                .document(vec![STRAY.to_owned(), STRAY.to_owned()])
                .to_string(),
            Trouble::Keyless => self.document(Vec::new()).to_string(),
            Trouble::Huge => {
                strange.replace("]}", &format!("],\"pad\":\"{}\"}}", "x".repeat(70_000)))
            }
            _ => strange.clone(),
        }));
        match trouble {
            Trouble::Late => self.env.sleep(LATE).await,
            Trouble::Broken => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
            Trouble::Gone => *response.status_mut() = StatusCode::NOT_FOUND,
            Trouble::Moved => {
                *response.status_mut() = StatusCode::FOUND;
                let place = format!("http://{NAME}:{PORT}/moved");
                if let Ok(place) = place.parse() {
                    response.headers_mut().insert(header::LOCATION, place);
                }
            }
            Trouble::Torn => {
                let part = Bytes::from(strange[..strange.len() / 2].to_owned());
                let parts = [Ok(part), Err(std::io::Error::other("torn"))];
                *response.body_mut() = Body::from_stream(futures_util::stream::iter(parts));
            }
            _ => {}
        }
        response
    }
}

/// Longer than anybody waits.
const LATE: Duration = Duration::from_secs(12);
