//! The contract suite in simulation: the same cases as on Tokio, each over several seeds, between two
//! nodes of a world without faults.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{process::ExitCode, sync::Arc, time::Duration};

use contract::{Case, Pair};
use libtest_mimic::{Arguments, Failed, Trial};
use sim::{
    executor::Simulation,
    net::{Link, NodeId},
    recorder::Recorder,
    world::World,
};

const SEEDS: u64 = 10;
const SERVER_NAME: &str = "many.example";
/// Simulated: a case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let trials = contract::cases().into_iter().map(|case| {
        Trial::test(case.name, move || {
            (1..=SEEDS).try_for_each(|seed| run(case, seed))
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn run(case: Case, seed: u64) -> Result<(), Failed> {
    let thread = std::thread::spawn(move || {
        Simulation::new(seed).block_on(async move {
            let world = World::new(
                seed,
                Link::default(),
                Recorder::new(Vec::new(), false, false),
            );
            let server = start(&world, "server");
            let client = start(&world, "client");
            let ip = server.default_ip();
            let others = ["169.254.169.254", "10.9.9.9"].map(|ip| ip.parse().unwrap());
            let [before, after] = others;
            world.net().set_name(SERVER_NAME, vec![before, ip, after]);
            let pair = Pair {
                server: world.env(server).expect("it is up"),
                client: world.env(client).expect("it is up"),
                server_ip: ip,
                server_name: SERVER_NAME,
            };
            // On the client's node, as a process of the world would run it.
            let ended = Arc::new(std::sync::Mutex::new(false));
            let done = ended.clone();
            let env = pair.client.clone();
            let case = env.spawn("case", async move {
                (case.run)(pair).await;
                *done.lock().unwrap() = true;
            });
            let _ = env.timeout(LIMIT, case).await;
            *ended.lock().unwrap()
        })
    });
    match thread.join() {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("seed {seed}: the case hangs").into()),
        Err(panic) => Err(format!("seed {seed}: {}", text(&*panic)).into()),
    }
}

fn start(world: &World, name: &str) -> NodeId {
    let node = world.add_node(name, None, toml::Table::new());
    world.start(node);
    node
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default()
}
