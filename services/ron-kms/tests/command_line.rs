//! `ron-kms` as a user meets it: exit codes, one line of error, text and JSON.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binary on real files"
)]

mod written;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use ron_io::FileDisk;
use ron_kms::audit::log::Policy;
use written::{Keys, Writer, flip};

/// A data directory with a log of 300 operations, and one receipt, removed with this.
struct Data {
    root: PathBuf,
    disk: FileDisk,
    keys: Keys,
}

impl Data {
    fn new(name: &str) -> Data {
        let root = std::env::temp_dir().join(format!("ron-kms-cli-{name}-{}", std::process::id()));
        let disk = FileDisk::open(&root).unwrap();
        let keys = Keys::new(1);
        let mut writer = Writer::open(&disk, "data/audit", &keys, Policy::Shed);
        writer.operate(300);
        writer.checkpoint();
        let mut receipt = writer.receipt(260);
        fs::write(root.join("receipt"), receipt.encode()).unwrap();
        fs::write(root.join("entry"), receipt.extra.take().unwrap()).unwrap();
        fs::write(root.join("bare"), receipt.encode()).unwrap();
        fs::write(root.join("keys"), keys.text()).unwrap();
        fs::write(root.join("others"), Keys::new(2).text()).unwrap();
        drop(writer);
        Data { root, disk, keys }
    }

