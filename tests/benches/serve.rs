//! What serving over the seam costs: the same router through `Env::serve` and through `axum::serve`.
//!
//! Both run in one process on loopback and take turns, so that the machine's moods hit them alike. The
//! client is as cheap as can be: requests written ahead of time, answers only counted.
//! `cargo bench -p tests --bench serve` prints the rates and the ratio, and fails below the bound.

#![allow(clippy::disallowed_methods)] // it measures real time over real sockets

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use ron_core::{Env, Shutdown, serve::ServeOptions};
use ron_io::{Data, TokioOptions, TokioRuntime};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 60;
/// Short, so that a neighbour who comes or goes hits both sides of a pair.
const ROUND: Duration = Duration::from_millis(150);
const LEAST_RATIO: f64 = 0.9;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n";

fn main() -> ExitCode {
    let servers = runtime(2);
    let clients = runtime(1);
    let ours = servers.block_on(start_ours(&servers));
    let theirs = servers.block_on(start_theirs());

    // A first round of each only warms up.
    rate(&clients, ours);
    rate(&clients, theirs);
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|i| {
            if i % 2 == 0 {
                let first = rate(&clients, ours);
                (first, rate(&clients, theirs))
            } else {
                let first = rate(&clients, theirs);
                (rate(&clients, ours), first)
            }
        })
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| rounds.iter().map(of).sum::<f64>() / ROUNDS as f64;
    let (ours, theirs) = (mean(|r| r.0), mean(|r| r.1));
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let ratios = rounds.iter().map(|r| r.0 / r.1);
    let (low, high) = (ratios.clone().next(), ratios.clone().next_back());
    // The median of the pairs: one disturbed round does not count.
    let ratio = ratios.skip(ROUNDS / 2 - 1).take(2).sum::<f64>() / 2.0;

    println!("Env::serve   {ours:9.0} requests/s");
    println!("axum::serve  {theirs:9.0} requests/s");
    println!(
        "serve: {ratio:.2}x of axum::serve ({ROUNDS} rounds, {:.2} to {:.2})",
        low.unwrap_or_default(),
        high.unwrap_or_default()
    );
    servers.shutdown_background();
    if ratio >= LEAST_RATIO {
        ExitCode::SUCCESS
    } else {
        println!("below the bound of {LEAST_RATIO}");
        ExitCode::FAILURE
    }
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn app() -> Router {
    Router::new().route("/", get(async || "Hello, World!"))
}

async fn start_ours(runtime: &Runtime) -> SocketAddr {
    let options = TokioOptions {
        data: Data::Memory { limit_bytes: 0 },
        extra_ca_pem: None,
    };
    let tokio = TokioRuntime::new(runtime.handle().clone(), &options).expect("a world");
    let env = Env::new(tokio);
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = env.listen(any).await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    drop(env.clone().spawn("server", async move {
        env.serve(listener, app(), ServeOptions::default(), Shutdown::new())
            .await
    }));
    addr
}

async fn start_theirs() -> SocketAddr {
    use axum::serve::ListenerExt;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port");
    let addr = listener.local_addr().expect("an address");
    // As ours: without Nagle's delay.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    tokio::spawn(async move { axum::serve(listener, app()).await });
    addr
}

/// Requests per second over all connections during one round.
fn rate(clients: &Runtime, addr: SocketAddr) -> f64 {
    clients.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(ask_until(addr, start + ROUND)))
            .collect();
        let mut answers = 0;
        for task in tasks {
            answers += task.await.expect("a client");
        }
        answers as f64 / start.elapsed().as_secs_f64()
    })
}

async fn ask_until(addr: SocketAddr, end: Instant) -> u64 {
    let mut conn = TcpStream::connect(addr).await.expect("a connection");
    conn.set_nodelay(true).expect("no delay");
    let mut buf = [0; 1024];
    let mut answers = 0;
    while Instant::now() < end {
        conn.write_all(REQUEST).await.expect("a request");
        let mut got = 0;
        while !buf[..got].ends_with(b"Hello, World!") {
            let n = conn.read(&mut buf[got..]).await.expect("an answer");
            assert_ne!(n, 0, "closed in the middle");
            got += n;
        }
        answers += 1;
    }
    answers
}
