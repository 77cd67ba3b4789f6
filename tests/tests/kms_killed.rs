//! A long audit log, written by the real binary under load and killed again and again, judged by code that
//! was not written here.
//!
//! The load is plain signatures under the policy `shed`, each its own entry. Whatever was answered must be in
//! the log, or in what the log admits.
#![allow(
    clippy::disallowed_methods,
    reason = "starts, loads and kills a real process, and measures it"
)]

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{Error, Result},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{ED25519, UnparsedPublicKey},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ron_kms::audit::{
    frames,
    record::{Event, Outcome},
    tiles::{Kind, Tile},
};
use serde_json::{Value, json};
use tests::{
    daemon::{Daemon, Scratch, call, ends, ron_kms},
    third_party::{CHECKERS, CRATES, GO, PYTHON, Verdict, check_prefixes},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::Notify,
};

const ENTRIES: u64 = 100_000;
const KILLS: u64 = 10;
const CONNECTIONS: u64 = 96;
/// One in so many signatures is verified.
const SAMPLE: u64 = 100;

// proves: KMS-2.4, KMS-6.6
#[test]
fn a_log_of_100_000_entries_killed_ten_times_is_verified_by_code_not_written_here() {
    let run = Run::new();
    let began = Instant::now();
    let mut load = run.create_key();
    for kill in 1..=KILLS {
        // In every other life numbers run short all the time: the bound of what may be missing is a tight one.
        let daemon = run.start([8_192, 256][kill as usize % 2]);
        load.run(daemon.addr, Until::Answered(ENTRIES * kill / (KILLS + 1)));
        // Requests are on their way on every connection.
        daemon.kill();
        load.join();
    }
    let daemon = run.start(8_192);
    load.run(daemon.addr, Until::Covered(ENTRIES));
    let farewell = daemon.stop();
    load.join();
    let took = began.elapsed();
    assert_eq!(farewell.code, Some(0), "{}", farewell.logged);

    let account = Account::read(&run.audit().join("log"));
    let size = account.records;
    assert!(size >= ENTRIES, "{size}");
    let last = farewell.printed.last().unwrap();
    let covered = format!("; {size} audit records, {size} under the last checkpoint");
    assert!(last.ends_with(&covered), "{last}");
    let missing = account.accounts_for(&load.answered);
    assert_eq!(account.restart_gaps.len() as u64, KILLS);
    load.verify_sample();

    let mut table = vec![
        ("entries".to_owned(), size.to_string()),
        ("kills".to_owned(), KILLS.to_string()),
        (
            "signatures answered".into(),
            load.answered.len().to_string(),
        ),
        ("refused under load".into(), format!("{:?}", load.refused)),
        ("answered without a record".into(), missing.to_string()),
        (
            "told lost in gap records".into(),
            account.lost().to_string(),
        ),
        (
            format!("admitted in {} restart gaps", account.restart_gaps.len()),
            account.admitted().to_string(),
        ),
        (
            "checkpoints saved".into(),
            load.checkpoints.len().to_string(),
        ),
        (
            "signatures/s, restarts included".into(),
            format!("{:.0}", load.answered.len() as f64 / took.as_secs_f64()),
        ),
        ("load".into(), seconds(took)),
    ];
    table.extend(run.judge(&load, &account));
    for (what, value) in table {
        println!("{what:<40} {value}");
    }
    run.flips(size, load.older());
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

// ------------------------------------------------------------------------------------- the service

struct Run {
    scratch: Scratch,
}

impl Run {
    fn new() -> Run {
        Run {
            scratch: Scratch::new("kms-killed"),
        }
    }

    fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn audit(&self) -> PathBuf {
        self.data().join("audit")
    }

    /// With so many numbers reserved at a time.
    fn start(&self, reserve: u64) -> Daemon {
        let mut command = Command::new(ron_kms());
        command.args(["serve", "--log", "warn", "--set", "bind=127.0.0.1:0"]);
        let data = format!("data_dir={}", self.data().display());
        command.args(["--set", &data]);
        command.args(["--set", &format!("audit.reserve_ops={reserve}")]);
        let started = Daemon::start(command, &self.scratch.path().join("errors"));
        started.unwrap_or_else(|farewell| panic!("{farewell:?}"))
    }

    /// The key that all the load uses; the service stops in order.
    fn create_key(&self) -> Load {
        let daemon = self.start(8_192);
        let ask = |method: &str, path: &str, body: &Value| {
            let path = format!("/v1/kms{path}");
            let answer = call(daemon.addr, method, &path, &body.to_string()).unwrap();
            serde_json::from_str::<Value>(&answer.body).unwrap()
        };
        let made = ask(
            "POST",
            "/keys",
            &json!({ "purpose": "load", "alg": "ed25519" }),
        );
        let kid = made["kid"].as_str().unwrap().to_owned();
        let version = ask("GET", &format!("/keys/{kid}/versions/1"), &json!({}));
        let public = version["public"]["raw"].as_str().unwrap();
        let public = URL_SAFE_NO_PAD.decode(public).unwrap();
        assert_eq!(daemon.stop().code, Some(0));
        Load::new(kid, public)
    }

    fn keys(&self) -> String {
        fs::read_to_string(self.audit().join("keys.txt")).unwrap()
    }

    /// Every checker accepts the log and the older checkpoints; the time of each.
    fn judge(&self, load: &Load, account: &Account) -> Vec<(String, String)> {
        let (dir, keys, older) = (self.audit(), self.keys(), load.older());
        let mut table = Vec::new();
        let mut timed = |name: &str, check: &dyn Fn() -> Verdict| {
            let began = Instant::now();
            assert_eq!(check(), Ok(()), "{name}");
            table.push((name.to_owned(), seconds(began.elapsed())));
        };
        for (name, checker) in CHECKERS {
            timed(name, &|| checker(&dir, &keys, Some(older)));
        }
        let all = || load.checkpoints.values().map(Vec::as_slice);
        timed("every checkpoint saved is a prefix", &|| {
            check_prefixes(&dir, &keys, all())
        });
        timed("ron-kms audit verify", &|| {
            let summary = self.own_verdict()?;
            let told = |name: &str| summary[name].as_u64().unwrap();
            assert_eq!(summary["own_keys"], false);
            assert_eq!(told("size"), account.records);
            assert_eq!(told("restart_gaps"), KILLS);
            assert_eq!(told("missing_at_most"), account.admitted());
            assert_eq!(told("lost"), account.lost());
            for nothing in ["open", "beyond_checkpoint", "torn_bytes"] {
                assert_eq!(told(nothing), 0, "{nothing}");
            }
            Ok(())
        });
        table
    }

    fn own_verdict(&self) -> std::result::Result<Value, String> {
        let mut command = Command::new(ron_kms());
        command.args(["audit", "verify", "--json"]).arg(self.data());
        command.arg("--key").arg(self.audit().join("keys.txt"));
        let out = ends(&command);
        match out.status.code() {
            Some(0) => Ok(serde_json::from_slice(&out.stdout).unwrap()),
            Some(1) => Err(String::from_utf8(out.stderr).unwrap()),
            _ => panic!("{out:?}"),
        }
    }

    /// One byte anywhere is caught by everybody who can see it.
    fn flips(&self, size: u64, older: &[u8]) {
        let path = |kind, at| Tile::holding(kind, at, size).unwrap().path();
        let note = fs::read_to_string(self.audit().join("checkpoint")).unwrap();
        let lines: Vec<usize> = note.match_indices('\u{2014}').map(|(at, _)| at).collect();
        assert_eq!(lines.len(), 2);
        // Behind the name, in the middle of the base64.
        let origin = note.lines().next().unwrap().len();
        let signature = |line: usize| lines[line] + '\u{2014}'.len_utf8() + 1 + origin + 1 + 40;
        let everybody = &[CRATES, GO, PYTHON, OURS][..];
        let bundle = path(Kind::Entries, size / 2);
        let tile = path(Kind::Hashes { level: 0 }, size / 3);
        let middle = |file: &str| fs::read(self.audit().join(file)).unwrap().len() / 2;
        for (file, at, who) in [
            (bundle.as_str(), middle(&bundle), everybody),
            (&tile, middle(&tile), everybody),
            ("checkpoint", signature(0), everybody),
            ("checkpoint", signature(1), &[PYTHON, OURS]),
        ] {
            let path = self.audit().join(file);
            let good = fs::read(&path).unwrap();
            let mut bad = good.clone();
            // In the checkpoint another digit, so that the text stays well-formed.
            bad[at] = match (file, bad[at]) {
                ("checkpoint", b'5') => b'6',
                ("checkpoint", _) => b'5',
                (_, byte) => byte ^ 1,
            };
            fs::write(&path, &bad).unwrap();
            assert_eq!(self.refusers(older), who, "{file} at {at}");
            fs::write(&path, &good).unwrap();
        }
    }

    fn refusers(&self, older: &[u8]) -> Vec<&'static str> {
        let (dir, keys) = (self.audit(), self.keys());
        std::thread::scope(|scope| {
            let asked = CHECKERS.map(|(name, checker)| {
                let (dir, keys) = (&dir, &keys);
                (name, scope.spawn(move || checker(dir, keys, Some(older))))
            });
            let ours = self.own_verdict();
            let theirs = asked
                .into_iter()
                .map(|(name, check)| (name, check.join().unwrap()));
            let mut refusers: Vec<&str> = theirs.filter(|v| v.1.is_err()).map(|v| v.0).collect();
            refusers.extend(ours.is_err().then_some(OURS));
            refusers
        })
    }
}

