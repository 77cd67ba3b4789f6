//! The ping-pong on no simulator at all: pipes in memory on one thread, without a clock, a network or a trace.
//! What is left is hyper at both ends and tokio's scheduler below: about as fast as hyper gets, though not a proven limit.

use hyper::{client::conn::http1::handshake, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;

use crate::{Load, ping, pong};

/// As much as a connection holds on its way.
const WINDOW: usize = 64 * 1024;

pub fn run(load: Load) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let clients = (0..load.clients).map(|_| tokio::spawn(client(load.requests)));
        for client in clients.collect::<Vec<_>>() {
            client.await.expect("it finishes");
        }
    });
}

async fn client(requests: usize) {
    let (near, far) = tokio::io::duplex(WINDOW);
    tokio::spawn(async move {
        let io = TokioIo::new(far);
        let _ = http1::Builder::new()
            .serve_connection(io, service_fn(pong))
            .await;
    });
    let (mut sender, connection) = handshake(TokioIo::new(near)).await.expect("HTTP");
    tokio::spawn(async move {
        let _ = connection.await;
    });
    for _ in 0..requests {
        ping(&mut sender).await;
    }
}
