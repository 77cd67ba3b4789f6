//! A whole service on a loopback port, as a client sees it, on a backend of one's choice; its tokens are
//! signed by an issuer of its own.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Method, Request};
use ron_core::{
    Env, Join,
    api::check::Checker,
    auth::{AuthMode, KeySet},
    shutdown::Shutdown,
};
use ron_io::Data;
use ron_kms::{
    api,
    backend::{Backend, memory::MemoryBackend, software::SoftwareBackend},
    config::Config,
    keys::Secret,
    keystore::{KeyStore, Unlock},
    service::{Ended, Service},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Answer, forgetful, metric, process, runtime, stored, support::Scratch};

pub const ISSUER: &str = "https://issuer.test";
pub const AUDIENCE: &str = "ron-kms";

/// Who keeps the secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    Memory,
    /// Sealed in a store on the disk.
    Software,
    /// On the token of this process.
    #[cfg(feature = "pkcs11")]
    Pkcs11,
}

impl Keeping {
    pub fn name(self) -> &'static str {
        match self {
            Keeping::Memory => "memory",
            Keeping::Software => "software",
            #[cfg(feature = "pkcs11")]
            Keeping::Pkcs11 => "pkcs11",
        }
    }

    /// Whether it is on the backend's list of capabilities.
    fn offers(self, alg: &str) -> bool {
        match self {
            Keeping::Memory | Keeping::Software => true,
            #[cfg(feature = "pkcs11")]
            Keeping::Pkcs11 => [
                "ed25519",
                "ecdsa-p256",
                "ecdsa-p384",
                "rsa-pss-3072",
                "aes-256-gcm",
            ]
            .contains(&alg),
        }
    }

    async fn open(self, env: &Env) -> (KeyStore, Arc<dyn Backend>) {
        if self == Keeping::Memory {
            let store = KeyStore::memory(env).unwrap();
            return (store, Arc::new(MemoryBackend::new(env)));
        }
        let unlock = Unlock::Key(Secret::copy_of(&[3; 32]));
        let store = KeyStore::open(env, unlock).await.unwrap();
        let backend: Arc<dyn Backend> = match self {
            Keeping::Memory | Keeping::Software => Arc::new(SoftwareBackend::new(env, store.kek())),
            #[cfg(feature = "pkcs11")]
            Keeping::Pkcs11 => {
                use super::support::token::{PIN, config};
                use ron_kms::backend::Pkcs11Backend;
                Arc::new(Pkcs11Backend::connect(env, config(PIN, 2)).await.unwrap())
            }
        };
        (store, backend)
    }
}

pub struct Running {
    keeping: Keeping,
    runtime: Runtime,
    env: Env,
    base: String,
    document: Checker,
    stop: Shutdown,
    ended: Option<Join<Ended>>,
    /// Sent with every request, if there is one.
    pub token: Option<String>,
    /// Outlives the service.
    _data: Option<Scratch>,
}

impl Running {
    /// Without authentication.
    pub fn open() -> Running {
        Running::start(|_| {})
    }

    /// Callers need tokens of [`token`].
    pub fn guarded() -> Running {
        Running::start(|config| {
            config.auth.mode = AuthMode::Passport;
            config.auth.passport.issuer = ISSUER.to_owned();
            config.auth.passport.audience = AUDIENCE.to_owned();
            config.auth.passport.jwks_url = format!("{ISSUER}/jwks.json");
        })
    }

    pub fn start(change: impl FnOnce(&mut Config)) -> Running {
        Running::start_on(Keeping::Memory, change)
    }

    /// Without authentication.
    pub fn on(keeping: Keeping) -> Running {
        Running::start_on(keeping, |_| {})
    }

