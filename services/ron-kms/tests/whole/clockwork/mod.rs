//! A world for a whole service: one machine of the kit's, and a node on it.

pub mod backend;
pub mod node;

use std::net::SocketAddr;

pub use kit::world::Machine as World;

/// Where a node listens.
pub const ADDR: SocketAddr = SocketAddr::new(kit::world::HOME, 7480);

/// Runs `body` to its end in a world of its own.
pub fn in_world<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    kit::world::in_world(|world| body(world.machine(kit::world::HOME)));
}
