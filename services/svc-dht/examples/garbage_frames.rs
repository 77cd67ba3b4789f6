//! One million garbage frames against a node on loopback; prints its memory after every hundred thousand.
//!
//! `cargo run --release -p svc-dht --example garbage_frames` fails if memory grows after the first hundred thousand, or if the
//! node's counters do not add up to what was sent. Another number of frames may be given.
#![allow(
    clippy::disallowed_methods,
    reason = "it is a program of its own: clock, files and runtime are the machine's"
)]

#[path = "../tests/garbage/flood.rs"]
mod flood;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let frames = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(flood::run(frames.unwrap_or(1_000_000)));
}
