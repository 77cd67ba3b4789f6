//! What signing costs in ron-kms: the real binary under load, against a handler that does nothing and the bare
//! signature.
//!
//! The load comes from this process; ron-kms and the handler are processes of their own, so that the CPU time
//! of each is told apart. All take turns in short rounds, so that the machine's moods hit them alike, and each
//! ratio is the median of its rounds. `cargo bench -p tests --bench kms` prints a table and fails out of bounds;
//! `-- --quick` takes fewer rounds.

#![allow(clippy::disallowed_methods)] // it measures real time over real sockets

#[path = "kms/issuer.rs"]
mod issuer;
#[path = "kms/load.rs"]
mod load;
#[path = "kms/servers.rs"]
mod servers;

use std::{process::ExitCode, time::Duration};

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use load::{Clients, Round, Waiting};
use servers::{NOOP, SIGNING, Server};

/// Connections where CPU time is compared.
const FEW: usize = 64;
/// Connections where throughput is compared.
const MANY: usize = 256;
const ROUND: Duration = Duration::from_millis(700);
const BATCH: usize = 64;
const MESSAGE: [u8; 32] = [0x5a; 32];

const MOST_CPU: f64 = 1.5;
const MOST_CPU_JWT: f64 = 1.7;
const LEAST_STRICT: f64 = 0.25;
const LEAST_BATCH: f64 = 0.5;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(how) = args
        .iter()
        .find(|arg| [NOOP, SIGNING].contains(&arg.as_str()))
    {
        return servers::serve(how == SIGNING);
    }
    let rounds = if args.iter().any(|arg| arg == "--quick") {
        3
    } else {
        24
    };
    let clients = Clients::start();
    let issuer = issuer::start(&clients);
    servers::build();
    let mut noop = Server::handler(NOOP);
    let mut bare = Server::handler(SIGNING);
    let mut shed = Server::kms("auth none", &[]);
    let mut jwt = Server::kms("auth jwt", &issuer.settings());
    let mut strict = Server::kms("strict", &["audit.policy=strict".to_owned()]);

    let kid = shed.make_key(&clients, "");
    let single = one(&kid, "");
    let batch = many(&kid);
    let with_token = one(&jwt.make_key(&clients, &issuer.header), &issuer.header);
    let durable = one(&strict.make_key(&clients, ""), "");

    use Waiting::{Asleep, Awake};
    let mut table = Table::default();
    // The first round of each only warms up.
    for n in 0..=rounds {
        let raw = raw_sign_us();
        let base = noop.round(&clients, Awake, &single, FEW, ROUND);
        let plain = shed.round(&clients, Awake, &single, FEW, ROUND);
        let tokens = jwt.round(&clients, Awake, &with_token, FEW, ROUND);
        let bare_awake = bare.round(&clients, Awake, &single, FEW, ROUND);
        let bare_asleep = bare.round(&clients, Asleep, &single, FEW, ROUND);
        let base_asleep = noop.round(&clients, Asleep, &single, FEW, ROUND);
        let asleep = shed.round(&clients, Asleep, &single, FEW, ROUND);
        let batches = shed.round(&clients, Asleep, &batch, FEW / 4, ROUND);
        let base_many = noop.round(&clients, Asleep, &single, MANY, ROUND);
        let durables = strict.round(&clients, Asleep, &durable, MANY, ROUND);
        if n > 0 {
            table.raw_us.push(raw);
            table.noop.push(base);
            table.plain.push(plain);
            table.tokens.push(tokens);
            table.bare.push(bare_awake);
            table.bare_asleep.push(bare_asleep);
            table.noop_asleep.push(base_asleep);
            table.asleep.push(asleep);
            table.batches.push(batches);
            table.noop_many.push(base_many);
            table.durables.push(durables);
        }
    }
    drop((noop, bare, shed, jwt, strict));
    table.print(rounds)
}

#[derive(Default)]
struct Table {
    raw_us: Vec<f64>,
    noop: Vec<Round>,
    plain: Vec<Round>,
    tokens: Vec<Round>,
    bare: Vec<Round>,
    bare_asleep: Vec<Round>,
    noop_asleep: Vec<Round>,
    asleep: Vec<Round>,
    batches: Vec<Round>,
    noop_many: Vec<Round>,
    durables: Vec<Round>,
}

