//! Many real nodes in one process on loopback: what one costs in memory at rest, and what a lookup costs.
//!
//! `cargo run --release -p svc-dht --example many_nodes -- 200 2000`: nodes, lookups. It prints resident memory for
//! each node, CPU time for each lookup over warm connections, and how many requests and hops lookups took.
#![allow(
    clippy::disallowed_methods,
    reason = "it is a program of its own: clock, files and runtime are the machine's"
)]

use std::{fs, net::SocketAddr, sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use ron_core::{Env, Join, Shutdown, readiness::Readiness};
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    config::Config,
    dht::Dht,
    id::Id,
    identity::Identity,
    service::{Ended, Options, Service},
};
use tokio::runtime::{Builder, Handle};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Node {
    env: Env,
    dht: Dht,
    addr: SocketAddr,
    readiness: Readiness,
    stop: Shutdown,
    ended: Join<Ended>,
}

async fn start(n: u32, seed: Option<SocketAddr>) -> Node {
    let data = Data::Memory {
        limit_bytes: 1 << 24,
    };
    let options = TokioOptions {
        data,
        extra_ca_pem: None,
    };
    let runtime = TokioRuntime::new(Handle::current(), &options).unwrap_or_else(|e| panic!("{e}"));
    let env = Env::new(runtime);
    let mut config = Config::default();
    config.routing.diversity = false;
    config.workers = 2;
    config.api.enabled = false;
    config.bootstrap.seeds = seed.iter().map(ToString::to_string).collect();
    let listener = env.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut secret = [0; 32];
    secret[..4].copy_from_slice(&n.to_be_bytes());
    let identity = Identity::from_seed(&secret);
    let options = Options::new(env.clone(), Arc::new(config), identity, listener, None);
    let service = Service::open(options).await.unwrap();
    let (dht, readiness, stop) = (service.dht(), service.readiness(), Shutdown::new());
    let ended = env.spawn("service", service.run(stop.clone(), |_| {}));
    Node {
        env,
        dht,
        addr,
        readiness,
        stop,
        ended,
    }
}

fn resident_kb() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// User and system time of this process, in milliseconds.
fn cpu_ms() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let after = text.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * 10
}

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse::<u32>().ok());
    let (count, lookups) = (args.next().unwrap_or(200), args.next().unwrap_or(2_000));
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(count, lookups));
}

async fn run(count: u32, lookups: u32) {
    let before = resident_kb();
    let first = start(0, None).await;
    let seed = first.addr;
    let mut nodes = vec![first];
    for n in 1..count {
        let node = start(n, Some(seed)).await;
        while !node.readiness.is_ready() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        nodes.push(node);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let peers: usize = nodes
        .iter()
        .map(|n| n.dht.node().table.counts().peers)
        .sum();
    let open: usize = nodes.iter().map(|n| n.dht.peers().open().0).sum();
    println!(
        "{count} nodes, {} peers and {} outbound connections each; {} KB resident each",
        peers / count as usize,
        open / count as usize,
        (resident_kb() - before) / u64::from(count)
    );
    // One node asks, over and over: its connections become warm.
    let asker = &nodes[count as usize / 2];
    for round in ["cold", "warm"] {
        let sent = || asker.dht.node().metrics.hot.lookup_requests.load(Relaxed);
        let (cpu, requests) = (cpu_ms(), sent());
        let (mut hops, began) = (0, asker.env.now());
        for n in 0..lookups {
            let target = Id(*blake3::hash(format!("{round} {n}").as_bytes()).as_bytes());
            let deadline = asker.env.now() + Duration::from_secs(5);
            match asker.dht.closest(target, deadline).await {
                Ok(found) => hops += u32::from(found.hops),
                Err(error) => println!("{error}"),
            }
        }
        println!(
            "{round}: {:.2} CPU-ms a lookup, {:.1} requests, {:.2} hops, {:.2} ms each",
            (cpu_ms() - cpu) as f64 / f64::from(lookups),
            (sent() - requests) as f64 / f64::from(lookups),
            f64::from(hops) / f64::from(lookups),
            (asker.env.now() - began).as_secs_f64() * 1e3 / f64::from(lookups),
        );
    }
    tokio::time::sleep(Duration::from_secs(65)).await;
    println!(
        "{} KB resident each, a minute later",
        (resident_kb() - before) / u64::from(count)
    );
    for node in &nodes {
        node.stop.trigger();
    }
    for node in nodes {
        let _ = node.ended.await;
    }
}
