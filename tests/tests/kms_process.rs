//! ron-kms as its operator meets it: a process with a data directory, a port, signals and exit codes.
//!
//! Whatever is refused at the start costs one line and exit code 2, and leaves the data as it was.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binary on real files"
)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tests::{
    daemon::{Daemon, Farewell, call, ends, ron_kms},
    kms_operator::{Kms, MESSAGE, Operator, Signed, metric, metrics},
};

#[test]
fn a_store_a_port_or_a_lock_held_by_another_process_is_refused_in_one_line() {
    let operator = Operator::new("held");
    let kms = operator.start(&[]);
    let signed = kms.sign(&kms.key("ed25519"));
    let taken = format!("bind={}", kms.0.addr);
    let locked = "another process has the key store open";
    let mut rekey = operator.command(&["rekey", "--set", "data_dir=data"]);
    rekey.args(["--new-key-file", "../new.key"]);
    for (command, said) in [
        (operator.serve(&[]), locked),
        (rekey, locked),
        (
            operator.serve(&[&taken, "data_dir=elsewhere"]),
            "the address is in use",
        ),
    ] {
        let out = ends(&command);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(said), "{error}");
        assert!(out.stdout.is_empty());
    }
    let keys = operator.path("elsewhere/keys.redb");
    assert!(!keys.exists(), "a port that is taken makes no store");
    kms.works_with(&signed);
}

#[test]
fn a_key_file_that_is_missing_open_to_others_short_or_foreign_opens_nothing() {
    let operator = Operator::new("key-file");
    let signed = operator.with_key(&[]);
    let path = operator.path("data/kek.key");
    let good = fs::read(&path).unwrap();
    assert_eq!(good.len(), 32);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "made for its owner alone");
    let write = |bytes: &[u8], mode: u32| {
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    let refused = |said: &str| {
        let error = operator.refuses(&operator.serve(&[]));
        assert!(error.contains(said), "{error}");
        assert!(
            error.contains("kek.key") || error.contains("data: "),
            "{error}"
        );
    };
    fs::remove_file(&path).unwrap();
    refused("does not exist, but the key store does");
    write(&good, 0o644);
    refused("can be read by others (mode 644): run `chmod 600");
    write(&good, 0o620);
    refused("can be read by others (mode 620)");
    write(&good[..31], 0o600);
    refused("has 31 bytes: exactly 32 are expected");
    write(&[7; 32], 0o600);
    refused("not the one this key store was sealed with");
    write(&good, 0o600);
    let error = operator.refuses(&operator.serve(&["store.passphrase=guess"]));
    assert!(error.contains("not the one this key store"), "{error}");
    assert!(!error.contains("guess"), "{error}");
    operator.start(&[]).works_with(&signed);
}

#[test]
fn settings_that_are_unknown_or_wrong_and_bad_arguments_are_refused() {
    let operator = Operator::new("settings");
    fs::write(operator.path("unknown.toml"), "signers = 2\nsigner = 3\n").unwrap();
    let with_file = |name: &str| {
        let mut command = operator.serve(&[]);
        command.args(["--config", name]);
        command
    };
    let mut variable = operator.serve(&[]);
    variable.env("RON_KMS_NOSUCH", "1");
    let public = operator.serve(&["bind=0.0.0.0:0"]);
    for (command, said) in [
        (operator.serve(&["nosuch=1"]), "`nosuch`: unknown key"),
        (
            operator.serve(&["audit.nosuch=1"]),
            "`audit.nosuch`: unknown key",
        ),
        (with_file("unknown.toml"), "unknown.toml:2: `signer`"),
        (with_file("nofile.toml"), "nofile.toml: "),
        (variable, "RON_KMS_NOSUCH"),
        (operator.serve(&["signers=0"]), "`signers` = 0: "),
        (operator.serve(&["backend=tpm"]), "`backend` = "),
        (operator.serve(&["backend=pkcs11"]), "`pkcs11.module`"),
        (public, "`auth.mode`"),
        (
            operator.command(&["audit", "verify", "nowhere"]),
            "nowhere: no such directory",
        ),
        (
            operator.command(&["audit", "verify", ".", "--key", "a+b+c"]),
            "--key: not a verifier key",
        ),
    ] {
        let error = operator.refuses(&command);
        assert!(error.contains(said), "{said}: {error}");
    }
    for args in [
        &["audit", "verify"][..],
        &["audit", "verify", "a", "b"],
        &["audit", "verify", ".", "--key"],
        &["audit", "nosuch"],
        &["serve", "--nosuch"],
        &["rekey", "--new-key-file", "a", "--new-passphrase-env", "B"],
    ] {
        let out = ends(&operator.command(args));
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.starts_with("error: "), "{error}");
    }
    assert!(!operator.path("data").exists(), "nothing was made");
}

