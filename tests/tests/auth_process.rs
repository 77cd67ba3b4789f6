//! Who may call, on the real binaries: an issuer on loopback that can also talk nonsense, tokens that are wrong in one
//! thing, and the token that lets an operator steer a process without any issuer.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binaries on real files"
)]

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tests::daemon::{Answer, Daemon, Scratch, call_with, ends, ron_kms, svc_dht};

/// Publishes one key below its own address, as OpenID Connect Discovery has it; or nonsense.
struct Issuer {
    addr: SocketAddr,
    pair: Arc<Ed25519KeyPair>,
    sane: Arc<AtomicBool>,
}

impl Issuer {
    fn start(sane: bool) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = Issuer {
            addr: listener.local_addr().unwrap(),
            pair: Arc::new(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()),
            sane: Arc::new(AtomicBool::new(sane)),
        };
        let (url, sane) = (issuer.url(), issuer.sane.clone());
        let x = URL_SAFE_NO_PAD.encode(issuer.pair.public_key().as_ref());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x}]});
        let metadata = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = [0; 4096];
                let read = stream.read(&mut asked).unwrap_or(0);
                let body = match asked[..read].starts_with(b"GET /keys ") {
                    _ if !sane.load(Ordering::SeqCst) => "<html>".to_owned(),
                    true => keys.to_string(),
                    false => metadata.to_string(),
                };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        issuer
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Good in all, but for these claims and this key's name.
    fn token(&self, kid: &str, changes: Value) -> String {
        let mut claims = json!({
            "iss": self.url(), "aud": "ron", "sub": "ada", "tenant": "acme",
            "scope": "kms:read kms:sign", "exp": now() + 600, "iat": now(),
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": kid});
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A service as its operator runs it, in a directory of its own.
struct Site {
    dir: Scratch,
    binary: &'static Path,
    settings: Vec<String>,
}

impl Site {
    fn kms(name: &str, settings: &[&str]) -> Site {
        Site::new(name, ron_kms(), &["bind=127.0.0.1:0"], settings)
    }

    fn dht(name: &str, settings: &[&str]) -> Site {
        let own = ["bind=127.0.0.1:0", "api.bind=127.0.0.1:0"];
        Site::new(name, svc_dht(), &own, settings)
    }

    fn new(name: &str, binary: &'static Path, own: &[&str], settings: &[&str]) -> Site {
        let all = own.iter().chain(settings).chain(&["data_dir=data"]);
        Site {
            dir: Scratch::new(&format!("auth-{name}")),
            binary,
            settings: all.map(|setting| (*setting).to_owned()).collect(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.current_dir(self.dir.path()).args(args);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command
    }

    fn start(&self) -> Daemon {
        let daemon = Daemon::start(self.command(&["serve"]), &self.dir.path().join("errors"));
        daemon.unwrap_or_else(|farewell| panic!("{farewell:?}"))
    }

    fn token_file(&self) -> PathBuf {
        self.dir.path().join("data/operator.token")
    }

    fn operator_token(&self) -> String {
        let file = self.token_file();
        until("the operator's token", || file.exists());
        fs::read_to_string(file).unwrap().trim().to_owned()
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("never: {what}");
}

fn ask(daemon: &Daemon, method: &str, path: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers: &[(&str, &str)] = match token {
        "" => &[],
        _ => &[("authorization", &bearer)],
    };
    call_with(daemon.addr, method, path, headers, "").unwrap()
}

/// Status and code.
fn told(answer: &Answer) -> (u16, String) {
    let body: Value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    (
        answer.status,
        body["code"].as_str().unwrap_or("").to_owned(),
    )
}

fn metric(daemon: &Daemon, line: &str) -> f64 {
    let page = ask(daemon, "GET", "/metrics", "").body;
    let value = page.lines().find_map(|l| l.strip_prefix(line));
    value.map_or(0.0, |value| value.trim().parse().unwrap())
}

const KEYS: &str = "/v1/kms/keys";

#[test]
fn the_issuer_alone_is_enough_and_each_token_is_judged_by_its_own_facts() {
    let issuer = Issuer::start(true);
    let url = format!("auth.passport.issuer={}", issuer.url());
    let site = Site::kms(
        "tokens",
        &["auth.mode=passport", "auth.passport.audience=ron", &url],
    );
    let kms = site.start();
    until("ready", || ask(&kms, "GET", "/readyz", "").status == 200);
    let good = ask(&kms, "GET", KEYS, &issuer.token("k1", json!({})));
    assert_eq!(good.status, 200, "{}", good.body);
    for (changes, expected) in [
        (json!({"exp": 1e300}), "malformed_token"),
        (json!({"exp": -1}), "malformed_token"),
        (json!({"iat": now() + 3600}), "not_yet_valid"),
        (json!({"at_hash": "x"}), "wrong_type"),
        (json!({"iss": "https://evil.test"}), "issuer_mismatch"),
    ] {
        let answer = ask(&kms, "GET", KEYS, &issuer.token("k1", changes));
        assert_eq!(told(&answer), (401, expected.to_owned()));
    }
    let unknown = ask(&kms, "GET", KEYS, &issuer.token("k2", json!({})));
    assert_eq!(told(&unknown), (401, "unknown_kid".to_owned()));
    assert!(unknown.head.contains("retry-after: 30"), "{}", unknown.head);
    let counted = metric(&kms, r#"auth_failures_total{reason="malformed_token"}"#);
    assert_eq!(counted, 2.0);
    assert_eq!(kms.stop().code, Some(0));
}

#[test]
fn an_issuer_that_serves_garbage_is_one_line_and_a_count_and_nobody_gets_in() {
    let issuer = Issuer::start(false);
    let url = format!("auth.passport.issuer={}", issuer.url());
    let site = Site::kms(
        "garbage",
        &["auth.mode=passport", "auth.passport.audience=ron", &url],
    );
    let kms = site.start();
    let garbage = r#"auth_refreshes_total{result="malformed"}"#;
    until("three attempts", || metric(&kms, garbage) >= 3.0);
    assert_eq!(ask(&kms, "GET", "/readyz", "").status, 503);
    let token = issuer.token("k1", json!({}));
    let refused = ask(&kms, "GET", KEYS, &token);
    assert_eq!(told(&refused), (503, "no_keys".to_owned()));
    issuer.sane.store(true, Ordering::SeqCst);
    until("let in", || ask(&kms, "GET", KEYS, &token).status == 200);
    let farewell = kms.stop();
    let lines = farewell.logged.lines();
    let lines = lines
        .filter(|l| l.contains("could not be refreshed"))
        .count();
    assert_eq!(lines, 1, "{}", farewell.logged);
}

#[test]
fn an_operator_steers_a_process_without_an_issuer_by_the_token_in_its_folder() {
    for (site, door, scope) in [
        (Site::kms("operator-kms", &["admin=true"]), KEYS, true),
        (
            Site::dht("operator-dht", &["api.admin=true"]),
            "/v1/dht/peers",
            false,
        ),
    ] {
        let daemon = site.start();
        let token = site.operator_token();
        let mode = fs::metadata(site.token_file())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let shutdown = "/api/v1/shutdown";
        for (presented, code) in [
            ("", "missing_credentials"),
            ("ron-operator-1", "operator_token"),
        ] {
            let answer = ask(&daemon, "POST", shutdown, presented);
            assert_eq!(told(&answer), (401, code.to_owned()));
        }
        if scope {
            let answer = ask(&daemon, "GET", door, &token);
            assert_eq!(told(&answer), (403, "missing_scope".to_owned()));
        }
        // The command line finds the token by itself.
        let url = format!("http://{}", daemon.addr);
        let out = ends(&site.command(&["shutdown", "--url", &url]));
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(daemon.wait().code, Some(0));
        assert!(!site.token_file().exists(), "it ends with the process");
        let again = site.start();
        assert_ne!(site.operator_token(), token, "fresh at each start");
        assert_eq!(ask(&again, "POST", shutdown, &token).status, 401);
        assert_eq!(again.stop().code, Some(0));
    }
}