const OURS: &str = "ron-kms";

// ---------------------------------------------------------------------------------------- the load

/// When the load has done enough.
#[derive(Clone, Copy)]
enum Until {
    /// So many signatures were answered, in all lives together.
    Answered(u64),
    /// A published checkpoint covers so many entries.
    Covered(u64),
}

struct Load {
    runtime: Runtime,
    shared: Arc<Shared>,
    public: Vec<u8>,
    connections: Vec<tokio::task::JoinHandle<Seen>>,
    answered: Vec<Answered>,
    refused: BTreeMap<String, u64>,
    /// By the number of entries.
    checkpoints: BTreeMap<u64, Vec<u8>>,
}

struct Shared {
    kid: String,
    next_message: AtomicU64,
    answered: AtomicU64,
    enough: Notify,
}

/// A signature that reached the caller.
struct Answered {
    seq: u64,
    message: u64,
    signature: Option<Vec<u8>>,
}

/// What one connection saw until it broke.
#[derive(Default)]
struct Seen {
    answered: Vec<Answered>,
    refused: BTreeMap<String, u64>,
    checkpoints: Vec<Vec<u8>>,
}

impl Load {
    fn new(kid: String, public: Vec<u8>) -> Load {
        let mut runtime = Builder::new_multi_thread();
        Load {
            runtime: runtime.worker_threads(1).enable_all().build().unwrap(),
            shared: Arc::new(Shared {
                kid,
                next_message: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                enough: Notify::new(),
            }),
            public,
            connections: Vec::new(),
            answered: Vec::new(),
            refused: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
        }
    }

