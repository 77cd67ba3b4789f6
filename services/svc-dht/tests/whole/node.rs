//! A whole node on a machine: its handle, its HTTP door, its end.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use ron_core::{
    Join,
    api::check::{Came, Checker},
    readiness::Readiness,
    seam::{Conn, Net},
    shutdown::Shutdown,
    supervisor::SupervisorView,
    view::QueueView,
};
use serde_json::Value;
use svc_dht::{
    config::Config,
    contact::Contact,
    dht::Dht,
    error::DhtError,
    identity::Identity,
    peers::Peers,
    service::{Ended, Found, Options, Service},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clockwork::{Machine, World};

pub const PORT: u16 = 7490;

pub struct Node {
    pub machine: Machine,
    pub dht: Dht,
    pub readiness: Readiness,
    pub view: SupervisorView,
    pub queues: Vec<Arc<dyn QueueView>>,
    pub found: Found,
    pub stop: Shutdown,
    pub ended: Join<Ended>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub json: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or("")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Each in a network of its own, so that none crowds another out.
pub fn ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, n, 1))
}

pub fn addr(n: u8) -> SocketAddr {
    SocketAddr::new(ip(n), PORT)
}

fn api_addr(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, PORT + 1)
}

pub fn identity(n: u8) -> Identity {
    Identity::from_seed(&[n; 32])
}

impl Node {
    /// The node of this number; the first one is everybody's seed.
    pub async fn start(world: &World, n: u8, change: impl FnOnce(&mut Config)) -> Node {
        let machine = world.machine(ip(n));
        Node::on(machine, n, change).await.unwrap()
    }

    /// On what is on the machine's disk.
    pub async fn on(
        machine: Machine,
        n: u8,
        change: impl FnOnce(&mut Config),
    ) -> Result<Node, DhtError> {
        let mut config = Config {
            workers: 2,
            ..Config::default()
        };
        if n > 1 {
            config.bootstrap.seeds = vec![addr(1).to_string()];
        }
        change(&mut config);
        let env = machine.env();
        let bind = SocketAddr::new(machine.ip(), PORT);
        let listener = machine.listen(bind).await.unwrap();
        let api = machine.listen(api_addr(machine.ip())).await.unwrap();
        let options = Options::new(
            env.clone(),
            Arc::new(config),
            identity(n),
            listener,
            Some(api),
        );
        let service = Service::open(options).await?;
        let (dht, readiness) = (service.dht(), service.readiness());
        let (queues, found) = (service.queues(), service.found.clone());
        let stop = Shutdown::new();
        let (tell, view) = tokio::sync::oneshot::channel();
        let running = service.run(stop.clone(), move |view| {
            let _ = tell.send(view);
        });
        let ended = env.spawn("service", running);
        Ok(Node {
            machine,
            dht,
            readiness,
            view: view.await.unwrap(),
            queues,
            found,
            stop,
            ended,
        })
    }

    /// So many nodes that have found each other.
    pub async fn network(world: &World, count: u8) -> Vec<Node> {
        let mut nodes = Vec::new();
        for n in 1..=count {
            let node = Node::start(world, n, |_| {}).await;
            node.until_ready().await;
            nodes.push(node);
        }
        world.pass(2_000).await;
        nodes
    }

    pub async fn until_ready(&self) {
        for _ in 0..10_000 {
            if self.readiness.is_ready() {
                return;
            }
            self.machine.world().pass(10).await;
        }
        panic!("not ready: {:?}", self.readiness.status());
    }

    pub fn contact(&self) -> Contact {
        self.dht.node().contact
    }

    pub fn peers(&self) -> &Peers {
        self.dht.peers()
    }

    pub fn deadline(&self) -> Instant {
        let node = self.dht.node();
        node.env.now() + node.config().lookup_deadline() + node.config().rpc_timeout()
    }

    pub async fn stop(self) -> Ended {
        self.stop.trigger();
        self.ended.await.unwrap()
    }

    /// One request on a connection of its own.
    pub async fn http(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.http_with(method, path, "", body).await
    }

    pub async fn http_with(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect_api().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let at = bytes
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let body = bytes[at + 4..].to_vec();
        let answer = Answer {
            status: head[9..12].parse().unwrap(),
            json: serde_json::from_slice(&body).unwrap_or(Value::Null),
            head,
            body,
        };
        if path.starts_with("/v1/dht") {
            let came = Came {
                status: answer.status,
                kind: answer.header("content-type").unwrap_or_default(),
                body: &answer.body,
            };
            let mode = self.dht.node().config().auth.to_mode().unwrap();
            let document = Checker::new(svc_dht::api::document(&mode));
            let found = document.answer(method, path, came);
            found.unwrap_or_else(|why| panic!("{why}"));
        }
        answer
    }

    pub async fn connect_api(&self) -> Conn {
        let addr = api_addr(self.machine.ip());
        self.machine.connect(addr).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.http("GET", path, b"").await
    }

    /// A line of `/metrics`.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").await.body).unwrap();
        let line = text.lines().find(|l| l.starts_with(name));
        let value = line.and_then(|l| l.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }
}
