//! Requests per second on both sides and without any simulator, measured in turn in one process, and the ratios.
//!
//! Each side runs on one thread and never waits, so the time that its thread was on a processor is its wall
//! time, less whatever else the machine did meanwhile.
//!
//! `cargo bench --manifest-path tests/peers-sim/Cargo.toml`; with `-- ours` turmoil is left out, for a profiler.

use std::time::Duration;

use peers_sim::{Latency, Load, bare, ours, theirs};

/// For both sides, as `sim` itself has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: u64 = 5;
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
    println!(
        "HTTP ping-pong, turmoil at 1 ms a tick; requests per second of its thread, median of {ROUNDS}"
    );
    println!(
        "each way     {:>8} {:>12} {:>12} {:>7} {:>14} {:>7}",
        "clients", "turmoil", "ours", "ratio", "no simulator", "ratio"
    );
    let mut rows = Vec::new();
    for (lo, hi) in LATENCIES {
        for clients in [1, 4, 16] {
            // Turmoil walks through every tick of a long latency.
            let requests = match (measured, hi) {
                (false, _) => 64,
                (true, 100) => 8000,
                (true, _) => 40_000,
            };
            rows.push(compare(lo, hi, clients, requests));
        }
    }
    // Where hyper on bare tokio is not so far ahead, a simulator under hyper can hardly be.
    let (reachable, beyond): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.most >= AHEAD);
    let least = |rows: &[Row]| rows.iter().map(|row| row.ours).fold(f64::MAX, f64::min);
    let verdict = match least(&reachable) {
        least if least >= AHEAD && !reachable.is_empty() => "ahead",
        _ => "NOT AHEAD",
    };
    println!(
        "least {:.1}x in the {} rows where {AHEAD:.0}x can be had: {verdict}",
        least(&reachable),
        reachable.len(),
    );
    if !beyond.is_empty() {
        let share = |row: &Row| 100.0 * row.ours / row.most;
        let shares = beyond.iter().map(share).fold(f64::MAX, f64::min);
        println!(
            "least {:.1}x in the {} rows where hyper without any simulator is not {AHEAD:.0}x ahead: at least \
             {shares:.0} % of it",
            least(&beyond),
            beyond.len(),
        );
    }
}

/// How far ahead of turmoil.
#[derive(Clone, Copy)]
struct Row {
    ours: f64,
    /// With no simulator at all.
    most: f64,
}

/// Measures a row and prints it.
fn compare(lo: u64, hi: u64, clients: usize, requests: usize) -> Row {
    let load = Load {
        clients,
        requests: requests / clients,
        latency: Latency {
            least: Duration::from_millis(lo),
            most: Duration::from_millis(hi),
        },
    };
    let (mut turmoil, mut mine, mut none) = (Vec::new(), Vec::new(), Vec::new());
    let both = !std::env::args().any(|arg| arg == "ours");
    for seed in 1..=ROUNDS {
        turmoil.push(rate(load, move || {
            if both {
                theirs::run(load, seed);
            }
        }));
        mine.push(rate(load, move || drop(ours::run(load, seed))));
        none.push(rate(load, move || bare::run(load)));
    }
    let (theirs, ours, bare) = (median(&mut turmoil), median(&mut mine), median(&mut none));
    let (ratio, most) = (ours / theirs, bare / theirs);
    println!(
        "{lo:>3}..{hi:>3} ms {clients:>10} {theirs:>12.0} {ours:>12.0} {ratio:>6.1}x {bare:>14.0} {most:>6.1}x"
    );
    Row { ours: ratio, most }
}

fn rate(load: Load, run: impl FnOnce() + Send + 'static) -> f64 {
    let thread = std::thread::spawn(move || {
        let before = on_processor();
        run();
        on_processor() - before
    });
    let took = thread.join().expect("every client finishes");
    load.total() as f64 / took.max(Duration::from_nanos(1)).as_secs_f64()
}

/// For how long this thread has been on a processor.
fn on_processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let ns = stat.split(' ').next().expect("its first field");
    Duration::from_nanos(ns.parse().expect("a number"))
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
