//! The laws of the worker pool, one file each.

mod acked_is_durable;
mod body_cap;
mod bus_losses;
mod deadline_kept;
mod drilled_is_durable;
mod drills_hold;
mod nothing_lost;
mod snapshot_fresh;

use crate::oracle::OracleKind;

pub const LAWS: &[OracleKind] = &[
    body_cap::KIND,
    deadline_kept::KIND,
    nothing_lost::KIND,
    acked_is_durable::KIND,
    snapshot_fresh::KIND,
    bus_losses::KIND,
    drills_hold::KIND,
    drilled_is_durable::KIND,
    super::conformance::KIND,
];