#[test]
fn a_rekeyed_store_opens_with_the_new_key_file_or_passphrase_only() {
    let operator = Operator::new("rekey");
    let signed = operator.with_key(&[]);
    let rekey = |settings: &[&str], args: &[&str]| {
        let mut command = operator.command(&["rekey", "--set", "data_dir=data"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        command
            .args(args)
            .env("NEW_PASS", "correct horse")
            .env("NO_PASS", "");
        command
    };
    for (args, said) in [
        (&[][..], "--new-key-file FILE or --new-passphrase-env"),
        (
            &["--new-passphrase-env", "NO_PASS"],
            "NO_PASS is empty or not set",
        ),
        (
            &["--new-passphrase-env", "UNSET_PASS"],
            "UNSET_PASS is empty",
        ),
    ] {
        let error = operator.refuses(&rekey(&[], args));
        assert!(error.contains(said), "{error}");
    }
    // From what opens it now to what does afterwards.
    let (first, second) = ("store.key_file=kek.key", "store.key_file=new.key");
    let passphrase = "store.passphrase=correct horse";
    let third = "store.key_file=third.key";
    for (old, args, new) in [
        (first, &["--new-key-file", "new.key"][..], second),
        (second, &["--new-passphrase-env", "NEW_PASS"], passphrase),
        (
            passphrase,
            &["--new-key-file", "third.key", "--keep-kek"],
            third,
        ),
    ] {
        let done = ends(&rekey(&[old], args));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("opens with the new key only"), "{text}");
        let error = operator.refuses(&operator.serve(&[old]));
        assert!(
            error.contains("not the one this key store was sealed with"),
            "{error}"
        );
        let error = operator.refuses(&rekey(&[old], args));
        assert!(
            error.contains("not the one this key store was sealed with"),
            "{error}"
        );
        operator.start(&[new]).works_with(&signed);
    }
    let error = operator.refuses(&operator.serve(&["store.passphrase=correct hors"]));
    assert!(
        error.contains("not the one this key store was sealed with"),
        "{error}"
    );
}

// The lines are given to a shell as they are printed.
#[test]
fn the_first_start_says_where_it_is_and_its_curl_lines_work_as_printed() {
    let operator = Operator::new("greeting");
    let mut kms = operator.start(&[]);
    let last = kms.0.read_until(|line| line.contains("receipt verify"));
    assert!(last.is_some(), "{:?}", kms.0.printed);
    let printed = kms.0.printed.clone();
    let data = fs::canonicalize(operator.path("data")).unwrap();
    assert!(printed[0].ends_with(&format!(" listens on http://{}", kms.0.addr)));
    let named = format!("data     {} (0 keys)", data.display());
    assert!(printed.contains(&named), "{printed:?}");
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        let place = ron_kms().parent().unwrap().display();
        shell.env("PATH", format!("{place}:/usr/bin:/bin"));
        shell.current_dir(operator.scratch.path());
        shell.args(["-e", "-c", script]);
        let out = ends(&shell);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    // Right after the start: what is printed holds when it is typed, and no record is passed over in silence.
    let line = printed.iter().find(|line| line.contains("check it with: "));
    let (audit, verify) = line.unwrap().split_once("check it with: ").unwrap();
    assert!(audit.starts_with("audit    1 records, "), "{audit}");
    let text = shell(verify);
    assert!(text.starts_with("verified   localhost/ron-kms\n"), "{text}");

    let begin = printed.iter().position(|line| line.starts_with("try "));
    let script: Vec<&str> = printed[begin.unwrap()..]
        .iter()
        .map(|line| &line[4..])
        .collect();
    let text = shell(&script.join("\n"));
    let (signed, proven) = text.split_once('\n').unwrap();
    let signed: Value = serde_json::from_str(signed).unwrap();
    let kid = signed["kid"].as_str().unwrap().split('#').next().unwrap();
    let sigs = signed["sigs"].clone();
    assert!(proven.contains("verified"), "{proven}");
    kms.works_with(&Signed {
        kid: kid.to_owned(),
        sigs,
    });
    let text = shell(verify);
    assert!(text.contains("operations 3\n"), "{text}");

    let again = operator.start(&[]);
    let shown = again.ask("GET", "/v1/kms/keys", &Value::Null);
    assert_eq!(shown.1["keys"].as_array().unwrap().len(), 1);
    let farewell = again.0.stop();
    let named = format!("data     {} (1 keys)", data.display());
    assert!(farewell.printed.contains(&named), "{farewell:?}");
}

// proves: KMS-6.4, KMS-6.6
#[test]
fn sigterm_finishes_what_was_accepted_refuses_what_comes_and_says_so() {
    const BATCHES: usize = 10;
    let operator = Operator::new("drain");
    let kms = operator.start(&[
        "signers=1",
        "deadline.sign_ms=60000",
        "drain_deadline_ms=60000",
        "ingress.timeout_secs=60",
    ]);
    let kid = kms.key("rsa-pss-3072");
    let batch = json!({ "kid": kid, "messages": vec![json!({ "message": MESSAGE }); 256] });
    std::thread::scope(|scope| {
        let send = || kms.post("/sign", &batch);
        let sent: Vec<_> = (0..BATCHES).map(|_| scope.spawn(send)).collect();
        // Each takes its time: once a few are recorded, many are under way.
        let ended = || {
            let ok = "kms_operations_total{action=\"sign\",code=\"ok\"}";
            metric(&metrics(&kms).1, ok)
        };
        let begun = (0..100_000).map(|_| ended()).find(|ended| *ended >= 1.0);
        assert!(begun.is_some());
        kms.0.terminate();
        let list = |_| call(kms.0.addr, "GET", "/v1/kms/keys", "").unwrap();
        let mut answers = (0..10_000).map(list);
        let refused = answers.find(|answer| answer.status != 200).unwrap();
        assert_eq!(refused.status, 503);
        assert!(
            refused.body.contains("\"code\":\"draining\""),
            "{refused:?}"
        );
        let head = refused.head.to_lowercase();
        assert!(head.contains("\r\nretry-after: "), "{head}");
        for answer in sent {
            let (status, answer) = answer.join().unwrap();
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["results"].as_array().unwrap().len(), 256);
        }
    });
    let farewell = kms.0.wait();
    assert_eq!(farewell.code, Some(0), "{farewell:?}");
    let last = farewell.printed.last().unwrap();
    let rest = last.strip_prefix("stopped  ").unwrap();
    let (drained, rest) = rest
        .split_once(" operations finished while draining, 0 tasks aborted; ")
        .unwrap();
    let drained: usize = drained.parse().unwrap();
    assert!((1..BATCHES).contains(&drained), "{last}");
    let (records, rest) = rest.split_once(" audit records, ").unwrap();
    assert_eq!(rest, format!("{records} under the last checkpoint"));
    let verified = ends(&operator.command(&["audit", "verify", "data", "--json"]));
    let summary: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(summary["operations"], 1 + BATCHES);
    assert_eq!((&summary["open"], &summary["lost"]), (&json!(0), &json!(0)));
}

