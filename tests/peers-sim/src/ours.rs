//! The ping-pong on our simulator, with every request in the trace.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use hyper::{client::conn::http1::handshake, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use ron_core::{config::ConfigErrors, seam::BoxFuture};
use sim::{
    executor::{self, Simulation},
    net::Link,
    recorder::Recorder,
    service::{ProcessContext, SimService},
    timer,
    trace::{Outcome, StopReport, What},
    world::World,
};

use crate::{CURVE, Load, PORT, ping, pong};

struct Server;

impl SimService for Server {
    fn name(&self) -> &'static str {
        "pong"
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, _: &toml::Table) -> Result<(), ConfigErrors> {
        Ok(())
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(async move {
            let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            let listener = process.env.listen(addr).await.expect("the port is free");
            while let Ok((conn, _)) = listener.accept().await {
                drop(process.env.spawn("connection", async move {
                    let io = TokioIo::new(conn);
                    let _ = http1::Builder::new()
                        .serve_connection(io, service_fn(pong))
                        .await;
                }));
            }
            StopReport::default()
        })
    }
}

/// Returns the hash of the trace: that the work was done, and done the same way. To be called on a fresh
/// thread, as every world is.
pub fn run(load: Load, seed: u64) -> String {
    Simulation::new(seed).block_on(simulate(load, seed))
}

async fn simulate(load: Load, seed: u64) -> String {
    let recorder = Recorder::new(Vec::new(), false, false);
    let link = Link {
        latency: (load.latency.least, load.latency.most),
        latency_curve: Some(CURVE),
        ..Link::default()
    };
    let world = World::new(seed, link, recorder.clone());
    let server = world.add_node("server", Some(Arc::new(Server)), toml::Table::new());
    world.start(server);
    let clients = (0..load.clients).map(|n| {
        let node = world.add_node(&format!("client-{n}"), None, toml::Table::new());
        world.start(node);
        let (env, recorder) = (world.env(node).expect("it is up"), recorder.clone());
        executor::spawn(async move {
            let to = env.resolve("server", PORT).await.expect("its address")[0];
            let conn = env.connect(to).await.expect("a connection");
            let (mut sender, connection) = handshake(TokioIo::new(conn)).await.expect("HTTP");
            drop(env.spawn("connection", async move {
                let _ = connection.await;
            }));
            for turn in 0..load.requests {
                let request = (n * load.requests + turn) as u64;
                let (op, key) = ("ping", request);
                recorder.record(Some(node), What::Request { request, op, key });
                ping(&mut sender).await;
                let outcome = Outcome::Answered(200);
                recorder.record(Some(node), What::Outcome { request, outcome });
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await.expect("it finishes");
    }
    recorder.into_record(timer::elapsed()).hash
}