    /// Loads the service and goes on doing so: ends at the very moment that enough is done.
    fn run(&mut self, addr: SocketAddr, until: Until) {
        for number in 0..CONNECTIONS {
            let shared = self.shared.clone();
            let connection = async move {
                let mut seen = Seen::default();
                // It ends by an error: the service is killed, or closes.
                let _ = drive(addr, &shared, number == 0, until, &mut seen).await;
                seen
            };
            self.connections.push(self.runtime.spawn(connection));
        }
        let limit = Duration::from_secs(300);
        let enough = async { tokio::time::timeout(limit, self.shared.enough.notified()).await };
        self.runtime.block_on(enough).expect("too slow");
    }

    fn join(&mut self) {
        for connection in std::mem::take(&mut self.connections) {
            let seen = self.runtime.block_on(connection).unwrap();
            self.answered.extend(seen.answered);
            for (code, count) in seen.refused {
                *self.refused.entry(code).or_default() += count;
            }
            for note in seen.checkpoints {
                let known = self
                    .checkpoints
                    .entry(size_of(&note))
                    .or_insert(note.clone());
                let head = |note: &[u8]| {
                    note.split(|b| *b == b'\n')
                        .take(3)
                        .map(<[u8]>::to_vec)
                        .collect::<Vec<_>>()
                };
                assert_eq!(head(known), head(&note), "two roots for one size");
            }
        }
    }

    /// The first checkpoint that somebody saw.
    fn older(&self) -> &[u8] {
        self.checkpoints.values().next().unwrap()
    }

    fn verify_sample(&self) {
        let key = UnparsedPublicKey::new(&ED25519, &self.public);
        let sampled = self.answered.iter().filter_map(|answered| {
            let signature = answered.signature.as_ref()?;
            Some(key.verify(&answered.message.to_be_bytes(), signature))
        });
        let verdicts: Vec<_> = sampled.collect();
        assert!(verdicts.len() as u64 >= ENTRIES / SAMPLE / 2);
        assert!(verdicts.iter().all(|verdict| verdict.is_ok()));
    }
}

fn size_of(note: &[u8]) -> u64 {
    let line = note.split(|byte| *byte == b'\n').nth(1);
    let line = std::str::from_utf8(line.unwrap()).unwrap();
    line.parse().unwrap()
}

