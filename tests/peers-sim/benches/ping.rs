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
    DEFAULT,
];

/// What turmoil draws if nobody says otherwise.
const DEFAULT: (u64, u64) = (0, 100);

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
    let headline = rows.iter().filter(|row| row.headline);
    let least = least_of(headline);
    let verdict = if least >= AHEAD { "ahead" } else { "NOT AHEAD" };
    println!(
        "least {least:.1}x with the latencies that turmoil draws by itself, {AHEAD:.0}x wanted: {verdict}"
    );
    // Where a message takes hardly longer than a tick, both sides mostly run hyper.
    let others: Vec<_> = rows.iter().filter(|row| !row.headline).collect();
    let share = |row: &&Row| 100.0 * row.ours / row.most;
    println!(
        "least {:.1}x with shorter ones; no simulator at all: {:.1}x, of which we are at least {:.0} %",
        least_of(others.iter().copied()),
        others.iter().map(|row| row.most).fold(f64::MAX, f64::min),
        others
            .iter()
            .copied()
            .map(|row| share(&row))
            .fold(f64::MAX, f64::min),
    );
}

fn least_of<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    rows.map(|row| row.ours).fold(f64::MAX, f64::min)
}

/// How far ahead of turmoil.
#[derive(Clone, Copy)]
struct Row {
    /// The latencies are those of turmoil's own default.
    headline: bool,
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
    Row {
        headline: (lo, hi) == DEFAULT,
        ours: ratio,
        most,
    }
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
