//! `worlds NAME [NODES] [SEED]`: makes a world of svc-dht nodes, prints what it measured, and fails if a bound was
//! broken.

use std::process::ExitCode;

use sim::executor::Simulation;
use worlds::{figures::Figures, thousands};

/// As in the service's own binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "worlds thousands|black-hole|hedging [NODES] [SEED]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
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

/// On a thread of its own, as every world.
fn in_world<F: Future<Output = Figures>>(
    seed: u64,
    run: impl FnOnce() -> F + Send + 'static,
) -> Figures {
    let world = std::thread::spawn(move || Simulation::new(seed).block_on(run()));
    world.join().expect("the world holds")
}
