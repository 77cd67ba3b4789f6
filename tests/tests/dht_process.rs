//! svc-dht as its operator meets it: processes with data directories, ports, signals and exit codes.
//!
//! Whatever is refused at the start costs one line and exit code 2.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binary on real files"
)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;
use tests::daemon::{Daemon, Scratch, call, ends, svc_dht};

struct Operator {
    scratch: Scratch,
}

impl Operator {
    fn new(name: &str) -> Operator {
        Operator {
            scratch: Scratch::new(&format!("dht-process-{name}")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(svc_dht());
        command.current_dir(self.scratch.path()).args(args);
        command
    }

    /// All nodes of a test are neighbours.
    fn serve(&self, data: &str, args: &[&str]) -> Command {
        let mut command = self.command(&["serve"]);
        let data_dir = format!("data_dir={data}");
        for setting in [
            "bind=127.0.0.1:0",
            "api.bind=127.0.0.1:0",
            "routing.diversity=false",
            "bootstrap.retry_min_ms=20",
            "bootstrap.retry_max_ms=50",
            &data_dir,
        ] {
            let key = setting.split('=').next();
            // A key may be given once.
            if !args.iter().any(|arg| arg.split('=').next() == key) {
                command.args(["--set", setting]);
            }
        }
        command.args(args);
        command
    }

    fn start(&self, data: &str, args: &[&str]) -> Node {
        let errors = self.path(&format!("{data}.errors"));
        let daemon = Daemon::start(self.serve(data, args), &errors);
        let mut daemon = daemon.unwrap_or_else(|farewell| panic!("{farewell:?}"));
        let line = daemon.read_until(|line| line.starts_with("node "));
        let line = line.expect("it says who it is");
        let words: Vec<&str> = line.split_whitespace().collect();
        Node {
            id: words[1].to_owned(),
            addr: words[3].trim_end_matches(',').to_owned(),
            daemon,
        }
    }

    fn ask(&self, node: &Node, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.command(args);
        command.args(["--url", &format!("http://{}", node.daemon.addr)]);
        let out = ends(&command);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }

    fn refuses(&self, command: &Command, said: &str) {
        let out = ends(command);
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{command:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.starts_with("error: ") && error.contains(said),
            "{error}"
        );
        assert!(out.stdout.is_empty());
    }
}

struct Node {
    daemon: Daemon,
    id: String,
    /// Where other nodes reach it.
    addr: String,
}

impl Node {
    fn get(&self, path: &str) -> (u16, Value) {
        let answer = call(self.daemon.addr, "GET", path, "").unwrap();
        (
            answer.status,
            serde_json::from_str(&answer.body).unwrap_or(Value::Null),
        )
    }

    fn until(&self, what: &str, done: impl Fn(&Node) -> bool) {
        for _ in 0..20_000 {
            if done(self) {
                return;
            }
        }
        panic!("{} never came to {what}", self.id);
    }

    fn until_ready(&self) {
        self.until("be ready", |node| node.get("/readyz").0 == 200);
    }
}

#[test]
fn three_nodes_find_what_was_put_survive_a_kill_and_drain_at_the_signal() {
    let operator = Operator::new("three");
    let first = operator.start("one", &[]);
    let join = ["--join", first.addr.as_str()];
    let second = operator.start("two", &join);
    let third = operator.start("three", &join);
    for node in [&first, &second, &third] {
        node.until_ready();
        node.until("know the others", |node| {
            node.get("/v1/dht/routing").1["peers"] == 2
        });
    }
    let (code, out, error) = operator.ask(&second, &["put", "greeting", "hello"]);
    assert_eq!(code, Some(0), "{error}");
    let key = out
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned();
    assert!(out.contains("replicas  3"), "{out}");
    let (code, out, error) = operator.ask(&third, &["get", &key]);
    assert_eq!((code, out.as_str()), (Some(0), "hello"), "{error}");
    let (code, _, error) = operator.ask(&first, &["provide", &"ab".repeat(32)]);
    assert_eq!(code, Some(0), "{error}");

    // Killed: what it acknowledged is there again, and so are its neighbours, without a seed.
    let id = second.id.clone();
    second.daemon.kill();
    let (code, out, error) = operator.ask(&first, &["get", &key]);
    assert_eq!((code, out.as_str()), (Some(0), "hello"), "{error}");
    let again = operator.start("two", &join);
    assert_eq!(again.id, id, "the same identity");
    again.until_ready();
    let (code, out, error) = operator.ask(&again, &["get", "greeting"]);
    assert_eq!((code, out.as_str()), (Some(0), "hello"), "{error}");
    let providers = again
        .get(&format!("/v1/dht/providers/{}", "ab".repeat(32)))
        .1;
    assert_eq!(providers["providers"][0]["id"], first.id, "{providers}");

    // Told to stop, it drains, says so, and keeps its table: the next start is warm.
    let farewell = again.daemon.stop();
    assert_eq!(farewell.code, Some(0), "{farewell:?}");
    let last = farewell.printed.last().unwrap();
    assert!(
        last.starts_with("stopped ") && last.contains("0 tasks aborted"),
        "{last}"
    );
    assert!(last.contains("2 known nodes kept"), "{last}");
    let warm = operator.start("two", &[]);
    warm.until_ready();
    let (code, out, error) = operator.ask(&warm, &["get", &key]);
    assert_eq!((code, out.as_str()), (Some(0), "hello"), "{error}");
}

#[test]
fn what_is_wrong_at_the_start_costs_one_line_and_exit_code_2() {
    let operator = Operator::new("refused");
    let node = operator.start("one", &[]);
    let api = format!("api.bind={}", node.daemon.addr);
    operator.refuses(
        &operator.serve("two", &["--set", &api]),
        "the address is in use",
    );
    operator.refuses(
        &operator.serve("two", &["--set", "lookup.alpha=99"]),
        "lookup.alpha",
    );
    operator.refuses(
        &operator.serve("two", &["--set", "no.such.key=1"]),
        "no.such.key",
    );
    operator.refuses(
        &operator.serve("two", &["--join", "nowhere"]),
        "`bootstrap.seeds` = [\"nowhere\"]",
    );
    let key = operator.path("one/identity.key");
    let mode = fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(node.daemon.stop().code, Some(0));
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    operator.refuses(&operator.serve("one", &[]), "chmod 600");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, [1; 31]).unwrap();
    operator.refuses(&operator.serve("one", &[]), "exactly 32");
}

#[test]
fn a_question_that_cannot_be_answered_says_why() {
    let operator = Operator::new("asks");
    let node = operator.start("one", &[]);
    node.until_ready();
    let (code, out, error) = operator.ask(&node, &["get", &"00".repeat(32)]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        error.contains("key_not_found") && error.lines().count() == 1,
        "{error}"
    );
    let (code, _, error) = operator.ask(&node, &["provide", "nonsense"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("invalid_path"), "{error}");
    operator.refuses(&operator.serve("one", &[]), "another process uses one");
    let out = ends(&operator.command(&["get", "x", "--url", "http://127.0.0.1:1"]));
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn a_damaged_record_journal_is_one_line_or_costs_a_record_and_never_a_panic() {
    let operator = Operator::new("damaged");
    let node = operator.start("one", &[]);
    node.until_ready();
    let key = node.id.clone();
    for value in ["a", "b", "c"] {
        let (code, _, said) = operator.ask(&node, &["put", value, value]);
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(node.daemon.stop().code, Some(0));
    let journal = operator.path("one/records.journal");
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&journal), mode(&operator.path("one"))),
        (0o600, 0o700)
    );
    let sound = fs::read(&journal).unwrap();
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&journal, &bytes).unwrap();
        if at < 34 {
            operator.refuses(&operator.serve("one", &[]), "records.journal: ");
        } else if at % 3 == 0 {
            let node = operator.start("one", &[]);
            assert_eq!(node.id, key);
            assert_eq!(node.daemon.stop().code, Some(0));
        }
    }
}
