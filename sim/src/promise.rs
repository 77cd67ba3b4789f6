//! What the system promises to survive: the one place where it is said.
//!
//! A plan never asks for more. Faults beyond the promise are refused in a scenario unless it says so itself, and
//! what would break more nodes at once than a scenario allows is left out of the plan.

use crate::{plan::Planned, scenario::Scenario};

/// Kinds of faults, and what holds while and after they strike.
pub struct Promise {
    pub kinds: &'static [&'static str],
    pub holds: &'static str,
}

pub const PROMISES: &[Promise] = &[
    Promise {
        kinds: &[
            "net.latency",
            "net.loss",
            "net.duplicate",
            "net.reorder",
            "net.partition",
            "net.reset",
            "net.half_open",
            "net.slow",
            "net.connect_hang",
        ],
        holds: "every request ends by its deadline; an outcome that nobody can know is called unknown; after the heal every node serves",
    },
    Promise {
        kinds: &[
            "node.kill",
            "node.restart",
            "node.power_off",
            "disk.crash_at_op",
            "disk.kill_at_op",
            "disk.kill_at_start",
            "disk.sync_kills",
        ],
        holds: "what was acknowledged is there after the next start; a stale process changes nothing",
    },
    Promise {
        kinds: &["node.shutdown", "node.shutdown_twice"],
        holds: "what was accepted is finished or counted as lost, within the drain deadlines; no task is left",
    },
    Promise {
        kinds: &["node.pause", "cpu.slow"],
        holds: "late, never wrong",
    },
    Promise {
        kinds: &["disk.stall", "disk.errors", "disk.full", "disk.sync_fails"],
        holds: "an honest error or a late answer; nothing is acknowledged that is not durable",
    },
    Promise {
        kinds: &["backend.away", "backend.hangs", "backend.slow"],
        holds: "a use of a key fails in time and can be tried again; verifying goes on by what is known, up to its age limit",
    },
    Promise {
        kinds: &["disk.restore"],
        holds: "a store that is behind its log is noticed: no number is used twice",
    },
    Promise {
        kinds: &["clock.jump", "clock.drift"],
        holds: "durations and deadlines follow the monotonic clock alone",
    },
    Promise {
        kinds: &["task.panic"],
        holds: "the task is restarted within its budget, what it held is counted, and readiness tells the truth",
    },
];

/// Faults that no promise covers, and why.
pub const BEYOND: &[(&str, &str)] = &[
    (
        "disk.sync_lies",
        "a disk that says it has synced and has not cannot be told from an honest one without a second copy",
    ),
    (
        "disk.bit_rot",
        "rotten bytes are noticed by their checksum; bringing them back needs a second copy",
    ),
];

/// Why a fault is beyond what is promised, if it is.
pub fn beyond(kind: &str) -> Option<&'static str> {
    let found = BEYOND.iter().find(|(name, _)| *name == kind);
    found.map(|(_, why)| *why)
}

/// A fault that strikes by chance stays at least this long: one that comes and goes faster than a request
/// lasts tests nothing but the dice.
pub const LASTS_AT_LEAST_MS: u64 = 100;

/// Leaves out what would put more nodes out of service at once than the scenario allows.
pub fn keep(scenario: &Scenario, plan: Vec<Planned>) -> Vec<Planned> {
    let Some(most) = scenario.swarm.most_down else {
        return plan;
    };
    let mut down: Vec<(u64, String)> = Vec::new();
    let mut kept = Vec::new();
    for planned in plan {
        if !takes_down(planned.fault.kind()) {
            kept.push(planned);
            continue;
        }
        let settles_ms = planned.fault.lasts_ms() + COMES_BACK_WITHIN_MS;
        down.retain(|(until_us, _)| *until_us > planned.at_us);
        let others = down.iter().filter(|(_, on)| *on != planned.on);
        let others: std::collections::BTreeSet<_> = others.map(|(_, on)| on).collect();
        if others.len() < most as usize {
            down.push((planned.at_us + settles_ms * 1000, planned.on.clone()));
            kept.push(planned);
        }
    }
    kept
}

/// What a node may need, once its fault has ended, to be of use again.
const COMES_BACK_WITHIN_MS: u64 = 1000;

fn takes_down(kind: &str) -> bool {
    kind.starts_with("node.")
        || matches!(
            kind,
            "net.partition"
                | "net.connect_hang"
                | "disk.crash_at_op"
                | "disk.kill_at_op"
                | "disk.kill_at_start"
                | "disk.sync_kills"
                | "disk.stall"
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{FAULT_KINDS, Fault};

    #[test]
    fn every_fault_is_promised_or_said_to_be_beyond_the_promise() {
        for kind in FAULT_KINDS {
            let promised = PROMISES.iter().filter(|p| p.kinds.contains(&kind.name));
            let told = promised.count() + usize::from(beyond(kind.name).is_some());
            assert_eq!(told, 1, "{}", kind.name);
        }
        let named: usize = PROMISES.iter().map(|p| p.kinds.len()).sum();
        assert_eq!(named + BEYOND.len(), FAULT_KINDS.len());
    }

    #[test]
    fn no_more_nodes_are_down_at_once_than_the_scenario_allows() {
        let text = "about = \"x\"\n[[node]]\nname = \"pool\"\nservice = \"pool\"\ncount = 3\n\
            [swarm]\nmost_down = 1\n\
            [check]\neventually = { within_s = 1, hold = [] }\n";
        let scenario = Scenario::parse("x", "x.toml", text).expect("a valid scenario");
        let strike = |at_ms: u64, on: &str, fault| Planned {
            at_us: at_ms * 1000,
            on: on.to_owned(),
            fault,
        };
        let plan = vec![
            strike(0, "pool", Fault::Kill { down_ms: 500 }),
            strike(100, "pool-2", Fault::Pause { for_ms: 10 }),
            strike(200, "pool-2", Fault::ResetConnections),
            strike(300, "pool", Fault::Pause { for_ms: 10 }),
            strike(2000, "pool-2", Fault::Pause { for_ms: 10 }),
        ];
        let kept: Vec<u64> = keep(&scenario, plan)
            .iter()
            .map(|p| p.at_us / 1000)
            .collect();
        assert_eq!(kept, [0, 200, 300, 2000]);
    }
}
