//! Oracles: laws that every run must keep, one file each. The kernel's are here, a service's beside its node.
//!
//! An oracle sees each event as it happens and, now and then, the whole world. It remembers what it
//! needs and speaks only when a law is broken, saying what a person needs to know.

use std::{collections::BTreeMap, fmt, time::Duration};

use ron_core::view::{QueueStats, TaskCounts};

use crate::{disk::SimDisk, scenario::Scenario, trace::Event};

mod aborts_counted;
mod drain_within_deadline;
mod live_again;
mod none_aborted;
mod none_alive_after_stop;
mod one_outcome;
mod problems_sound;
mod queue_conserves;
mod queue_depth;
mod ready_again;
mod ready_never_drops;
mod ready_off_while_down;
mod ready_says_why;
mod restart_budget;
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

impl Violation {
    /// What failed, whatever its numbers: two runs fail alike if it is the same. It is the oracle and what it said up to
    /// the first semicolon, with `#` for each word that differs from run to run (numbers, names of keys).
    pub fn fingerprint(&self) -> String {
        let said = self.why.split(';').next().unwrap_or_default();
        let varies = |word: &str| word.len() > 20 || word.bytes().any(|b| b.is_ascii_digit());
        let word = |word| if varies(word) { "#" } else { word };
        let said: Vec<_> = said.split_whitespace().map(word).collect();
        format!("{}: {}", self.oracle, said.join(" "))
    }
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

/// A law, and who watches over it.
pub struct OracleKind {
    pub name: &'static str,
    pub law: &'static str,
    /// In which scenarios it can be demanded at all: a law about undisturbed drains says nothing where they are disturbed.
    pub premise: fn(&Scenario) -> bool,
    pub make: fn() -> Box<dyn Oracle>,
}

/// The premise of a law that holds whatever happens.
pub const EVERYWHERE: fn(&Scenario) -> bool = |_| true;

/// The laws of the kernel: they hold in every scenario of every service.
pub const KERNEL: &[OracleKind] = &[
    one_outcome::KIND,
    problems_sound::KIND,
    queue_conserves::KIND,
    queue_depth::KIND,
    none_alive_after_stop::KIND,
    aborts_counted::KIND,
    none_aborted::KIND,
    drain_within_deadline::KIND,
    ready_says_why::KIND,
    ready_again::KIND,
    ready_never_drops::KIND,
    ready_off_while_down::KIND,
    restart_budget::KIND,
    stale_changes_nothing::KIND,
    time_moves_forward::KIND,
    crate::conformance::lifecycle::KIND,
];

pub fn find(name: &str) -> Option<&'static OracleKind> {
    crate::services::laws().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_failures_apart_but_not_their_numbers() {
        let said = |oracle, why: &str| {
            let (at, why) = (Duration::ZERO, why.to_owned());
            Violation { at, oracle, why }.fingerprint()
        };
        let lost = said("a.b", "item 3 is on no disk (2 such items)");
        assert_eq!(lost, "a.b: item # is on no disk # such items)");
        assert_eq!(lost, said("a.b", "item 77 is on no disk (1 such items)"));
        for (oracle, why) in [
            ("a.c", "item 3 is on no disk (2 such items)"),
            ("a.b", "item 3 was stored twice"),
        ] {
            assert_ne!(lost, said(oracle, why));
        }
        assert_eq!(
            said("m", "left; the model stands at X"),
            said("m", "left; Y")
        );
        assert_ne!(
            said("l", "kms.ready: NotSent"),
            said("l", "kms.serves: NotSent")
        );
    }
}
