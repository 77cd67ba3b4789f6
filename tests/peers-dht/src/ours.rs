//! svc-dht as shipped, on real sockets. All nodes share one runtime.
//!
//! Other than by default: nodes of one subnet are not limited, since all are on loopback; no HTTP; and connections are kept, so
//! that pools are warm: as many as an asker wants, for an hour. Those who do not ask keep 24 of their own, so that all fit into
//! one process's files. In the cold network they are closed 10 ms after their last use, and every lookup begins later than
//! that.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use ron_core::{Env, Shutdown, readiness::Readiness};
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    config::Config,
    dht::Dht,
    id::Id,
    identity::Identity,
    service::{Options, Service},
};
use tokio::runtime::Handle;

use crate::{
    ASKERS, AT_ONCE, NODES,
    child::Shape,
    drive::{self, Found, Network, nearest, node_of},
};

/// After which a cold node's connections are closed, and how long each of its lookups waits for that.
const COLD_AFTER_MS: u64 = 10;
const COLD_PAUSE: Duration = Duration::from_millis(60);

pub struct Ours {
    nodes: Vec<Node>,
    cold: bool,
}

struct Node {
    env: Env,
    dht: Dht,
    addr: SocketAddr,
    readiness: Readiness,
}

impl Ours {
    pub async fn start(cold: bool) -> Ours {
        let mut nodes: Vec<Node> = Vec::new();
        for n in 0..NODES {
            let seed = nodes.first().map(|first| first.addr);
            let node = start(n, seed, cold).await;
            while !node.readiness.is_ready() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            nodes.push(node);
        }
        let ours = Ours { nodes, cold };
        ours.settle().await;
        ours
    }

    /// Every node looks a few things up, as in a network that is in use: who has only joined knows little of what is far.
    async fn settle(&self) {
        const LOOKUPS: usize = 6;
        let lanes = (0..AT_ONCE).map(async |lane| {
            for n in (lane..LOOKUPS * NODES).step_by(AT_ONCE) {
                let node = &self.nodes[n % NODES];
                let deadline = node.env.now() + Duration::from_secs(5);
                let target = Id(drive::target(u64::MAX - 3, n as u64));
                let _ = node.dht.closest(target, deadline).await;
            }
        });
        futures_util::future::join_all(lanes).await;
    }

    fn asker(&self, asker: usize) -> &Node {
        &self.nodes[node_of(asker)]
    }

    /// Requests out and in, bytes out and in, of all askers.
    fn sent(&self) -> [u64; 4] {
        let mut sum = [0; 4];
        for asker in 0..ASKERS {
            let stats = self.asker(asker).dht.peers().stats();
            let requests = [&stats.requests_out, &stats.requests_in];
            let of = requests
                .into_iter()
                .chain([&stats.bytes_out, &stats.bytes_in]);
            for (sum, count) in sum.iter_mut().zip(of) {
                *sum += count.get();
            }
        }
        sum
    }
}

async fn start(n: usize, seed: Option<SocketAddr>, cold: bool) -> Node {
    let options = TokioOptions {
        data: Data::Memory {
            limit_bytes: 1 << 24,
        },
        extra_ca_pem: None,
    };
    let runtime = TokioRuntime::new(Handle::current(), &options);
    let env = Env::new(runtime.unwrap_or_else(|error| panic!("{error}")));
    let mut config = Config::default();
    config.routing.diversity = false;
    config.api.enabled = false;
    config.bootstrap.seeds = seed.iter().map(ToString::to_string).collect();
    if cold {
        config.link.idle_timeout_ms = COLD_AFTER_MS;
    } else {
        config.link.idle_timeout_ms = 3_600_000;
        let asks = (0..ASKERS).any(|asker| node_of(asker) == n);
        config.link.max_outbound = if asks { NODES } else { 24 };
    }
    let listener = env.listen(([127, 0, 0, 1], 0).into()).await;
    let listener = listener.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let identity = Identity::from_seed(blake3::hash(&n.to_be_bytes()).as_bytes());
    let options = Options::new(env.clone(), Arc::new(config), identity, listener, None);
    let service = Service::open(options).await.expect("a node");
    let (dht, readiness) = (service.dht(), service.readiness());
    drop(env.spawn("service", service.run(Shutdown::new(), |_| {})));
    Node {
        env,
        dht,
        addr,
        readiness,
    }
}

impl Network for Ours {
    async fn lookup(&self, asker: usize, target: [u8; 32]) -> Option<Found> {
        let node = self.asker(asker);
        let sent = || node.dht.node().metrics.hot.lookup_requests.load(Relaxed);
        let before = sent();
        let deadline = node.env.now() + Duration::from_secs(5);
        let found = node.dht.closest(Id(target), deadline).await.ok()?;
        Some(Found {
            closest: found.closest.iter().map(|c| c.id.0.to_vec()).collect(),
            requests: (sent() - before) as u32,
        })
    }

    fn closest(&self, asker: usize, target: [u8; 32]) -> Vec<Vec<u8>> {
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(n, _)| *n != node_of(asker));
        nearest(
            others.map(|(_, node)| node.dht.node().id().0.to_vec()),
            &target,
        )
    }

    fn dialled(&self) -> u64 {
        let each = self
            .nodes
            .iter()
            .map(|n| n.dht.peers().stats().dialled.get());
        each.sum()
    }

    fn warm_lookups(&self) -> usize {
        if self.cold { 2 } else { 80 }
    }

    fn pause(&self) -> Option<Duration> {
        self.cold.then_some(COLD_PAUSE)
    }

    async fn shape(&self) -> Shape {
        const LOOKUPS: usize = 200;
        let before = self.sent();
        for n in 0..LOOKUPS {
            let target = drive::target(u64::MAX - 2, n as u64);
            self.lookup(n % ASKERS, target).await;
        }
        let after = self.sent();
        let [asked, served, out, back] = std::array::from_fn(|n| (after[n] - before[n]) as f64);
        // Askers also answer each other, so both kinds of frames go both ways: two equations for two sizes.
        let both = asked * asked - served * served;
        let open = (0..ASKERS).map(|asker| self.asker(asker).dht.peers().open().0);
        Shape {
            request_bytes: ((out * asked - back * served) / both).round() as usize,
            answer_bytes: ((back * asked - out * served) / both).round() as usize,
            requests: (asked / LOOKUPS as f64).round() as usize,
            connections: open.sum::<usize>() / ASKERS,
        }
    }
}
