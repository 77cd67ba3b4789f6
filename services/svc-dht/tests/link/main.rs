//! Connections between nodes: most in a world whose clock is paused and whose streams are in memory, a few over TCP.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test's world is a seam of its own"
)]

mod asking;
mod deadlines;
mod ending;
mod frames;
mod handshakes;
mod heap;
mod limits;
mod node;
mod pool;
mod tcp;
mod world;
