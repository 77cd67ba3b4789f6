//! The door of every service, as strangers meet it: names, origins, crowds, what is no HTTP, floods.
//!
//! Each case runs on the real binaries, all of them: what the kernel promises, no service may lose on the way.
#![allow(
    clippy::disallowed_methods,
    reason = "runs the real binaries and asks them over plain sockets"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::daemon::{Daemon, Scratch, call, ends, ron_kms, svc_dht};

/// A service: its binary, what it needs to start, and a path behind admission with the body of a request to it.
struct Kind {
    name: &'static str,
    binary: fn() -> &'static Path,
    settings: &'static [&'static str],
    api: &'static str,
    body: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "kms",
        binary: ron_kms,
        settings: &["bind=127.0.0.1:0", "data_dir=data"],
        api: "/v1/kms/keys",
        body: r#"{"algorithm":"ed25519"}"#,
    },
    Kind {
        name: "dht",
        binary: svc_dht,
        settings: &["bind=127.0.0.1:0", "api.bind=127.0.0.1:0", "data_dir=data"],
        api: "/v1/dht/lookup",
        body: "{}",
    },
];

impl Kind {
    fn command(&self, scratch: &Scratch, more: &[&str]) -> Command {
        let mut command = Command::new((self.binary)());
        command.current_dir(scratch.path()).arg("serve");
        for setting in self.settings.iter().chain(more) {
            command.args(["--set", setting]);
        }
        command
    }
}

/// Runs `case` on each service.
fn each(case: &str, settings: &[&str], check: impl Fn(&Kind, SocketAddr)) {
    for kind in &KINDS {
        let scratch = Scratch::new(&format!("door-{case}-{}", kind.name));
        let errors = scratch.path().join("errors");
        let daemon = Daemon::start(kind.command(&scratch, settings), &errors);
        let daemon = daemon.unwrap_or_else(|farewell| panic!("{farewell:?}"));
        check(kind, daemon.addr);
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).unwrap();
    stream
}

/// Status and code of what is answered to these bytes.
fn told(addr: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = connect(addr);
    stream.write_all(bytes).unwrap();
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            break (head.to_owned(), length.unwrap_or(0));
        }
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).unwrap();
        assert_ne!(n, 0, "closed after {text:?}");
        bytes.extend(&piece[..n]);
    };
    let start = head.len() + 4;
    while bytes.len() < start + length {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).unwrap();
        assert_ne!(n, 0, "closed within {head}");
        bytes.extend(&piece[..n]);
    }
    let problem: Value = serde_json::from_slice(&bytes[start..]).unwrap_or_default();
    let code = problem["code"].as_str().unwrap_or_default();
    (head[9..12].parse().unwrap(), code.to_owned())
}

fn metric(addr: SocketAddr, line: &str) -> bool {
    let page = call(addr, "GET", "/metrics", "").unwrap().body;
    page.lines().any(|own| own == line)
}

#[test]
fn a_page_that_points_its_name_at_loopback_gets_nothing() {
    each("rebinding", &[], |kind, addr| {
        let ask = |headers: &str| {
            let (path, body) = (kind.api, kind.body);
            let head =
                format!("POST {path} HTTP/1.1\r\n{headers}content-type: application/json\r\n");
            told(
                addr,
                format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
            )
        };
        let own = format!("host: {addr}\r\n");
        let (status, _) = ask(&own);
        let refusals = [400, 403, 421];
        assert!(
            !refusals.contains(&status) || kind.name == "dht",
            "{status}"
        );
        for (headers, status, code) in [
            ("host: evil.example\r\n".to_owned(), 421, "foreign_host"),
            (
                format!("{own}origin: http://evil.example\r\n"),
                403,
                "foreign_origin",
            ),
            (format!("{own}origin: null\r\n"), 403, "foreign_origin"),
            (String::new(), 400, "bad_host"),
            (format!("{own}{own}"), 400, "bad_host"),
            ("host: evil example\r\n".to_owned(), 400, "bad_host"),
        ] {
            assert_eq!(
                ask(&headers),
                (status, code.to_owned()),
                "{} {headers}",
                kind.name
            );
        }
        assert!(metric(
            addr,
            "http_refused_total{reason=\"foreign_host\"} 1"
        ));
        assert!(metric(
            addr,
            "http_refused_total{reason=\"foreign_origin\"} 2"
        ));
        assert!(metric(addr, "http_refused_total{reason=\"bad_host\"} 3"));
        // Whoever asks how the process is, by whatever name.
        let probe = "GET /healthz HTTP/1.1\r\nhost: probe.example\r\n\r\n";
        assert_eq!(told(addr, probe.as_bytes()).0, 200);
    });
}

