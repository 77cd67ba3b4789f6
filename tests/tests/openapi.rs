//! The document that the real binaries serve, against what they answer: whatever it forbids is refused, whatever
//! comes back is listed.
#![allow(clippy::disallowed_methods, reason = "runs the real binaries")]

use std::process::Command;

use ron_core::api::check::{Came, Checker, Operation};
use serde_json::{Map, Value, json};
use tests::daemon::{Daemon, Scratch, call, ron_kms, svc_dht};

struct Service {
    daemon: Daemon,
    document: Checker,
    _scratch: Scratch,
}

impl Service {
    fn start(name: &str, mut command: Command, at: &str) -> Service {
        let scratch = Scratch::new(&format!("openapi-{name}"));
        command.current_dir(scratch.path());
        let daemon = Daemon::start(command, &scratch.path().join("errors"));
        let daemon = daemon.unwrap_or_else(|farewell| panic!("{farewell:?}"));
        let served = call(daemon.addr, "GET", at, "").unwrap();
        assert_eq!(served.status, 200, "{}", served.body);
        Service {
            document: Checker::new(serde_json::from_str(&served.body).unwrap()),
            daemon,
            _scratch: scratch,
        }
    }

    /// What comes back is listed.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = call(self.daemon.addr, method, path, body).unwrap();
        let mut kinds = answer.head.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-type").then_some(value)
        });
        let came = Came {
            status: answer.status,
            kind: kinds.next().unwrap_or(""),
            body: answer.body.as_bytes(),
        };
        let found = self.document.answer(method, path, came);
        found.unwrap_or_else(|why| panic!("{why}\nasked with {body}"));
        (
            answer.status,
            serde_json::from_str(&answer.body).unwrap_or_default(),
        )
    }

    fn code(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, problem) = self.ask(method, path, body);
        (
            status,
            problem["code"].as_str().unwrap_or_default().to_owned(),
        )
    }

    /// Nobody is identified, so nobody is asked for credentials; what is no operation has its codes.
    fn is_sound(&self, prefix: &str) {
        self.document.sound().unwrap();
        let document = &self.document.document;
        assert_eq!(document["components"]["securitySchemes"], json!({}));
        let secured = |o: &Operation<'_>| o.about["security"].is_array();
        assert!(!self.document.operations().iter().any(secured));
        let codes = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        for code in [
            "not_found",
            "method_not_allowed",
            "body_too_large",
            "busy",
            "draining",
        ] {
            assert!(codes.as_array().unwrap().contains(&json!(code)), "{code}");
        }
        assert!(
            !codes
                .as_array()
                .unwrap()
                .contains(&json!("missing_credentials"))
        );
        let nowhere = self.code("GET", &format!("{prefix}/nowhere"), "");
        assert_eq!(nowhere, (404, "not_found".into()));
        let wrong = self.code("DELETE", &format!("{prefix}/openapi.json"), "");
        assert_eq!(wrong, (405, "method_not_allowed".into()));
    }

    /// Each bound of each parameter and field, broken one at a time: refused. How many there were.
    fn refuses_what_is_forbidden(&self, known: &[(&str, &str)]) -> usize {
        let mut broken = 0;
        for operation in self.document.operations() {
            if operation.path.ends_with("/events") {
                continue;
            }
            let content = &operation.about["requestBody"]["content"]["application/json"];
            let first = content["examples"]["example1"]["value"].to_string();
            let body = if first == "null" { "" } else { &first };
            let parameters = operation.about["parameters"].as_array();
            for parameter in parameters.into_iter().flatten() {
                for wrong in self.outside(&parameter["schema"]) {
                    let wrong = wrong.as_str().map_or(wrong.to_string(), str::to_owned);
                    let path = filled(&operation, known, Some((parameter, &wrong)));
                    let (status, code) = self.code(&operation.method, &path, body);
                    let told = (status, &*code);
                    let right = matches!(told, (400, "invalid_path" | "invalid_query"))
                        // A name that is allowed after all is looked up, and nobody has it.
                        || status == 404;
                    assert!(right, "{} {path}: {told:?}", operation.method);
                    broken += 1;
                }
            }
            let path = filled(&operation, known, None);
            for body in self.wrong_bodies(content) {
                assert!(self.document.request(&operation, &body).is_err(), "{body}");
                let (status, code) = self.code(&operation.method, &path, &body.to_string());
                let told = (status, &*code);
                let right = matches!(
                    told,
                    (
                        422,
                        "invalid_field" | "missing_field" | "unknown_field" | "alg_unknown"
                    ) | (400, "base64_invalid")
                        | (413, "too_long")
                        // Of a key that is not there nothing else is told.
                        | (404, "key_not_found")
                );
                assert!(right, "{} {path} {body}: {told:?}", operation.method);
                broken += 1;
            }
        }
        broken
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> Map<String, Value> {
        let mut all = schema.as_object().cloned().unwrap_or_default();
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            all.extend(self.resolve(one));
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.document.pointer(&reference[1..]).unwrap();
            for (name, rule) in self.resolve(target) {
                all.entry(name).or_insert(rule);
            }
        }
        all
    }

    /// Values just outside of what the schema allows.
    fn outside(&self, schema: &Value) -> Vec<Value> {
        let rules = self.resolve(schema);
        let number = |name: &str| rules.get(name).and_then(Value::as_u64);
        let text = |len: u64| Value::from("A".repeat(len as usize));
        let mut all = vec![json!("\u{1}?")];
        all.extend(
            number("minimum")
                .filter(|least| *least > 0)
                .map(|least| (least - 1).into()),
        );
        all.extend(
            number("maximum")
                .and_then(|most| most.checked_add(1))
                .map(Value::from),
        );
        all.extend(
            number("minLength")
                .filter(|least| *least > 0)
                .map(|least| text(least - 1)),
        );
        all.extend(number("maxLength").map(|most| text(most + 2 - most % 2)));
        all.retain(|value| self.document.fits(schema, value, ".").is_err());
        all
    }

    /// The first example with one thing wrong.
    fn wrong_bodies(&self, content: &Value) -> Vec<Value> {
        let example = &content["examples"]["example1"]["value"];
        let Some(example) = example.as_object() else {
            return Vec::new();
        };
        let mut all = Vec::new();
        let mut with = |name: &str, value: Value| {
            let mut body = example.clone();
            body.insert(name.to_owned(), value);
            all.push(Value::Object(body));
        };
        with("surplus", 1.into());
        let rules = self.resolve(&content["schema"]);
        for (name, schema) in rules["properties"].as_object().into_iter().flatten() {
            with(name, json!({ "surplus": [] }));
            self.outside(schema)
                .into_iter()
                .for_each(|value| with(name, value));
        }
        let required = rules.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten() {
            let mut body = example.clone();
            body.remove(name.as_str().unwrap());
            all.push(Value::Object(body));
        }
        all
    }
}

