//! The same lookups in svc-dht, libp2p-kad, mainline and a bare loop: 200 nodes each on loopback, warm connections.
//!
//! Each network is a process of its own, started by this program, so that its CPU time is told apart: that of all its
//! nodes, those that ask and those that answer. All take turns in short rounds, so that the machine's moods hit them
//! alike, and each ratio is the median of its rounds. The bare loop sends as many frames of the same size as svc-dht over
//! as many connections, and does nothing else.
//!
//! `cargo run --release --manifest-path tests/peers-dht/Cargo.toml` prints a table and fails out of bounds; `-- --quick` takes
//! fewer rounds. `-- --only ours --seconds 20` keeps one network busy, for a profiler.

mod bare;
mod child;
mod drive;
mod kad;
mod mainline_net;
mod ours;
mod report;

use std::{process::ExitCode, time::Duration};

use child::{Child, Kind};
use report::{Row, Table};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Nodes of each network.
pub const NODES: usize = 200;
/// Those of them that ask, spread over all. Each has connections to all others, and two ends of all those connections
/// must fit into one process's files.
pub const ASKERS: usize = 16;
/// Lookups under way at once in a network, each of another asker.
pub const AT_ONCE: usize = 8;
/// What a lookup looks for.
pub const K: usize = 20;
pub const ALPHA: usize = 3;

const ROUND: Duration = Duration::from_millis(800);
const REST: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(kind) = args.first().and_then(|arg| Kind::of_argument(arg)) {
        return child::serve(kind, &args[1..]);
    }
    let after = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    if let Some(kind) = after("--only") {
        let seconds = after("--seconds").and_then(|s| s.parse().ok());
        return only(&kind, seconds.unwrap_or(10));
    }
    let rounds = if args.iter().any(|arg| arg == "--quick") {
        3
    } else {
        12
    };
    compare(rounds)
}

fn compare(rounds: usize) -> ExitCode {
    // All at once: most of it is waiting.
    let others = [Kind::Ours, Kind::Mainline, Kind::Kad, Kind::OursCold];
    let others = others.map(|kind| Child::start(kind, &[]));
    let [mut ours, mainline, kad, cold] = others.map(Child::until_ready);
    let shape = ours.shape();
    println!(
        "{NODES} nodes each, {ASKERS} of them ask, {AT_ONCE} lookups at once, {rounds} rounds"
    );
    println!("svc-dht, warm: {shape}");
    let bare = Child::start(Kind::Bare, &shape.arguments()).until_ready();
    let mut networks = [bare, ours, mainline, kad, cold];
    let mut table = Table::new(networks.each_ref().map(|child| Row::of(child.kind)).into());
    for (row, network) in networks.iter_mut().enumerate() {
        table.rows[row].check = Some(network.check());
    }
    // The first round of each only warms up.
    for round in 0..=rounds {
        for (row, network) in networks.iter_mut().enumerate() {
            let idle = network.idle(REST);
            let told = network.round(ROUND, round as u64);
            if round > 0 {
                table.rows[row].add(told, idle);
            }
        }
    }
    drop(networks);
    table.print()
}

fn only(name: &str, seconds: u64) -> ExitCode {
    let Some(kind) = Kind::of_argument(&format!("--network-{name}")) else {
        println!("no network is called {name}");
        return ExitCode::FAILURE;
    };
    let mut arguments = Vec::new();
    if kind == Kind::Bare {
        let mut ours = Child::start(Kind::Ours, &[]).until_ready();
        arguments = ours.shape().arguments();
    }
    let mut network = Child::start(kind, &arguments).until_ready();
    println!("{name}: process {}", network.id());
    if kind == Kind::Ours {
        println!("{}", network.shape());
    }
    for round in 0..seconds {
        let told = network.round(Duration::from_secs(1), round);
        println!(
            "{} lookups, {:.0} us of CPU each",
            told.lookups(),
            told.cpu_us / told.lookups() as f64
        );
    }
    ExitCode::SUCCESS
}
