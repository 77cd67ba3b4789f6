//! The whole service, task by task and queue by queue, in a world without wall time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests are the service's callers, and stand outside of it"
)]

mod audit;
mod backends;
mod busy;
mod clockwork;
mod door;
mod drain;
mod op_ids;
mod parts;
mod rotation;
mod tasks;
mod writers;