impl Table {
    fn print(mut self, rounds: usize) -> ExitCode {
        let cost = |of: &[Round], n: usize| of[n].server_us();
        let base = |n: usize| cost(&self.noop, n) + self.raw_us[n];
        let ratios = [
            (
                "CPU per sign, auth none, to (no-op + raw sign)",
                Bound::Most(MOST_CPU),
                spread(rounds, |n| cost(&self.plain, n) / base(n)),
            ),
            (
                "CPU per sign, JWT, to (no-op + raw sign)",
                Bound::Most(MOST_CPU_JWT),
                spread(rounds, |n| cost(&self.tokens, n) / base(n)),
            ),
            (
                "CPU per sign, auth none, to no-op that signs",
                Bound::None,
                spread(rounds, |n| cost(&self.plain, n) / cost(&self.bare, n)),
            ),
            // Told, not judged: see `Waiting`.
            (
                "clients sleep, to no-op that signs",
                Bound::None,
                spread(rounds, |n| {
                    cost(&self.asleep, n) / cost(&self.bare_asleep, n)
                }),
            ),
            (
                "clients sleep, to (no-op + raw sign)",
                Bound::None,
                spread(rounds, |n| {
                    cost(&self.asleep, n) / (cost(&self.noop_asleep, n) + self.raw_us[n])
                }),
            ),
            (
                "requests/s, strict, to no-op, 256 connections",
                Bound::Least(LEAST_STRICT),
                spread(rounds, |n| {
                    self.durables[n].per_s() / self.noop_many[n].per_s()
                }),
            ),
            (
                "signs per core, batch of 64, to raw signs",
                Bound::Least(LEAST_BATCH),
                spread(rounds, |n| {
                    self.raw_us[n] * BATCH as f64 / cost(&self.batches, n)
                }),
            ),
        ];
        self.raw_us.sort_by(f64::total_cmp);
        println!("raw Ed25519 sign   {:7.1} us", self.raw_us[rounds / 2]);
        println!(
            "{:24} {:>5} {:>9} {:>12} {:>12} {:>9} {:>9}",
            "", "conns", "requests/s", "server us", "client us", "p50 us", "p99 us"
        );
        let mut failures = 0;
        for (name, conns, of) in [
            ("no-op", FEW, &mut self.noop),
            ("sign", FEW, &mut self.plain),
            ("sign, JWT", FEW, &mut self.tokens),
            ("no-op that signs", FEW, &mut self.bare),
            ("no-op, clients sleep", FEW, &mut self.noop_asleep),
            ("no-op that signs, asleep", FEW, &mut self.bare_asleep),
            ("sign, clients sleep", FEW, &mut self.asleep),
            ("sign, batch of 64", FEW / 4, &mut self.batches),
            ("no-op", MANY, &mut self.noop_many),
            ("sign, strict", MANY, &mut self.durables),
        ] {
            failures += load::print_row(name, conns, of);
        }
        let mut good = failures == 0;
        if !good {
            println!("{failures} answers were no success");
        }
        for (what, bound, (low, median, high)) in ratios {
            let (holds, text) = match bound {
                Bound::Most(most) => (median <= most, format!(", at most {most}")),
                Bound::Least(least) => (median >= least, format!(", at least {least}")),
                Bound::None => (true, String::new()),
            };
            good &= holds;
            let verdict = match (text.is_empty(), holds) {
                (true, _) => "",
                (false, true) => ": ok",
                (false, false) => ": OUT OF BOUNDS",
            };
            println!("{what:48} {median:5.2}x ({low:.2} to {high:.2}){text}{verdict}");
        }
        match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

enum Bound {
    Most(f64),
    Least(f64),
    None,
}

/// Least, median and most over the rounds: one disturbed round does not count.
fn spread(rounds: usize, of: impl Fn(usize) -> f64) -> (f64, f64, f64) {
    let mut all: Vec<f64> = (0..rounds).map(of).collect();
    all.sort_by(f64::total_cmp);
    let middle = (all[(rounds - 1) / 2] + all[rounds / 2]) / 2.0;
    (all[0], middle, all[rounds - 1])
}

fn one(kid: &str, header: &str) -> Vec<u8> {
    let message = URL_SAFE_NO_PAD.encode(MESSAGE);
    let body = format!(r#"{{"kid":"{kid}","message":"{message}"}}"#);
    load::request("/v1/kms/sign", header, &body)
}

fn many(kid: &str) -> Vec<u8> {
    let message = URL_SAFE_NO_PAD.encode(MESSAGE);
    let items = vec![format!(r#"{{"message":"{message}"}}"#); BATCH];
    let body = format!(r#"{{"kid":"{kid}","messages":[{}]}}"#, items.join(","));
    load::request("/v1/kms/sign", "", &body)
}

/// CPU time of one signature of the library, in a loop on this thread.
fn raw_sign_us() -> f64 {
    const SIGNS: u32 = 4_000;
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    let before = servers::thread_cpu();
    for _ in 0..SIGNS {
        std::hint::black_box(pair.sign(std::hint::black_box(&MESSAGE)));
    }
    (servers::thread_cpu() - before).as_secs_f64() * 1e6 / f64::from(SIGNS)
}
