//! `worlds NAME [NODES] [SEED]`: makes a world of svc-dht nodes, prints what it measured, and fails if a bound was
//! broken.
#![allow(clippy::disallowed_methods, reason = "it makes worlds, and is in none")]

use std::process::ExitCode;

use sim::executor::Simulation;
use worlds::{black_hole, figures::Figures, hedging, thousands};

/// As in the service's own binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "worlds thousands|black-hole|hedging [NODES] [SEED]";

/// Told to the allocator before it begins: a huge page counts as resident as a whole, however little of it is used.
const SMALL_PAGES: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if std::env::var_os(SMALL_PAGES.0).is_none() {
        return again(&args);
    }
    let number = |at: usize| args.get(at).map(|arg| arg.parse::<u64>());
    let (Some(name), nodes, seed) = (args.first(), number(1).transpose(), number(2).transpose())
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (Ok(nodes), Ok(seed)) = (nodes, seed) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (nodes, seed) = (nodes.map(|n| n as usize), seed.unwrap_or(1));
    let figures = match name.as_str() {
        "thousands" => {
            let size = thousands::Size {
                seed,
                ..thousands::Size::of(nodes.unwrap_or(10_000))
            };
            in_world(seed, move || thousands::run(size))
        }
        "black-hole" => {
            let size = black_hole::Size {
                seed,
                ..black_hole::Size::of(nodes.unwrap_or(1_000))
            };
            in_world(seed, move || black_hole::run(size))
        }
        "hedging" => hedge(nodes.unwrap_or(300), seed),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("{}", figures.table());
    match figures.hold() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// This program once more, with the allocator told.
fn again(args: &[String]) -> ExitCode {
    let run = || {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command
            .args(args)
            .env(SMALL_PAGES.0, SMALL_PAGES.1)
            .status()
    };
    match run().map(|status| status.code()) {
        Ok(Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ok(None) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The same world four times: fast and slow links, with hedging and without.
fn hedge(nodes: usize, seed: u64) -> Figures {
    let mut figures = Figures::default();
    for link_ms in [(10, 50), (10, 100)] {
        let [on, off] = [true, false].map(|hedging| {
            let size = hedging::Size {
                seed,
                link_ms,
                hedging,
                ..hedging::Size::of(nodes)
            };
            in_world(seed, move || hedging::run(size))
        });
        hedging::compare(&mut figures, link_ms, &on, &off);
    }
    figures
}

/// On a thread of its own, as every world.
fn in_world<T: Send + 'static, F: Future<Output = T>>(
    seed: u64,
    run: impl FnOnce() -> F + Send + 'static,
) -> T {
    let world = std::thread::spawn(move || Simulation::new(seed).block_on(run()));
    world.join().expect("the world holds")
}
