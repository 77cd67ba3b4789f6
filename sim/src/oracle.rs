//! Oracles: laws that every run must keep. One file each, under `oracles/`.
//!
//! An oracle sees each event as it happens and, now and then, the whole world. It remembers what it
//! needs and speaks only when a law is broken, saying what a person needs to know.

use std::{collections::BTreeMap, fmt, time::Duration};

use ron_core::view::{QueueStats, TaskCounts};

use crate::{dht::oracle as dht, disk::SimDisk, kms::oracle as kms, trace::Event};

mod aborts_counted;
mod acked_is_durable;
mod body_cap;
mod bus_losses;
mod deadline_kept;
mod drain_within_deadline;
mod drilled_is_durable;
mod drills_hold;
mod live_again;
mod none_aborted;
mod none_alive_after_stop;
mod nothing_lost;
mod one_outcome;
mod problems_sound;
mod queue_conserves;
mod queue_depth;
mod ready_again;
mod ready_never_drops;
mod ready_off_while_down;
mod ready_says_why;
mod restart_budget;
mod snapshot_fresh;
mod stale_changes_nothing;
mod time_moves_forward;

pub use live_again::{LIVE_AGAIN, NO_HANG, NO_PANIC, NO_SPIN};

pub type Verdict = Result<(), String>;

pub trait Oracle: Send {
    fn name(&self) -> &'static str;

    fn event(&mut self, event: &Event) -> Verdict {
        let _ = event;
        Ok(())
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        let _ = view;
        Ok(())
    }

    fn finish(&mut self, view: &WorldView) -> Verdict {
        self.sample(view)
    }

    /// The model it steps along with the run, if it does: it is then shown that model's specification events.
    fn model(&self) -> Option<&'static str> {
        None
    }

    /// A specification event of its model; such events are not part of the trace.
    fn spec(&mut self, event: &Event) -> Verdict {
        let _ = event;
        Ok(())
    }

    /// How often the model took each kind of step, so far.
    fn transitions(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The world as oracles see it between events.
pub struct WorldView {
    pub at: Duration,
    pub nodes: Vec<NodeView>,
}

pub struct NodeView {
    pub id: u32,
    pub name: String,
    pub service: &'static str,
    pub up: bool,
    pub incarnation: u32,
    pub queues: Vec<QueueStats>,
    pub tasks: BTreeMap<&'static str, TaskCounts>,
    pub disk: SimDisk,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: Duration,
    pub oracle: &'static str,
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {:.3}s: {}",
            self.oracle,
            self.at.as_secs_f64(),
            self.why
        )
    }
}

/// An oracle of the catalogue.
pub struct OracleKind {
    pub name: &'static str,
    pub law: &'static str,
    pub make: fn() -> Box<dyn Oracle>,
}

pub const ORACLES: &[OracleKind] = &[
    one_outcome::KIND,
    problems_sound::KIND,
    body_cap::KIND,
    deadline_kept::KIND,
    queue_conserves::KIND,
    queue_depth::KIND,
    nothing_lost::KIND,
    none_alive_after_stop::KIND,
    aborts_counted::KIND,
    none_aborted::KIND,
    drain_within_deadline::KIND,
    ready_says_why::KIND,
    ready_again::KIND,
    ready_never_drops::KIND,
    ready_off_while_down::KIND,
    restart_budget::KIND,
    acked_is_durable::KIND,
    stale_changes_nothing::KIND,
    time_moves_forward::KIND,
    kms::log_verifies::KIND,
    kms::accounted::KIND,
    kms::strict::KIND,
    kms::covered_at_stop::KIND,
    kms::heads::KIND,
    kms::heads_linear::KIND,
    kms::tenants_apart::KIND,
    kms::verify_in_time::KIND,
    kms::nonce_once::KIND,
    kms::numbers_once::KIND,
    kms::destroyed_in_time::KIND,
    kms::digests_told::KIND,
    kms::changes_told::KIND,
    kms::all_served::KIND,
    kms::disabled_never_signs::KIND,
    kms::op_id_once::KIND,
    kms::results_hold::KIND,
    kms::pedant_content::KIND,
    kms::refusals_true::KIND,
    kms::reads_plainly::KIND,
    kms::drops_counted::KIND,
    kms::ready_tells::KIND,
    kms::answered_in_time::KIND,
    kms::covered_soon::KIND,
    kms::newest_served::KIND,
    kms::old_log::KIND,
    kms::schedules_kept::KIND,
    kms::destroyed_is_gone::KIND,
    kms::gaps_reasoned::KIND,
    kms::fair::KIND,
    kms::rot_noticed::KIND,
    kms::rot_mended::KIND,
    kms::tokens_judged::KIND,
    kms::keys_refreshed::KIND,
    kms::reload_kept::KIND,
    dht::one_writer::KIND,
    dht::republished::KIND,
    dht::table_sound::KIND,
    dht::lookup_ends::KIND,
    dht::bounds::KIND,
    dht::acked_is_held::KIND,
    dht::returned_is_valid::KIND,
    dht::network_apart::KIND,
    dht::subnets::KIND,
    snapshot_fresh::KIND,
    bus_losses::KIND,
    drills_hold::KIND,
    drilled_is_durable::KIND,
    crate::conformance::kms_audit::KIND,
    crate::conformance::kms_keys::KIND,
    crate::conformance::lifecycle::KIND,
    crate::conformance::queue::KIND,
];

pub fn find(name: &str) -> Option<&'static OracleKind> {
    ORACLES.iter().find(|kind| kind.name == name)
}