#[test]
fn names_and_origins_are_let_in_by_configuration_and_bad_ones_refused() {
    let lists = [
        "http.hosts=[\"*.example\"]",
        "http.origins=[\"https://page.example\"]",
    ];
    each("names", &lists, |_, addr| {
        let ask = |host: &str, origin: &str| {
            let head =
                format!("GET /api/v1/status HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\n\r\n");
            told(addr, head.as_bytes()).0
        };
        assert_eq!(ask("kms.example", "https://page.example"), 200);
        assert_eq!(ask("kms.example", "https://kms.example"), 200);
        assert_eq!(ask("kms.example", "https://other.example"), 403);
        assert_eq!(ask("kms.other", "https://page.example"), 421);
    });
    for kind in &KINDS {
        let scratch = Scratch::new(&format!("door-bad-names-{}", kind.name));
        for (setting, key) in [
            ("http.hosts=[\"a:80\"]", "http.hosts"),
            ("http.hosts=\"a\"", "http.hosts"),
            ("http.origins=[\"page.example\"]", "http.origins"),
            ("http.max_conns_per_peer=70000", "http.max_conns_per_peer"),
            ("http.http2_frames_per_s=9", "http.http2_frames_per_s"),
        ] {
            let out = ends(&kind.command(&scratch, &[setting]));
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{setting}: {said}");
            assert!(
                said.contains(key) && said.lines().count() == 1,
                "{setting}: {said}"
            );
        }
    }
}

#[test]
fn one_client_cannot_keep_everybody_else_out() {
    let limits = ["http.max_conns=16", "http.max_conns_per_peer=8"];
    each("crowd", &limits, |kind, addr| {
        let ask = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut kept = Vec::new();
        for n in 0..40 {
            let mut stream = connect(addr);
            stream.write_all(ask).unwrap();
            assert_eq!(answer(&mut stream).0, 200, "{} connection {n}", kind.name);
            kept.push(stream);
        }
        // With a request in hand, nobody has to go; then one more is told so.
        let last = kept.split_off(40 - 8);
        for mut stream in &last {
            stream.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        let more = (429, "too_many_connections_of_peer".to_owned());
        assert_eq!(told(addr, b""), more, "{}", kind.name);
        drop(last);
    });
    each("full", &["http.max_conns=1"], |kind, addr| {
        let mut only = connect(addr);
        only.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let full = (503, "too_many_connections".to_owned());
        assert_eq!(told(addr, b""), full, "{}", kind.name);
        only.write_all(b"host: localhost\r\n\r\n").unwrap();
        assert_eq!(answer(&mut only).0, 200);
    });
}

#[test]
fn what_is_no_http_is_told_so_with_a_problem() {
    each("no-http", &[], |kind, addr| {
        let head = format!("POST {} HTTP/1.1\r\nhost: {addr}\r\n", kind.api);
        let json = format!("{head}content-type: application/json\r\n");
        let huge = "y".repeat(300_000);
        for (bytes, status, code) in [
            ("no request\r\n\r\n".to_owned(), 400, "malformed_request"),
            (
                format!("{head}content-length: -1\r\n\r\n"),
                400,
                "malformed_request",
            ),
            (format!("{head}x: {huge}\r\n\r\n"), 431, "head_too_large"),
            (
                format!("{json}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
                501,
                "unsupported_transfer_encoding",
            ),
        ] {
            let got = told(addr, bytes.as_bytes());
            assert_eq!(got, (status, code.to_owned()), "{} {bytes:.60}", kind.name);
        }
        assert!(metric(
            addr,
            "http_refused_total{reason=\"malformed_request\"} 2"
        ));
        assert!(metric(
            addr,
            "http_refused_total{reason=\"head_too_large\"} 1"
        ));
        if kind.name == "kms" {
            let chunks = format!("{json}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n");
            let bad = (400, "malformed_chunks".to_owned());
            assert_eq!(told(addr, chunks.as_bytes()), bad);
        }
    });
}

#[test]
fn floods_of_frames_are_told_to_calm_down() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const CALM: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];
    each("floods", &[], |kind, addr| {
        for (n, frame) in (1..).zip([PING, SETTINGS]) {
            let mut stream = connect(addr);
            stream.write_all(PREFACE).unwrap();
            for _ in 0..50 {
                // The server may be through with it already.
                let _ = stream.write_all(&frame.repeat(100));
            }
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            assert!(said.ends_with(CALM), "{}", kind.name);
            let line = format!("http_refused_total{{reason=\"http2_flood\"}} {n}");
            assert!(metric(addr, &line), "{}: {line}", kind.name);
        }
    });
}

#[test]
fn readiness_tells_what_degrades_it() {
    each("degraded", &[], |kind, addr| {
        let ready = call(addr, "GET", "/readyz", "").unwrap().body;
        let ready: Value = serde_json::from_str(&ready).unwrap();
        assert!(ready["degraded"].is_array(), "{}: {ready}", kind.name);
        let status = call(addr, "GET", "/api/v1/status", "").unwrap().body;
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["readiness"]["degraded"], ready["degraded"]);
        let conditions = ready["degraded"].as_array().unwrap().len();
        assert!(metric(addr, &format!("readyz_degraded {conditions}")));
    });
}
