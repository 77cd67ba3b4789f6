//! An operator of ron-kms: a directory of their own, the real binary, and what they ask of it.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binary on real files"
)]

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon, Farewell, Scratch, call, ends, ron_kms};

/// An operator with a directory of their own.
pub struct Operator {
    pub scratch: Scratch,
}

impl Operator {
    pub fn new(name: &str) -> Operator {
        Operator {
            scratch: Scratch::new(&format!("kms-process-{name}")),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ron_kms());
        command.current_dir(self.scratch.path()).args(args);
        command
    }

    pub fn serve(&self, settings: &[&str]) -> Command {
        let mut command = self.command(&["serve"]);
        let key = |setting: &str| setting.split('=').next().map(str::to_owned);
        let given = |own: &&str| settings.iter().any(|other| key(other) == key(own));
        let defaults = ["bind=127.0.0.1:0", "data_dir=data"].into_iter();
        for setting in defaults
            .filter(|own| !given(own))
            .chain(settings.iter().copied())
        {
            command.args(["--set", setting]);
        }
        command
    }

    pub fn start(&self, settings: &[&str]) -> Kms {
        let daemon = Daemon::start(self.serve(settings), &self.path("errors"));
        Kms(daemon.unwrap_or_else(|farewell| panic!("{farewell:?}")))
    }

    /// A store with one key, closed; the key and a signature of it.
    pub fn with_key(&self, settings: &[&str]) -> Signed {
        let kms = self.start(settings);
        let kid = kms.key("ed25519");
        let signed = kms.sign(&kid);
        assert_eq!(kms.0.stop().code, Some(0));
        signed
    }

    /// It ends with 2 and one line of error, prints nothing and changes no file; the line.
    pub fn refuses(&self, command: &Command) -> String {
        let before = self.files();
        let out = ends(command);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{command:?}: {error}");
        let each = |line: &str| line.starts_with("error: ");
        assert!(!error.is_empty() && error.lines().all(each), "{error}");
        assert!(out.stdout.is_empty(), "{command:?}");
        let after = self.files();
        for name in before.keys().chain(after.keys()) {
            let same = before.get(name) == after.get(name);
            assert!(same, "{} changed: {command:?}", name.display());
        }
        error
    }

    /// All that is stored, by name. The database is left out: opening it writes to it, even if its key is
    /// wrong; that it is whole shows when it is opened with the right one.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![self.path("data")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if !path.ends_with("keys.redb") && !path.ends_with("keys.redb.unsynced") {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        files
    }
}

/// A running service.
pub struct Kms(pub Daemon);

/// A signature that must verify for as long as the key is there.
#[derive(Clone)]
pub struct Signed {
    pub kid: String,
    pub sigs: Value,
}

pub const MESSAGE: &str = "aGVsbG8";

impl Kms {
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let Answer { status, body, .. } = call(self.0.addr, method, path, &body).unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", &format!("/v1/kms{path}"), body)
    }

    pub fn key(&self, alg: &str) -> String {
        let (status, made) = self.post("/keys", &json!({ "purpose": "test", "alg": alg }));
        assert_eq!(status, 201, "{made}");
        made["kid"].as_str().unwrap().to_owned()
    }

    pub fn sign(&self, kid: &str) -> Signed {
        let (status, signed) = self.try_sign(kid);
        assert_eq!(status, 200, "{signed}");
        Signed {
            kid: kid.to_owned(),
            sigs: signed["sigs"].clone(),
        }
    }

    /// Right after a start the log has no room reserved yet: a caller is told to try again, and does.
    pub fn try_sign(&self, kid: &str) -> (u16, Value) {
        let sign = |_| self.post("/sign", &json!({ "kid": kid, "message": MESSAGE }));
        let mut tries = (0..10_000).map(sign);
        let answer = tries.find(|(_, answer)| answer["code"] != "audit_unavailable");
        answer.expect("an answer")
    }

    pub fn assert_verifies(&self, signed: &Signed) {
        let body = json!({ "kid": signed.kid, "message": MESSAGE, "sigs": signed.sigs });
        let (status, answer) = self.post("/verify", &body);
        assert_eq!((status, &answer["valid"]), (200, &json!(true)), "{answer}");
    }

    /// The key signs, what it signed before verifies, and the service ends in order.
    pub fn works_with(self, signed: &Signed) -> Farewell {
        self.assert_verifies(signed);
        self.assert_verifies(&self.sign(&signed.kid));
        let farewell = self.0.stop();
        assert_eq!(farewell.code, Some(0), "{farewell:?}");
        farewell
    }
}

pub fn metrics(kms: &Kms) -> (u16, String) {
    let answer = call(kms.0.addr, "GET", "/metrics", "").unwrap();
    (answer.status, answer.body)
}

pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}