#[test]
fn a_key_store_that_was_deleted_is_told_as_what_it_is() {
    let operator = Operator::new("deleted-store");
    operator.with_key(&[]);
    fs::remove_file(operator.path("data/keys.redb")).unwrap();
    let error = operator.refuses(&operator.serve(&[]));
    assert!(error.contains("keys.redb is gone"), "{error}");
    assert!(error.contains("from a backup"), "{error}");
}

#[test]
fn after_a_kill_it_says_what_is_known_and_what_is_only_bounded() {
    let operator = Operator::new("unclean");
    let kms = operator.start(&["audit.queue_cap=8", "audit.batch_max=4"]);
    let kid = kms.key("ed25519");
    kms.sign(&kid);
    kms.0.kill();
    let mut again = operator.start(&["audit.queue_cap=8", "audit.batch_max=4"]);
    let note = again.0.read_until(|line| line.starts_with("note "));
    let note = note.expect("the end was unclean");
    assert!(note.contains("records are there"), "{note}");
    assert!(note.contains("at most 12 operations"), "{note}");
    assert_eq!(again.0.stop().code, Some(0));
    let strict = operator.start(&["audit.policy=strict"]);
    kms_key_and_kill(strict);
    let mut again = operator.start(&["audit.policy=strict"]);
    let last = again.0.read_until(|line| line.contains("receipt verify"));
    assert!(last.is_some());
    let frightens = again.0.printed.iter().any(|line| line.contains("at most"));
    assert!(!frightens, "{:?}", again.0.printed);
}

