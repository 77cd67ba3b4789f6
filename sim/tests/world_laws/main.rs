//! Laws of the simulated world itself, each shown between two bare nodes: a world that breaks one would
//! pass services that no real machine forgives. Every law is tried over several seeds.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

mod faults;
mod net;
mod recorder;
mod trouble;

use std::{io, net::SocketAddr, time::Duration};

use ron_core::{Env, seam::Conn, seam::Listener};
use sim::{
    executor::Simulation,
    net::{Link, NodeId},
    recorder::Recorder,
    timer,
    world::World,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Two nodes without a service, both up.
struct Two {
    world: World,
    a: NodeId,
    b: NodeId,
}

/// Runs a law over several seeds, each in a world and on a thread of its own.
fn law<F: Future<Output = ()> + 'static>(body: fn(Two) -> F) {
    run_law(body);
}

fn run_law<F: Future<Output = ()> + 'static>(body: impl Fn(Two) -> F + Clone + Send + 'static) {
    for seed in 1..=5 {
        let body = body.clone();
        let thread = std::thread::spawn(move || {
            let simulation = Simulation::new(seed).limited(Duration::from_secs(3600));
            simulation.block_on(async move {
                let recorder = Recorder::new(Vec::new(), false, false);
                let world = World::new(seed, Link::default(), recorder);
                let [a, b] = ["a", "b"].map(|name| {
                    let node = world.add_node(name, None, toml::Table::new());
                    world.start(node);
                    node
                });
                body(Two { world, a, b }).await;
            });
        });
        if let Err(panic) = thread.join() {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

impl Two {
    fn env(&self, node: NodeId) -> Env {
        self.world.env(node).expect("the node is up")
    }

    fn b_addr(&self) -> SocketAddr {
        SocketAddr::new(self.b.default_ip(), 80)
    }

    async fn listen(&self) -> Box<dyn Listener> {
        self.env(self.b).listen(self.b_addr()).await.unwrap()
    }

    /// From `a` to a listener of `b`.
    async fn connect(&self) -> io::Result<Conn> {
        self.env(self.a).connect(self.b_addr()).await
    }

    /// A connection, its end at `a` first.
    async fn connected(&self) -> (Conn, Conn) {
        let listener = self.listen().await;
        let a = self.connect().await.unwrap();
        let (b, _) = listener.accept().await.unwrap();
        (a, b)
    }

    fn set_both(&self, change: impl Fn(&mut Link)) {
        self.world.net().set_link(self.a, self.b, &change);
        self.world.net().set_link(self.b, self.a, &change);
    }
}

/// What the future yields within the time, if it does.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = timer::sleep(limit) => None,
    }
}

/// Reads exactly so many bytes, and says how long that took.
async fn read(conn: &mut Conn, len: usize) -> (io::Result<Vec<u8>>, Duration) {
    let begin = timer::now();
    let mut bytes = vec![0; len];
    let result = conn.read_exact(&mut bytes).await.map(|_| bytes);
    (result, timer::now() - begin)
}

async fn send(conn: &mut Conn, bytes: &[u8]) {
    conn.write_all(bytes).await.unwrap();
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
