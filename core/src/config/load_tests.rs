//! What loading a configuration promises.

use proptest::prelude::*;

use super::*;
use crate::config::{Apply, Secret};

crate::choices! {
    enum Policy { Bounded = "bounded", Strict = "strict" }
}

crate::settings! {
    /// Audit.
    struct Audit {
        /// Operations between
        /// two checkpoints.
        checkpoint_every_ops: u64 = 1_000 => 1..=1_000_000;
        /// What happens under pressure.
        policy: Policy = Policy::Bounded;
    }
}

crate::settings! {
    struct Config {
        /// Where to listen.
        bind: std::net::SocketAddr = ([127, 0, 0, 1], 7000).into(), restart;
        /// A name.
        label: String = "x".to_owned();
        /// Peers.
        peers: Vec<String> = vec![];
        /// A token.
        token: Option<Secret> = None;
        audit: Audit;
    }
}

fn sources(file: &str, env: &[(&str, &str)], cli: &[&str]) -> Sources {
    Sources {
        file: Some(("kms.toml".to_owned(), file.to_owned())),
        env: env
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        cli: cli.iter().map(|s| s.to_string()).collect(),
    }
}

fn load(sources: &Sources) -> Result<Config, String> {
    let loaded = sources.load::<Config>("RON_KMS_", |_| vec![]);
    loaded.map(|l| l.config).map_err(|e| e.to_string())
}

#[test]
fn keys_are_described_by_their_declaration() {
    let keys = Config::keys();
    let names: Vec<_> = keys.iter().map(|k| k.name.as_str()).collect();
    let expected = [
        "bind",
        "label",
        "peers",
        "token",
        "audit.checkpoint_every_ops",
        "audit.policy",
    ];
    assert_eq!(names, expected);
    let ops = &keys[4];
    assert_eq!(ops.doc, "Operations between two checkpoints.");
    assert_eq!(
        (ops.default.as_str(), ops.allowed.as_str()),
        ("1000", "1..=1000000")
    );
    assert_eq!((ops.kind.as_str(), ops.unit), ("integer", "operations"));
    assert_eq!((ops.apply, keys[0].apply), (Apply::Live, Apply::Restart));
    assert_eq!(
        (keys[5].default.as_str(), keys[5].allowed.as_str()),
        ("\"bounded\"", "bounded | strict")
    );
    assert!(keys[3].secret && keys[3].default.is_empty());
}

