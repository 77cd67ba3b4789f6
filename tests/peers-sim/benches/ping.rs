//! Requests per wall second on both sides, measured in turn in one process, and the ratio.
//!
//! `cargo bench --manifest-path tests/peers-sim/Cargo.toml`; with `-- ours` turmoil is left out, for a profiler.

use std::time::{Duration, Instant};

use peers_sim::{Latency, Load, ours, theirs};

/// For both sides, as `sim` itself has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: u64 = 9;
/// How far ahead we mean to be.
const AHEAD: f64 = 4.0;

/// Least and most latency of a message, in milliseconds; between them as [`peers_sim::CURVE`] has it.
const LATENCIES: [(u64, u64); 3] = [
    // A tick as long as every message takes: the best case of a simulator that works in ticks.
    (1, 1),
    (1, 10),
    // What turmoil draws if nobody says otherwise, and the headline.
    (0, 100),
];

fn main() {
    // Without `--bench` it is only seen to work.
    let measured = std::env::args().any(|arg| arg == "--bench");
    println!("HTTP ping-pong, turmoil at 1 ms a tick; requests per wall second, best of {ROUNDS}");
    println!(
        "each way     {:>8} {:>12} {:>12} {:>7}",
        "clients", "turmoil", "ours", "ratio"
    );
    let mut least = f64::MAX;
    for (lo, hi) in LATENCIES {
        for clients in [1, 4, 16] {
            // Turmoil walks through every tick of a long latency.
            let requests = match (measured, hi) {
                (false, _) => 64,
                (true, 100) => 4000,
                (true, _) => 16_000,
            };
            let ratio = compare(lo, hi, clients, requests);
            least = least.min(ratio);
        }
    }
    let verdict = if least >= AHEAD { "ahead" } else { "NOT AHEAD" };
    println!("least {least:.1}x; wanted {AHEAD:.0}x: {verdict}");
}

/// Prints a row and returns how far ahead we are in it.
fn compare(lo: u64, hi: u64, clients: usize, requests: usize) -> f64 {
    let load = Load {
        clients,
        requests: requests / clients,
        latency: Latency {
            least: Duration::from_millis(lo),
            most: Duration::from_millis(hi),
        },
    };
    let (mut turmoil, mut mine) = (Vec::new(), Vec::new());
    let both = !std::env::args().any(|arg| arg == "ours");
    for seed in 1..=ROUNDS {
        turmoil.push(rate(load, || {
            if both {
                theirs::run(load, seed)
            }
        }));
        mine.push(rate(load, || drop(ours::run(load, seed))));
    }
    let (theirs, ours) = (best(&turmoil), best(&mine));
    let ratio = ours / theirs;
    println!("{lo:>3}..{hi:>3} ms {clients:>10} {theirs:>12.0} {ours:>12.0} {ratio:>6.1}x");
    ratio
}

fn rate(load: Load, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    load.total() as f64 / begin.elapsed().as_secs_f64()
}

/// What each side can do: other work on the machine only ever slows a round down.
fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}
