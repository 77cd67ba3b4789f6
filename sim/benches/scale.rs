//! What a world costs in memory: for each idle node, each open connection, each part of an idle kernel.
//!
//! `cargo bench -p sim --bench scale`. Each figure is the growth of the resident set divided by how many were
//! made, each in a world and on a thread of its own, so what one leaves to the allocator may flatter the next:
//! with the name of a figure as argument it is measured alone.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use ron_core::{
    Env,
    bus::Bus,
    ops::{self, Ops},
    readiness::Readiness,
    serve::ServeOptions,
    shutdown::Shutdown,
    supervisor::{Supervisor, TaskSpec},
    telemetry::Telemetry,
};
use sim::{
    executor::Simulation, net::Link, pool::PoolService, recorder::Recorder, service::SimService,
    timer, world::World,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NODES: usize = 10_000;
const PAIRS: usize = 20_000;
const PARTS: usize = 2_000;

fn main() {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    // Without `--bench` it is only seen to work.
    let measured = std::env::args().any(|arg| arg == "--bench");
    let size = |count: usize| if measured { count } else { 16 };
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|c| c == name);
    println!(
        "{:<12} {:>8} {:>12} {:>10}",
        "what", "count", "bytes each", "us each"
    );
    for (name, count, make) in FIGURES {
        if wanted(name) {
            figure(name, size(*count), *make);
        }
    }
}

type Make = fn(World, usize) -> std::pin::Pin<Box<dyn Future<Output = Box<dyn std::any::Any>>>>;

const FIGURES: &[(&str, usize, Make)] = &[
    ("node", NODES, |world, count| Box::pin(nodes(world, count))),
    ("connection", PAIRS, |world, count| {
        Box::pin(connections(world, count))
    }),
    ("bus", PARTS, |world, count| {
        Box::pin(each(world, count, bus))
    }),
    ("telemetry", PARTS, |world, count| {
        Box::pin(each(world, count, telemetry))
    }),
    ("supervisor", PARTS, |world, count| {
        Box::pin(each(world, count, supervisor))
    }),
    ("server", PARTS, |world, count| {
        Box::pin(each(world, count, server))
    }),
    ("service", PARTS, |world, count| {
        Box::pin(services(world, count))
    }),
];

fn figure(name: &str, count: usize, make: Make) {
    let begin = Instant::now();
    let thread = std::thread::spawn(move || {
        Simulation::new(1).block_on(async {
            let recorder = Recorder::new(Vec::new(), false, false);
            let world = World::new(1, Link::default(), recorder);
            let before = resident();
            let kept = make(world.clone(), count).await;
            let grown = resident().saturating_sub(before);
            drop(kept);
            grown
        })
    });
    let grown = thread.join().expect("the world holds");
    let us = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{name:<12} {count:>8} {:>12} {us:>10.1}", grown / count);
}

/// Nodes that are up and do nothing.
async fn nodes(world: World, count: usize) -> Box<dyn std::any::Any> {
    for n in 0..count {
        let node = world.add_node(&format!("node-{n}"), None, toml::Table::new());
        world.start(node);
    }
    settle().await;
    Box::new(world)
}

/// Both ends open, a few bytes read each way.
async fn connections(world: World, count: usize) -> Box<dyn std::any::Any> {
    let [a, b] = ["a", "b"].map(|name| {
        let node = world.add_node(name, None, toml::Table::new());
        world.start(node);
        node
    });
    let (a, to) = (
        world.env(a).expect("up"),
        std::net::SocketAddr::new(b.default_ip(), 80),
    );
    let b = world.env(b).expect("up");
    let listener = b.listen(to).await.expect("free");
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let (client, server) = tokio::join!(biased; a.connect(to), listener.accept());
        let (mut client, (mut server, _)) = (client.expect("open"), server.expect("open"));
        let mut bytes = [0; 4];
        client.write_all(b"ping").await.expect("sent");
        server.read_exact(&mut bytes).await.expect("read");
        server.write_all(b"pong").await.expect("sent");
        client.read_exact(&mut bytes).await.expect("read");
        open.push((client, server));
    }
    Box::new((open, listener))
}

/// So many of a part of the kernel, all in one process.
async fn each<T: 'static>(
    world: World,
    count: usize,
    make: fn(&Env, usize) -> T,
) -> Box<dyn std::any::Any> {
    let node = world.add_node("a", None, toml::Table::new());
    world.start(node);
    let env = world.env(node).expect("it is up");
    let made: Vec<T> = (0..count).map(|n| make(&env, n)).collect();
    settle().await;
    Box::new(made)
}

fn bus(_: &Env, _: usize) -> impl Sized + use<> {
    let bus = Bus::new();
    (bus.subscribe(), bus)
}

fn telemetry(_: &Env, _: usize) -> Telemetry {
    Telemetry::new("scale", "")
}

/// With four tasks that wait.
fn supervisor(env: &Env, _: usize) -> Shutdown {
    let bus = Bus::new();
    let readiness = Readiness::new(env.clone(), bus.clone());
    let mut supervisor = Supervisor::new(env.clone(), bus, readiness);
    let phase = supervisor.phase("work", Duration::from_secs(1), || {});
    for name in ["one", "two", "three", "four"] {
        let spec = TaskSpec::new(name, "worker", phase);
        supervisor.task(spec, |context| async move { context.stop.wait().await });
    }
    let shutdown = Shutdown::new();
    let until = shutdown.clone();
    drop(env.spawn("supervisor", async move {
        supervisor.run(until).await;
    }));
    shutdown
}

/// A listener with the routes that every process serves, and no connection.
fn server(env: &Env, n: usize) -> Shutdown {
    let shutdown = Shutdown::new();
    let (until, inside) = (shutdown.clone(), env.clone());
    drop(env.spawn("server", async move {
        let telemetry = Telemetry::new("scale", "");
        let bus = Bus::new();
        let readiness = Readiness::new(inside.clone(), bus);
        let status = move || readiness.status();
        let ops = Ops::new(&inside, &telemetry, "0", status, || false, None);
        let addr = std::net::SocketAddr::from(([0, 0, 0, 0], 1000 + n as u16));
        let listener = inside.listen(addr).await.expect("the port is free");
        let (options, app) = (ServeOptions::default(), ops::router(ops));
        inside.serve(listener, app, options, until).await;
    }));
    shutdown
}

/// The exemplar service as shipped, idle, each on a node of its own.
async fn services(world: World, count: usize) -> Box<dyn std::any::Any> {
    let service: Arc<dyn SimService> = Arc::new(PoolService);
    for n in 0..count {
        let name = format!("pool-{n}");
        let node = world.add_node(&name, Some(service.clone()), toml::Table::new());
        world.start(node);
    }
    settle().await;
    Box::new(world)
}

async fn settle() {
    timer::sleep(Duration::from_secs(1)).await;
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    const PAGE: usize = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("its second field");
    pages.parse::<usize>().expect("a number") * PAGE
}
