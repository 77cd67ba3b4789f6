//! The whole service, task by task and queue by queue, in a world without wall time.

mod audit;
mod backends;
mod busy;
mod clockwork;
mod door;
mod drain;
mod parts;
mod tasks;
mod writers;
