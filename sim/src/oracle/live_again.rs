//! Laws that the run itself judges, since it must act to find out.
//!
//! Liveness: after the plan everything heals, and what the scenario says must hold again within its budget.
//! And a run comes to its end: it neither spins, nor hangs, nor panics outside of the tasks it simulates.

/// A missed budget of liveness.
pub const LIVE_AGAIN: &str = "world.live_again";
/// Tasks that wake each other for ever.
pub const NO_SPIN: &str = "world.no_spin";
/// Operations that never end, or a task that blocks its thread.
pub const NO_HANG: &str = "world.no_hang";
/// A panic of the world itself.
pub const NO_PANIC: &str = "world.no_panic";