async fn drive(
    addr: SocketAddr,
    shared: &Shared,
    watches: bool,
    until: Until,
    seen: &mut Seen,
) -> Result<()> {
    let mut connection = Connection::open(addr).await?;
    loop {
        let message = shared.next_message.fetch_add(1, Ordering::Relaxed);
        let encoded = URL_SAFE_NO_PAD.encode(message.to_be_bytes());
        let body = format!(r#"{{"kid":"{}","message":"{encoded}"}}"#, shared.kid);
        let (status, body) = connection.ask("POST", "/v1/kms/sign", &body).await?;
        let answer: Value = serde_json::from_slice(body)?;
        if status != 200 {
            let code = answer["code"].as_str().unwrap_or("?").to_owned();
            if code == "draining" {
                return Ok(());
            }
            *seen.refused.entry(code).or_default() += 1;
            continue;
        }
        let seq = answer["receipt"]["seq"].as_u64();
        let sampled = message.is_multiple_of(SAMPLE);
        seen.answered.push(Answered {
            seq: seq.ok_or(Error::other("no number"))?,
            message,
            signature: sampled.then(|| decode(&answer["sigs"][0]["sig"])),
        });
        let count = shared.answered.fetch_add(1, Ordering::Relaxed) + 1;
        if matches!(until, Until::Answered(target) if count == target) {
            shared.enough.notify_one();
        }
        if watches && seen.answered.len().is_multiple_of(16) {
            let path = "/v1/kms/audit/checkpoint";
            let (status, note) = connection.ask("GET", path, "").await?;
            if status != 200 {
                // It drains; anything else shows by a load that never has enough.
                continue;
            }
            if matches!(until, Until::Covered(entries) if size_of(note) >= entries) {
                shared.enough.notify_one();
            }
            if seen.checkpoints.last().is_none_or(|last| last != note) {
                seen.checkpoints.push(note.to_vec());
            }
        }
    }
}

fn decode(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap()
}

/// Kept alive, one request at a time.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(addr: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Status and body.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, &[u8])> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        let (head, length) = loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Error::other("closed"));
            }
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break (end + 4, content_length(&self.buffer[..end])?);
            }
        };
        while self.buffer.len() < head + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Error::other("closed"));
            }
        }
        let status = std::str::from_utf8(&self.buffer[9..12]).ok();
        let status = status.and_then(|status| status.parse().ok());
        let status = status.ok_or(Error::other("no status"))?;
        Ok((status, &self.buffer[head..head + length]))
    }
}

fn content_length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head).map_err(Error::other)?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.parse().ok());
    length.ok_or(Error::other("no length"))
}

// ------------------------------------------------------------------------------------- the account

/// What the file of records says about the numbers of operations.
#[derive(Default)]
struct Account {
    records: u64,
    /// Digests of what was signed, by number.
    signed: HashMap<u64, [u8; 32]>,
    gaps: Vec<(u64, u64)>,
    restart_gaps: Vec<(u64, u64, u64)>,
}

impl Account {
    fn read(log: &Path) -> Account {
        let mut account = Account::default();
        let bytes = fs::read(log).unwrap();
        let scanned = frames::scan(&bytes, |framed| account.record(framed.record.event));
        account.records = scanned.unwrap().1.records;
        account
    }

    fn record(&mut self, event: Event) {
        match event {
            Event::Operation {
                seq,
                operation,
                outcome: Outcome::Done,
            } => {
                let [digest] = operation.digests[..] else {
                    panic!("a batch: {operation:?}");
                };
                assert_eq!(self.signed.insert(seq, digest), None, "{seq} twice");
            }
            Event::Gap { first, count, .. } => self.gaps.push((first, first + count)),
            Event::RestartGap {
                first,
                end,
                at_most,
            } => self.restart_gaps.push((first, end, at_most)),
            _ => {}
        }
    }

    fn lost(&self) -> u64 {
        self.gaps.iter().map(|(first, end)| end - first).sum()
    }

    fn admitted(&self) -> u64 {
        self.restart_gaps.iter().map(|(.., at_most)| at_most).sum()
    }

    /// Each answer has the record of what was signed, or is admitted to be missing; how many are missing.
    fn accounts_for(&self, answered: &[Answered]) -> usize {
        let mut missing: Vec<u64> = Vec::new();
        let mut seqs: Vec<u64> = answered.iter().map(|answered| answered.seq).collect();
        seqs.sort_unstable();
        assert!(seqs.windows(2).all(|two| two[0] != two[1]), "given twice");
        for Answered { seq, message, .. } in answered {
            match self.signed.get(seq) {
                Some(recorded) => {
                    let expected = digest(&SHA256, &message.to_be_bytes());
                    assert_eq!(
                        recorded,
                        expected.as_ref(),
                        "{seq} tells of another message"
                    );
                }
                None => missing.push(*seq),
            }
        }
        let told = |seq: &u64| self.gaps.iter().any(|gap| (gap.0..gap.1).contains(seq));
        let untold: Vec<u64> = missing.iter().copied().filter(|seq| !told(seq)).collect();
        let mut admitted = 0;
        for (first, end, at_most) in &self.restart_gaps {
            let here = untold
                .iter()
                .filter(|seq| (first..end).contains(seq))
                .count();
            assert!(
                here as u64 <= *at_most,
                "{here} missing, {at_most} admitted"
            );
            admitted += here;
        }
        assert_eq!(admitted, untold.len(), "answered, but not in the log");
        missing.len()
    }
}