    fn run(&self, args: &[&str]) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_ron-kms"));
        let mut command = Command::new(binary);
        command.current_dir(&self.root).args(args);
        command.output().unwrap()
    }

    /// The code, and the one line of error.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let out = self.run(args);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(out.stdout.is_empty());
        (out.status.code().unwrap(), error.trim_end().to_owned())
    }

    fn succeeds(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let (text, error) = (out.stdout, String::from_utf8(out.stderr).unwrap());
        assert_eq!(
            (out.status.code(), error.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
        String::from_utf8(text).unwrap()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_log_that_verifies_ends_with_0_and_says_what_it_holds() {
    let data = Data::new("verifies");
    let text = data.succeeds(&["audit", "verify", "data"]);
    assert!(text.contains("verified   example.com/kms\n"), "{text}");
    assert!(text.contains("operations 300\n"), "{text}");
    assert!(text.contains("the directory's own: give --key"), "{text}");
    assert_eq!(data.succeeds(&["audit", "verify", "data/audit"]), text);
    let vkeys = data.keys.text();
    let vkeys: Vec<&str> = vkeys.lines().collect();
    let json = data.succeeds(&[
        "audit", "verify", "data", "--json", "--key", vkeys[0], "--key", vkeys[1],
    ]);
    assert_eq!(json.lines().count(), 1);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (name, value) in [("operations", 300), ("lost", 0), ("beyond_checkpoint", 0)] {
        assert_eq!(json[name], value, "{name}");
    }
    assert_eq!(json["verified"], true);
    assert_eq!(json["own_keys"], false);
    let by_file = data.succeeds(&["audit", "verify", "data", "--key", "keys"]);
    assert!(!by_file.contains("--key"), "{by_file}");
}

#[test]
fn a_log_that_does_not_verify_ends_with_1_and_the_file_is_named() {
    let data = Data::new("damaged");
    let (code, error) = data.fails(&["audit", "verify", "data", "--key", "others"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("data/audit/checkpoint: no signature of"),
        "{error}"
    );
    flip(&data.disk, "data/audit/tile/0/000", 32);
    let expected = "error: data/audit/tile/0/000: hash 1 differs".to_owned();
    assert_eq!(data.fails(&["audit", "verify", "data"]), (1, expected));
    flip(&data.disk, "data/audit/tile/0/000", 32);
    fs::remove_file(data.root.join("data/audit/checkpoint")).unwrap();
    let expected = "error: data/audit/checkpoint: is missing".to_owned();
    assert_eq!(data.fails(&["audit", "verify", "data"]), (1, expected));
}

#[test]
fn what_cannot_be_read_or_asked_ends_with_2() {
    let data = Data::new("unreadable");
    fs::create_dir(data.root.join("empty")).unwrap();
    fs::write(data.root.join("long"), vec![b'#'; 1 << 21]).unwrap();
    let table: [(&[&str], &str); 7] = [
        (
            &["audit", "verify", "nowhere"],
            "nowhere: no such directory",
        ),
        (
            &["audit", "verify", "empty"],
            "neither log nor checkpoint is there",
        ),
        (
            &["audit", "verify", "data", "--key", "nofile"],
            "nofile: no such file",
        ),
        (
            &["audit", "verify", "data", "--key", "a+b+c"],
            "--key: not a verifier key",
        ),
        (
            &["audit", "verify", "data", "--key", "receipt"],
            "--key: receipt: line 1",
        ),
        (
            &["audit", "verify", "data", "--key", "long"],
            "at most 1048576 are allowed",
        ),
        (
            &["audit", "receipt", "verify", "nofile", "--key", "keys"],
            "nofile: no such file",
        ),
    ];
    for (args, said) in table {
        let (code, error) = data.fails(args);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(said), "{error}");
    }
    assert!(!data.root.join("nowhere").exists(), "nothing is created");
    fs::remove_file(data.root.join("data/audit/keys.txt")).unwrap();
    let (code, error) = data.fails(&["audit", "verify", "data"]);
    assert_eq!((code, error.contains("keys.txt: is missing")), (2, true));
    let (code, error) = data.fails(&["audit", "receipt", "verify", "receipt"]);
    assert_eq!(code, 2, "a receipt needs a key");
    assert!(error.starts_with("error: --key: no key"), "{error}");
}

#[test]
fn a_receipt_needs_one_file_and_a_key() {
    let data = Data::new("receipt");
    let verify = |file: &'static str, more: &[&'static str]| {
        let mut args = vec!["audit", "receipt", "verify", file];
        args.extend(more);
        args
    };
    let text = data.succeeds(&verify("receipt", &["--key", "keys"]));
    assert!(text.contains("index      260 of 30"), "{text}");
    assert!(
        text.contains("entry      {\"v\":1,\"index\":260,"),
        "{text}"
    );
    let with_entry = ["--key", "keys", "--entry", "entry"];
    assert_eq!(data.succeeds(&verify("bare", &with_entry)), text);
    let (code, error) = data.fails(&verify("bare", &["--key", "keys"]));
    assert_eq!(code, 1);
    assert!(error.contains("does not carry its entry"), "{error}");
    let (code, _) = data.fails(&verify("receipt", &["--key", "others"]));
    assert_eq!(code, 1);
    let (code, _) = data.fails(&verify("receipt", &["--key", "keys", "--entry", "keys"]));
    assert_eq!(code, 1);
}

fn serve(more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ron-kms"));
    command.args(["serve", "--log", "off", "--set", "bind=127.0.0.1:0"]);
    command.args(["--set", "backend=memory"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn stop(service: &Child) {
    let stop = Command::new("kill").arg(service.id().to_string()).status();
    assert!(stop.unwrap().success());
}

#[test]
fn what_has_no_store_or_no_directory_is_refused_and_nothing_is_made() {
    let data = Data::new("nothing-made");
    fs::create_dir(data.root.join("empty")).unwrap();
    let here = fs::read_dir(&data.root).unwrap().count();
    let table: [(&[&str], &str); 5] = [
        (
            &["rekey", "--set", "data_dir=empty", "--new-key-file", "new"],
            "empty/keys.redb: there is no key store",
        ),
        (
            &["rekey", "--set", "data_dir=absent", "--new-key-file", "new"],
            "absent/keys.redb: there is no key store",
        ),
        (
            &["rekey", "--set", "backend=memory", "--new-key-file", "new"],
            "has no key store",
        ),
        (
            &["rekey", "--set", "data_dir=", "--new-key-file", "new"],
            "`data_dir` = \"\": must name a directory",
        ),
        (
            &["serve", "--set", "data_dir=", "--set", "bind=127.0.0.1:0"],
            "`data_dir` = \"\": must name a directory",
        ),
    ];
    for (args, said) in table {
        let (code, error) = data.fails(args);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(said), "{error}");
    }
    let left = fs::read_dir(&data.root).unwrap().count();
    assert_eq!(left, here, "nothing was made");
    let empty = fs::read_dir(data.root.join("empty")).unwrap().count();
    assert_eq!(empty, 0, "nothing was made");
}

#[test]
fn the_lines_to_try_carry_a_token_where_one_is_needed() {
    let passport = [
        "auth.mode=passport",
        "auth.passport.issuer=https://issuer.test",
        "auth.passport.audience=ron-kms",
        "auth.passport.jwks_url=http://127.0.0.1:1/jwks.json",
    ];
    let passport: Vec<&str> = passport.iter().flat_map(|set| ["--set", set]).collect();
    for (more, tokens) in [(&[][..], 0), (&passport, 2)] {
        let mut service = serve(more);
        let reader = BufReader::new(service.stdout.take().unwrap());
        let mut curls = Vec::new();
        // The last line of the greeting continues the second call.
        for line in reader.lines().map(Result::unwrap) {
            let last = line.contains("aGVsbG8");
            curls.extend(Some(line).filter(|line| line.contains("curl")));
            if last {
                break;
            }
        }
        stop(&service);
        service.wait().unwrap();
        let with = |line: &&String| line.contains("-H \"authorization: Bearer $TOKEN\"");
        assert_eq!(curls.len(), 2, "{curls:?}");
        assert_eq!(curls.iter().filter(with).count(), tokens, "{curls:?}");
    }
}
