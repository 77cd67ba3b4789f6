//! Whole nodes, several at once, in a world without wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests are the nodes' callers, and stand outside of them"
)]

mod api;
mod bad_input;
mod busy;
mod drain;
mod network;
mod node;
mod openapi;
mod parts;
mod records;
mod stranger;

use kit::world as clockwork;