/// A path of the operation, with one parameter as wished.
fn filled(
    operation: &Operation<'_>,
    known: &[(&str, &str)],
    wrong: Option<(&Value, &str)>,
) -> String {
    let mut path = operation.path.to_owned();
    let encoded = |text: &str| text.replace('\u{1}', "%01").replace('?', "%3F");
    if let Some((parameter, value)) = wrong {
        let (name, value) = (parameter["name"].as_str().unwrap(), encoded(value));
        match parameter["in"] == "query" {
            true => path = format!("{path}?{name}={value}"),
            false => path = path.replace(&format!("{{{name}}}"), &value),
        }
    }
    for (name, value) in known {
        path = path.replace(&format!("{{{name}}}"), value);
    }
    path
}

#[test]
fn ron_kms_refuses_what_its_document_forbids_and_lists_what_it_answers() {
    let mut command = Command::new(ron_kms());
    command.args([
        "serve",
        "--set",
        "bind=127.0.0.1:0",
        "--set",
        "data_dir=data",
    ]);
    let kms = Service::start("kms", command, "/v1/kms/openapi.json");
    kms.is_sound("/v1/kms");
    let made = json!({ "purpose": "p", "alg": "ed25519" }).to_string();
    let (status, key) = kms.ask("POST", "/v1/kms/keys", &made);
    assert_eq!(status, 201);
    let kid = key["kid"].as_str().unwrap();
    let known = [("kid", kid), ("n", "1"), ("index", "0"), ("path", "0/000")];
    let broken = kms.refuses_what_is_forbidden(&known);
    assert!(broken > 100, "{broken}");
    // A version that no key can have is refused as one that is no number, and counted as that.
    let count = |route: &str| {
        let page = call(kms.daemon.addr, "GET", "/metrics", "").unwrap().body;
        let line = format!("kms_refused_total{{code=\"invalid_path\",route=\"/v1/kms{route}\"}} ");
        let value = page
            .lines()
            .find_map(|l| l.strip_prefix(&line)?.parse::<u64>().ok());
        value.unwrap_or(0)
    };
    let route = "/keys/{kid}/versions/{n}/disable";
    let before = count(route);
    for version in ["0", "x", "4294967296"] {
        let path = format!("/v1/kms/keys/{kid}/versions/{version}/disable");
        assert_eq!(kms.code("POST", &path, ""), (400, "invalid_path".into()));
    }
    assert_eq!(count(route), before + 3);
    // The door counts too.
    let large = kms.code("POST", "/v1/kms/sign", &" ".repeat((1 << 20) + 1));
    assert_eq!(large, (413, "body_too_large".into()));
    let page = call(kms.daemon.addr, "GET", "/metrics", "").unwrap().body;
    let line = "kms_refused_total{code=\"body_too_large\",route=\"/v1/kms/sign\"} 1";
    assert!(page.contains(line), "{page}");
}

#[test]
fn svc_dht_refuses_what_its_document_forbids_and_lists_what_it_answers() {
    let mut command = Command::new(svc_dht());
    command.arg("serve");
    for setting in ["bind=127.0.0.1:0", "api.bind=127.0.0.1:0", "data_dir=data"] {
        command.args(["--set", setting]);
    }
    let dht = Service::start("dht", command, "/v1/dht/openapi.json");
    dht.is_sound("/v1/dht");
    let zero = "0".repeat(64);
    let broken = dht.refuses_what_is_forbidden(&[("key", &zero), ("id", "1")]);
    assert!(broken > 10, "{broken}");
}
