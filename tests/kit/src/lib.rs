//! What tests stand on, once for all: [`world`] runs services on a paused clock, with connections and files in memory;
//! [`disk`] is a disk that does as it is told.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the seam for these tests, as `io` and `sim` are for the rest"
)]

pub mod disk;
pub mod world;
