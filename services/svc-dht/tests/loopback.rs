//! Several nodes in one process, over real sockets on loopback.
#![allow(
    clippy::disallowed_methods,
    reason = "the test starts the runtime that the nodes run on"
)]

use std::{net::SocketAddr, sync::Arc};

use ron_core::{Env, Join, Shutdown};
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    config::Config,
    dht::Dht,
    id::Id,
    identity::Identity,
    service::{Ended, Options, Service},
};
use tokio::runtime::{Builder, Handle};

struct Node {
    env: Env,
    dht: Dht,
    addr: SocketAddr,
    stop: Shutdown,
    ended: Join<Ended>,
    readiness: ron_core::readiness::Readiness,
}

impl Node {
    async fn start(n: u8, seed: Option<SocketAddr>) -> Node {
        let options = TokioOptions {
            data: Data::Memory {
                limit_bytes: 1 << 24,
            },
            extra_ca_pem: None,
        };
        let runtime = TokioRuntime::new(Handle::current(), &options);
        let Ok(runtime) = runtime else {
            panic!("a world in memory can be made");
        };
        let env = Env::new(runtime);
        let mut config = Config::default();
        // All of them are neighbours.
        config.routing.diversity = false;
        config.bootstrap.seeds = seed.iter().map(ToString::to_string).collect();
        let listener = env.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let identity = Identity::from_seed(&[n; 32]);
        let options = Options::new(env.clone(), Arc::new(config), identity, listener, None);
        let service = Service::open(options).await.unwrap();
        let (dht, readiness) = (service.dht(), service.readiness());
        let stop = Shutdown::new();
        let ended = env.spawn("service", service.run(stop.clone(), |_| {}));
        let node = Node {
            env,
            dht,
            addr,
            stop,
            ended,
            readiness,
        };
        while !node.readiness.is_ready() {
            tokio::task::yield_now().await;
        }
        node
    }

    fn deadline(&self) -> std::time::Instant {
        self.env.now() + std::time::Duration::from_secs(5)
    }
}

#[test]
fn nodes_over_sockets_find_what_others_put_and_stop_without_a_rest() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let first = Node::start(1, None).await;
        let seed = first.addr;
        let mut nodes = vec![first];
        for n in 2..=10 {
            nodes.push(Node::start(n, Some(seed)).await);
        }
        for (n, node) in nodes.iter().enumerate() {
            let name = format!("name {n}");
            let put = node
                .dht
                .put_value(name.as_bytes(), b"value", None, node.deadline());
            let put = put.await.unwrap();
            assert!(put.replicas >= 3, "{put:?}");
            let other = &nodes[(n + 3) % nodes.len()];
            let found = other
                .dht
                .get_value(put.key, other.deadline())
                .await
                .unwrap();
            assert_eq!(found.value, b"value");
            let closest = other.dht.closest(Id([n as u8; 32]), other.deadline());
            assert_eq!(closest.await.unwrap().closest.len(), nodes.len() - 1);
        }
        for node in &nodes {
            node.stop.trigger();
        }
        for node in nodes {
            let ended = node.ended.await.unwrap();
            assert_eq!(ended.report.aborted, 0, "{}", ended.report);
            assert_eq!(node.dht.peers().alive(), 0);
        }
    });
}