fn kms_key_and_kill(kms: Kms) {
    let kid = kms.key("ed25519");
    kms.sign(&kid);
    kms.0.kill();
}

/// The log cannot grow beyond the file size that the shell allows: as on a full disk, but for this file alone.
#[test]
fn on_a_full_disk_so_many_operations_go_without_a_record_and_then_none() {
    let operator = Operator::new("full-disk");
    let plain = operator.serve(&[
        "audit.shed_max_ops=20",
        "audit.disk_reserve_bytes=65536",
        "audit.batch_max=64",
        "audit.queue_cap=256",
    ]);
    let mut limited = Command::new("bash");
    limited.current_dir(operator.scratch.path());
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "bash"]);
    limited.arg(plain.get_program()).args(plain.get_args());
    let kms =
        Kms(Daemon::start(limited, &operator.path("errors")).unwrap_or_else(|f| panic!("{f:?}")));
    let kid = kms.key("ed25519");
    let signed = kms.sign(&kid);
    let sign = |_| kms.post("/sign", &json!({ "kid": kid, "message": MESSAGE }));
    let refused = (0..40_000).map(sign).find(|(status, _)| *status != 200);
    let (status, problem) = refused.expect("it signs without a record for ever");
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("audit_unavailable")),
        "{problem}"
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("without a record"), "{detail}");
    // One batch was under way when the first was lost, and the appender may hold another.
    let dropped = metric(&metrics(&kms).1, "audit_dropped_total ");
    assert!((20.0..=340.0).contains(&dropped), "{dropped}");
    kms.assert_verifies(&signed);
    kms.0.kill();
}

// proves: KMS-2.9
#[test]
fn a_log_deleted_or_replaced_under_the_service_stops_signing_and_not_verifying() {
    for (name, change) in [
        ("deleted", delete as fn(&Path)),
        ("replaced", replace),
        ("made-anew", make_anew),
    ] {
        let operator = Operator::new(name);
        let kms = operator.start(&[]);
        let signed = kms.sign(&kms.key("ed25519"));
        let log = operator.path("data/audit/log");
        let saved = fs::read(&log).unwrap();
        change(&log);
        // It is noticed by the next append; under `shed` an answer may be ahead of that.
        let mut tries = (0..10_000).map(|_| kms.try_sign(&signed.kid));
        let (status, problem) = tries.find(|(status, _)| *status != 200).unwrap();
        assert_eq!(
            (status, &problem["code"]),
            (503, &json!("audit_integrity")),
            "{name}"
        );
        assert_eq!(problem["retryable"], false);
        kms.assert_verifies(&signed);
        let (status, ready) = kms.ask("GET", "/readyz", &Value::Null);
        assert_eq!((status, &ready["ready"]), (503, &json!(false)), "{name}");
        assert!(
            ready["missing"][0]["reason"]
                .as_str()
                .unwrap()
                .contains("the file of records")
        );
        assert_eq!(kms.ask("GET", "/healthz", &Value::Null).0, 200, "{name}");
        assert!(metric(&metrics(&kms).1, "kms_audit_integrity_failed_total") >= 1.0);
        // It stays so, though the same bytes are there again.
        fs::write(&log, &saved).unwrap();
        assert_eq!(kms.try_sign(&signed.kid).1["code"], "audit_integrity");
        kms.0.stop();

        fs::remove_file(&log).unwrap();
        let mut kms = operator.start(&[]);
        let warning = kms
            .0
            .read_until(|line| line.starts_with("WARNING") || line.starts_with("try"));
        assert!(
            warning.unwrap().starts_with("WARNING  no key is used: "),
            "{name}"
        );
        let (status, problem) = kms.try_sign(&signed.kid);
        assert_eq!(
            (status, &problem["code"]),
            (503, &json!("audit_integrity")),
            "{name}"
        );
        kms.assert_verifies(&signed);
        assert_eq!(kms.ask("GET", "/readyz", &Value::Null).0, 503);
    }
}

fn delete(log: &Path) {
    fs::remove_file(log).unwrap();
}

/// By a copy of itself, which is another file.
fn replace(log: &Path) {
    let copy = log.with_extension("copy");
    fs::copy(log, &copy).unwrap();
    fs::rename(&copy, log).unwrap();
}

fn make_anew(log: &Path) {
    fs::remove_file(log).unwrap();
    fs::write(log, b"").unwrap();
}

