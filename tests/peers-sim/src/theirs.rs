//! The ping-pong on turmoil, at its finest usual tick.

use std::time::Duration;

use hyper::{client::conn::http1::handshake, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use turmoil::net::{TcpListener, TcpStream};

use crate::{Load, PORT, ping, pong};

const TICK: Duration = Duration::from_millis(1);

pub fn run(load: Load, seed: u64) {
    let mut sim = turmoil::Builder::new()
        .tick_duration(TICK)
        .min_message_latency(load.latency.least)
        .max_message_latency(load.latency.most)
        .simulation_duration(Duration::from_secs(24 * 3600))
        .rng_seed(seed)
        .build();
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            turmoil_spawn(async move {
                let io = TokioIo::new(stream);
                let _ = http1::Builder::new()
                    .serve_connection(io, service_fn(pong))
                    .await;
            });
        }
    });
    for client in 0..load.clients {
        sim.client(format!("client-{client}"), async move {
            let stream = TcpStream::connect(("server", PORT)).await?;
            let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
            turmoil_spawn(async move {
                let _ = connection.await;
            });
            for _ in 0..load.requests {
                ping(&mut sender).await;
            }
            Ok(())
        });
    }
    sim.run().expect("every client finishes");
}

fn turmoil_spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
