//! Garbage by the ten thousand, over real sockets. The example `garbage_frames` sends a million of the same.
#![allow(
    clippy::disallowed_methods,
    reason = "the test starts the runtime that the node runs on, and reads this process's memory"
)]

mod flood;

// proves: DHT-7.3
#[test]
fn garbage_is_counted_frame_by_frame_and_leaves_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(flood::run(20_000));
}
