//! The servers under load, each a process: ron-kms as built for release, and a handler that does nothing.
//!
//! The handler reads the same JSON and writes an answer of the same form, on plain axum; another one also signs.
//! CPU time is the system's account of the whole process, idle tasks included.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::signature::Ed25519KeyPair;
use axum::{Json, Router, extract::State, routing::post};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::load::{self, Clients, Round, Waiting};

/// The argument that makes this program the handler.
pub const NOOP: &str = "--serve-noop";
/// And the one for a handler that does nothing but sign.
pub const SIGNING: &str = "--serve-raw-sign";

pub struct Server {
    name: &'static str,
    child: Child,
    pub addr: SocketAddr,
    data: Option<PathBuf>,
    /// As of the end of the last round: what it did since counts for the next one.
    cpu: Duration,
}

/// Builds the release binary beside this one.
pub fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "ron-kms"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cargo build");
}

impl Server {
    /// `how` is [`NOOP`] or [`SIGNING`].
    pub fn handler(how: &'static str) -> Server {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(how);
        Server::start(how, command, None)
    }

    /// With these settings, in a directory of its own.
    pub fn kms(name: &'static str, settings: &[String]) -> Server {
        let own = std::env::current_exe().expect("this program");
        let binary = own.ancestors().nth(2).expect("a target directory");
        let mut command = Command::new(binary.join("ron-kms"));
        let dir = format!("ron-kms-bench-{}-{}", std::process::id(), name.len());
        let data = std::env::temp_dir().join(dir);
        command.args(["serve", "--log", "warn", "--set", "bind=127.0.0.1:0"]);
        command.arg("--set");
        command.arg(format!("data_dir={}", data.display()));
        for setting in settings {
            command.args(["--set", setting]);
        }
        Server::start(name, command, Some(data))
    }

    fn start(name: &'static str, mut command: Command, data: Option<PathBuf>) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server process");
        let stdout = child.stdout.take().expect("its output");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let addr = lines.find_map(|line| line.split("http://").nth(1)?.trim().parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("{name} does not say where it listens"));
        std::thread::spawn(move || lines.for_each(drop));
        let cpu = process_cpu(child.id());
        Server {
            name,
            child,
            addr,
            data,
            cpu,
        }
    }

    pub fn round(
        &mut self,
        clients: &Clients,
        waiting: Waiting,
        request: &[u8],
        conns: usize,
        time: Duration,
    ) -> Round {
        let mut round = clients.press(waiting, self.addr, request, conns, time);
        let cpu = process_cpu(self.child.id());
        round.server_cpu = cpu - self.cpu;
        self.cpu = cpu;
        round
    }

    /// A new Ed25519 key; waits until the caller is let in.
    pub fn make_key(&self, clients: &Clients, header: &str) -> String {
        let body = r#"{"purpose":"bench","alg":"ed25519"}"#;
        let request = load::request("/v1/kms/keys", header, body);
        let mut last = String::new();
        for _ in 0..100 {
            let (status, body) = clients.ask(self.addr, &request);
            if (200..300).contains(&status) {
                let key: serde_json::Value = serde_json::from_str(&body).expect("a key");
                let kid = key["kid"].as_str().expect("its id");
                return kid.split('#').next().unwrap_or(kid).to_owned();
            }
            last = body;
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{} makes no key: {last}", self.name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(data) = &self.data {
            let _ = fs::remove_dir_all(data);
        }
    }
}

/// User and system time of a process and of all its threads that ever were.
pub fn process_cpu(pid: u32) -> Duration {
    const TICKS_PER_S: f64 = 100.0;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
    let (_, after_name) = text.rsplit_once(") ").expect("a name in brackets");
    let ticks: f64 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().expect("a number"))
        .sum();
    Duration::from_secs_f64(ticks / TICKS_PER_S)
}

/// What the calling thread ran, by the scheduler's own account.
pub fn thread_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("a running thread");
    let ran = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ran.expect("a number"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    kid: String,
    message: String,
}

#[derive(Serialize)]
struct Answer {
    kid: String,
    alg: &'static str,
    sigs: [Sig; 1],
    receipt: Receipt,
}

#[derive(Serialize)]
struct Sig {
    alg: &'static str,
    sig: String,
}

#[derive(Serialize)]
struct Receipt {
    seq: u64,
}

async fn answer(Json(ask): Json<Ask>) -> Json<Answer> {
    // As long as an Ed25519 signature in base64.
    let sig = ask.message.repeat(2);
    told(ask.kid, sig)
}

async fn answer_signed(
    State(pair): State<Arc<Ed25519KeyPair>>,
    Json(ask): Json<Ask>,
) -> Json<Answer> {
    let sig = pair.sign(ask.message.as_bytes());
    told(ask.kid, URL_SAFE_NO_PAD.encode(sig))
}

fn told(kid: String, sig: String) -> Json<Answer> {
    Json(Answer {
        kid,
        alg: "ed25519",
        sigs: [Sig {
            alg: "ed25519",
            sig,
        }],
        receipt: Receipt { seq: 123_456 },
    })
}

/// Serves a handler until it is killed.
pub fn serve(signs: bool) -> ExitCode {
    use axum::serve::ListenerExt;
    let handler = match signs {
        false => post(answer),
        true => {
            let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
            post(answer_signed).with_state(Arc::new(pair))
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let addr = listener.local_addr().expect("an address");
        println!("no-op listens on http://{addr}");
        // As ron-kms: without Nagle's delay.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let app = Router::new().route("/v1/kms/sign", handler);
        axum::serve(listener, app).await.expect("a server");
    });
    ExitCode::SUCCESS
}
