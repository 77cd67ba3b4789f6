//! Requests per wall second on both sides, measured in turn in one process, and the ratio.
//!
//! `cargo bench --manifest-path tests/peers-sim/Cargo.toml`

use std::time::{Duration, Instant};

use peers_sim::{Load, ours, theirs};

const ROUNDS: u64 = 5;
/// How far ahead we mean to be.
const AHEAD: f64 = 4.0;

fn main() {
    // Without `--bench` it is only seen to work.
    let measured = std::env::args().any(|arg| arg == "--bench");
    let requests = if measured { 4000 } else { 64 };
    println!(
        "HTTP ping-pong, turmoil at 1 ms a tick; requests per wall second, median of {ROUNDS}"
    );
    println!(
        "each way {:>8} {:>12} {:>12} {:>7}",
        "clients", "turmoil", "ours", "ratio"
    );
    let mut least = (f64::MAX, Duration::ZERO);
    for (ms, clients) in [(1, 1), (1, 16), (5, 1), (5, 16), (20, 1), (20, 16)] {
        let latency = Duration::from_millis(ms);
        let load = Load {
            clients,
            requests: requests / clients,
            latency,
        };
        let (mut turmoil, mut mine) = (Vec::new(), Vec::new());
        for seed in 1..=ROUNDS {
            turmoil.push(rate(load, || theirs::run(load, seed)));
            mine.push(rate(load, || drop(ours::run(load, seed))));
        }
        let (theirs, ours) = (median(&mut turmoil), median(&mut mine));
        let ratio = ours / theirs;
        if ratio < least.0 {
            least = (ratio, latency);
        }
        println!("{ms:>5} ms {clients:>8} {theirs:>12.0} {ours:>12.0} {ratio:>6.1}x");
    }
    let (ratio, latency) = least;
    let verdict = if ratio >= AHEAD { "ahead" } else { "NOT AHEAD" };
    println!("least {ratio:.1}x, at {latency:?} each way; wanted {AHEAD:.0}x: {verdict}");
}

fn rate(load: Load, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    load.total() as f64 / begin.elapsed().as_secs_f64()
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