#[test]
fn each_error_is_one_line_naming_source_key_value_and_what_is_allowed() {
    let env = "RON_KMS_AUDIT__CHECKPOINT_EVERY_OPS";
    let cases: &[(Sources, &str)] = &[
        (
            sources("label = 'a'\n\n[audit]\ncheckpoint_every_ops = 0", &[], &[]),
            "kms.toml:4: `audit.checkpoint_every_ops` = 0: expected integer: 1..=1000000",
        ),
        (
            sources("[audit]\ncheckpoint_evry_ops = 5", &[], &[]),
            "kms.toml:2: `audit.checkpoint_evry_ops`: unknown key; did you mean `audit.checkpoint_every_ops`?",
        ),
        (
            sources("policy = 'strict'", &[], &[]),
            "kms.toml:1: `policy`: unknown key; did you mean `audit.policy`?",
        ),
        (
            sources("[wholly]\nelse = 1", &[], &[]),
            "kms.toml:1: `wholly`: unknown key",
        ),
        (
            sources("", &[(env, "-1")], &[]),
            &format!(
                "env {env}: `audit.checkpoint_every_ops` = -1: expected integer: 1..=1000000 (invalid value: integer `-1`, expected u64)"
            ),
        ),
        (
            sources("", &[("RON_KMS_AUDIT__POLICI", "strict")], &[]),
            "env RON_KMS_AUDIT__POLICI: unknown key; did you mean `RON_KMS_AUDIT__POLICY`?",
        ),
        (
            sources("", &[], &["audit.policy=lax"]),
            "--set: `audit.policy` = \"lax\": expected choice: bounded | strict (unknown variant `lax`, expected `bounded` or `strict`)",
        ),
        (
            sources("", &[], &["bind"]),
            "--set: expected key=value, got bind",
        ),
        (
            sources("", &[], &["label=a", "label=b"]),
            "--set: `label`: given twice",
        ),
        (sources("label = ", &[], &[]), "kms.toml:1: not valid TOML"),
        (
            sources("label = 'a'\nlabel = 'b'", &[], &[]),
            "kms.toml:2: not valid TOML: duplicate key",
        ),
        (
            sources("token = 7", &[], &[]),
            "kms.toml:1: `token` = (secret): expected secret text, optional",
        ),
        (
            sources("bind = 'localhost'", &[], &[]),
            "kms.toml:1: `bind` = \"localhost\": expected address (invalid socket address syntax)",
        ),
    ];
    for (sources, expected) in cases {
        let error = load(sources).unwrap_err();
        assert!(error.starts_with(expected), "{error}\n{expected}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn all_errors_are_reported_at_once_and_an_overridden_one_still_counts() {
    let error = load(&sources("lable = 1\nlabel = 2\n", &[], &["label=fine"])).unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(
        lines[0].starts_with("kms.toml:1: `lable`")
            && lines[1].starts_with("kms.toml:2: `label` = 2")
    );
}

#[test]
fn text_sources_take_text_literally_and_anything_else_as_toml() {
    let flags = [
        "label=12",
        "peers=['a', 'b']",
        "audit.checkpoint_every_ops=7",
        "bind=[::1]:9",
    ];
    let config = load(&sources("", &[("OTHER", "x")], &flags)).unwrap();
    assert_eq!((config.label.as_str(), config.peers.len()), ("12", 2));
    assert_eq!(
        (config.audit.checkpoint_every_ops, config.bind.port()),
        (7, 9)
    );
    // Text cannot smuggle in a second key.
    assert!(load(&sources("", &[], &["audit.checkpoint_every_ops=7\nw = 1"])).is_err());
}

#[test]
fn a_secret_is_shown_nowhere() {
    let config = load(&sources("token = 'hush'", &[], &[])).unwrap();
    assert_eq!(config.token.as_ref().unwrap().reveal(), "hush");
    let shown = format!("{config:?} {}", toml::to_string(&config).unwrap());
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_broken_rule_names_the_source_of_its_key() {
    let rule = |_: &Config| {
        vec![Broken {
            key: "label",
            reason: "must rhyme".to_owned(),
        }]
    };
    let told = |s: &Sources| s.load("RON_KMS_", rule).unwrap_err().to_string();
    assert_eq!(
        told(&sources("", &[], &[])),
        "default: `label` = \"x\": must rhyme"
    );
    let env = sources("", &[("RON_KMS_LABEL", "y")], &[]);
    assert_eq!(told(&env), "env RON_KMS_LABEL: `label` = \"y\": must rhyme");
}

proptest! {
    #[test]
    fn the_command_line_beats_the_environment_beats_the_file_beats_the_default(
        file in proptest::option::of(1u64..1000),
        env in proptest::option::of(1u64..1000),
        cli in proptest::option::of(1u64..1000),
    ) {
        let mut all = sources("", &[], &[]);
        if let Some(v) = file {
            all.file = Some(("f".into(), format!("audit.checkpoint_every_ops = {v}")));
        }
        if let Some(v) = env {
            all.env.push(("RON_KMS_AUDIT__CHECKPOINT_EVERY_OPS".into(), v.to_string()));
        }
        if let Some(v) = cli {
            all.cli.push(format!("audit.checkpoint_every_ops={v}"));
        }
        let expected = cli.or(env).or(file).unwrap_or(1_000);
        prop_assert_eq!(load(&all).unwrap().audit.checkpoint_every_ops, expected);
    }

    #[test]
    fn no_text_makes_it_panic_and_every_error_is_one_line(text in ".{0,60}", flag in ".{0,30}") {
        let all = sources(&text, &[("RON_KMS_LABEL", "y")], &[&flag, &format!("peers={flag}")]);
        if let Err(errors) = all.load::<Config>("RON_KMS_", |_| vec![]) {
            for error in errors.0 {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