    fn start_on(keeping: Keeping, change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config::default();
        config.audit.disk_reserve_bytes = 256 * 1024;
        config.audit.checkpoint_interval_ms = 10;
        change(&mut config);
        let document = Checker::new(api::document(&config.auth.to_mode().unwrap()));
        let runtime = runtime();
        let data = (keeping != Keeping::Memory).then(|| Scratch::new("api"));
        let env = match &data {
            None => forgetful(&runtime),
            Some(dir) => process(&runtime, Data::Directory(dir.path().to_owned())),
        };
        let (store, backend) = runtime.block_on(keeping.open(&env));
        assert_eq!(backend.info().name, keeping.name());
        let options = stored(&env, config, store, backend, Some(issuer_keys()));
        let stop = Shutdown::new();
        let (listener, service) = runtime.block_on(async {
            let listener = env.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
            (listener, Service::open(options).await.unwrap())
        });
        let base = format!("http://{}", listener.local_addr().unwrap());
        let running = service.run(listener, stop.clone(), |_| {});
        let ended = env.spawn("service", running);
        Running {
            keeping,
            ended: Some(ended),
            runtime,
            env,
            base,
            document,
            stop,
            token: None,
            _data: data,
        }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body.to_string())
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body.to_string())
    }

    /// Paths are below `/v1/kms`; what comes back is as the document says.
    pub fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let path = format!("/v1/kms{path}");
        let answer = self.raw(method.clone(), &path, body);
        answer.check(&self.document, &method, &path);
        answer
    }

    fn raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body.into()).unwrap();
        self.runtime.block_on(async {
            let deadline = self.env.now() + Duration::from_secs(60);
            let response = self.env.http(request, deadline).await.unwrap();
            Answer::of(response).await
        })
    }

    /// Asks until the answer is no longer 409.
    pub fn get_covered(&self, path: &str) -> Answer {
        // A checkpoint comes by its interval, not by how often it is asked for.
        for _ in 0..3_000 {
            let answer = self.get(path);
            if answer.status != 409 {
                return answer;
            }
            assert_eq!(answer.code(), "not_covered");
            assert!(answer.headers.contains_key("retry-after"));
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{path} is never covered");
    }

    pub fn metric(&self, name: &str) -> f64 {
        let text = self.raw(Method::GET, "/metrics", "").bytes;
        metric(&String::from_utf8(text).unwrap(), name)
    }

    pub fn now_s(&self) -> u64 {
        self.env.wall_ms() / 1000
    }

    /// A new key's kid.
    pub fn key(&self, alg: &str) -> String {
        let made = self.post("/keys", &json!({ "purpose": "test", "alg": alg }));
        assert_eq!(made.status, 201, "{}", made.json);
        made.json["kid"].as_str().unwrap().to_owned()
    }

    /// Those that the backend offers; a key of any other is refused.
    pub fn offered<'a>(&self, algs: &[&'a str]) -> Vec<&'a str> {
        let (offered, lacking): (Vec<_>, Vec<_>) =
            algs.iter().partition(|alg| self.keeping.offers(alg));
        for alg in lacking {
            let refused = self.post("/keys", &json!({ "purpose": "test", "alg": alg }));
            let got = (refused.status.as_u16(), refused.code());
            assert_eq!(got, (422, "alg_unsupported"), "{alg}: {}", refused.json);
        }
        assert!(!offered.is_empty());
        offered
    }

    pub fn stop(mut self) -> Ended {
        self.stop.trigger();
        let ended = self.ended.take().unwrap();
        self.runtime.block_on(ended).unwrap()
    }
}

/// Claims of a caller with these scopes, good for a minute.
pub fn claims(now_s: u64, tenant: &str, scopes: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now_s + 60,
        "tenant": tenant, "scope": scopes,
    })
}

/// Signed by the issuer, under the algorithm that its key has.
pub fn token(claims: &Value) -> String {
    signed(&json!({ "alg": "EdDSA", "kid": "k1" }), claims, |text| {
        issuer().sign(text).as_ref().to_vec()
    })
}

pub fn signed(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(header), part(claims));
    let signature = sign(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

pub fn issuer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn issuer_keys() -> KeySet {
    let x = URL_SAFE_NO_PAD.encode(issuer().public_key());
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "k1", "x": x });
    KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap()
}