#[test]
fn a_damaged_or_cut_store_is_one_line_with_its_remedy_and_never_a_panic() {
    let operator = Operator::new("damaged");
    let signed = operator.with_key(&[]);
    let store = operator.path("data/keys.redb");
    let sound = fs::read(&store).unwrap();
    let mut noticed = 0;
    // Where the header says how the file is laid out, and a bit in every other page.
    let places = [0, 9, 10, 12, 17, 20, 24, 30, 66, 80, 130, 200, 300].into_iter();
    for at in places.chain((4100..sound.len()).step_by(8192 + 331)) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&store, &bytes).unwrap();
        let started = Daemon::start(operator.serve(&[]), &operator.path("errors"));
        match started {
            // A page that nobody needs any more, or a flag of no consequence: then everything is there.
            Ok(daemon) => drop(Kms(daemon).works_with(&signed)),
            Err(Farewell { code, logged, .. }) => {
                noticed += 1;
                assert_eq!(code, Some(2), "byte {at}: {logged}");
                let errors: Vec<&str> = logged.lines().filter(|l| l.contains("rror")).collect();
                assert_eq!(errors.len(), 1, "byte {at}: {logged}");
                assert!(errors[0].contains("backup of keys.redb"), "{logged}");
                assert!(!logged.contains("panicked"), "byte {at}: {logged}");
            }
        }
    }
    assert!(noticed > 3, "{noticed}");
    for len in [0, 1, 4096, sound.len() / 2, sound.len() - 1] {
        fs::write(&store, &sound[..len]).unwrap();
        let said = operator.refuses(&operator.serve(&[]));
        assert!(said.contains("the key store is damaged: "), "{len}: {said}");
        assert!(said.contains("put a backup of keys.redb"), "{len}: {said}");
    }
    fs::write(&store, &sound).unwrap();
    operator.start(&[]).works_with(&signed);
}

#[test]
fn files_are_their_owners_alone_and_a_wider_directory_is_told_once() {
    let operator = Operator::new("modes");
    let signed = operator.with_key(&[]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut dirs = vec![operator.path("data")];
    while let Some(dir) = dirs.pop() {
        assert_eq!(mode(&dir), 0o700, "{}", dir.display());
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => assert_eq!(mode(&path), 0o600, "{}", path.display()),
            }
        }
    }
    let data = operator.path("data");
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    let farewell = operator.start(&[]).works_with(&signed);
    let told = farewell
        .logged
        .lines()
        .filter(|l| l.contains("chmod -R go="));
    assert_eq!(told.count(), 1, "{}", farewell.logged);
    assert_eq!(mode(&data), 0o755, "left as its owner made it");
}

#[test]
fn keys_txt_and_the_reserve_are_missed_and_made_again() {
    let operator = Operator::new("missing");
    let signed = operator.with_key(&[]);
    for (name, said) in [("keys.txt", "written anew"), ("reserve", "set aside again")] {
        let path = operator.path("data/audit").join(name);
        let before = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let farewell = operator.start(&[]).works_with(&signed);
        let lines = farewell.logged.lines();
        let told: Vec<&str> = lines
            .filter(|l| l.contains(&format!("audit/{name}")))
            .collect();
        assert_eq!(told.len(), 1, "{}", farewell.logged);
        assert!(told[0].contains(said), "{}", told[0]);
        assert!(fs::read(&path).unwrap() == before, "{name}");
    }
}

#[test]
fn the_data_of_the_first_version_is_taken_over() {
    let operator = Operator::new("v1");
    let old = xtask::tree::root().join("services/ron-kms/tests/data/v1");
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        fs::create_dir_all(operator.path("data").join(&dir)).unwrap();
        for entry in fs::read_dir(old.join(&dir)).unwrap() {
            let name = dir.join(entry.unwrap().file_name());
            match old.join(&name).is_dir() {
                true => dirs.push(name),
                false => drop(fs::copy(old.join(&name), operator.path("data").join(&name))),
            }
        }
    }
    let key = Permissions::from_mode(0o600);
    fs::set_permissions(operator.path("data/kek.key"), key).unwrap();
    let kms = operator.start(&[]);
    kms.assert_verifies(&kms.sign("7rUPwWQD56nMWNBWccVbrw"));
    assert_eq!(kms.0.stop().code, Some(0));
    let verified = ends(&operator.command(&["audit", "verify", "data/audit"]));
    assert!(verified.status.success(), "{verified:?}");
}
