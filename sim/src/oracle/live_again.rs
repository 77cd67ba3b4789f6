//! Liveness: after the plan everything heals, and what the scenario says must hold again within its
//! budget. The run itself judges this one, since it must act to find out.

/// The name under which a missed budget is reported.
pub const LIVE_AGAIN: &str = "world.live_again";
