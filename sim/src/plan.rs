//! The plan: which fault strikes where, when and for how long. Plain data, drawn from the seed before
//! the world begins, so that it can be printed, saved, and later shrunk.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    scenario::{FaultSpec, Scenario, Span},
    seed,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    pub at_us: u64,
    pub on: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The process dies; its machine lives. Started again after the time.
    Kill {
        down_ms: u64,
    },
    /// The machine dies: unsynced bytes may be lost, peers hear nothing.
    PowerOff {
        down_ms: u64,
    },
    /// An orderly shutdown is asked for; the node is started again after the time.
    Shutdown {
        again_ms: Option<u64>,
        restart_after_ms: u64,
    },
    Pause {
        for_ms: u64,
    },
    /// Cut off from everybody; one way: its own words still arrive.
    Partition {
        for_ms: u64,
        one_way: bool,
    },
    Loss {
        for_ms: u64,
        per_10_000: u32,
    },
    Latency {
        for_ms: u64,
        factor: u32,
    },
    SlowLink {
        for_ms: u64,
        bytes_per_s: u64,
    },
    ConnectHang {
        for_ms: u64,
    },
    ResetConnections,
    DiskStall {
        for_ms: u64,
    },
    DiskErrors {
        for_ms: u64,
        per_10_000: u32,
    },
    SyncFails {
        for_ms: u64,
        per_10_000: u32,
    },
    SyncLies {
        for_ms: u64,
    },
    DiskFull {
        for_ms: u64,
        free_bytes: u64,
    },
    /// The node dies in its Nth disk operation from now.
    CrashAtDiskOp {
        nth: u64,
        down_ms: u64,
    },
    BitRot,
    ClockJump {
        by_ms: i64,
    },
    ClockDrift {
        ppm: i64,
    },
    Panic {
        task: String,
        count: u32,
    },
    SlowCpu {
        for_ms: u64,
        factor: u32,
    },
}

/// A fault kind of the catalogue: its name in a scenario, what keys it takes, what it becomes.
pub struct FaultKind {
    pub name: &'static str,
    pub keys: &'static [&'static str],
    make: fn(&Drawn<'_>) -> Fault,
}

pub const FAULT_KINDS: &[FaultKind] = &[
    FaultKind {
        name: "node.kill",
        keys: &["for_ms"],
        make: |d| Fault::Kill {
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.power_off",
        keys: &["for_ms"],
        make: |d| Fault::PowerOff {
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.shutdown",
        keys: &["for_ms"],
        make: |d| Fault::Shutdown {
            again_ms: None,
            restart_after_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.shutdown_twice",
        keys: &["for_ms", "by_ms"],
        make: |d| Fault::Shutdown {
            again_ms: Some(d.number(d.spec.by_ms, 0.0).max(0) as u64),
            restart_after_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.pause",
        keys: &["for_ms"],
        make: |d| Fault::Pause { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "net.partition",
        keys: &["for_ms", "one_way"],
        make: |d| Fault::Partition {
            for_ms: d.for_ms(),
            one_way: d.spec.one_way,
        },
    },
    FaultKind {
        name: "net.loss",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::Loss {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(500.0),
        },
    },
    FaultKind {
        name: "net.latency",
        keys: &["for_ms", "factor"],
        make: |d| Fault::Latency {
            for_ms: d.for_ms(),
            factor: d.factor(),
        },
    },
    FaultKind {
        name: "net.slow",
        keys: &["for_ms", "bytes"],
        make: |d| Fault::SlowLink {
            for_ms: d.for_ms(),
            bytes_per_s: d.bytes(20_000.0).max(1),
        },
    },
    FaultKind {
        name: "net.connect_hang",
        keys: &["for_ms"],
        make: |d| Fault::ConnectHang { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "net.reset",
        keys: &[],
        make: |_| Fault::ResetConnections,
    },
    FaultKind {
        name: "disk.stall",
        keys: &["for_ms"],
        make: |d| Fault::DiskStall { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "disk.errors",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::DiskErrors {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(1000.0),
        },
    },
    FaultKind {
        name: "disk.sync_fails",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::SyncFails {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(1000.0),
        },
    },
    FaultKind {
        name: "disk.sync_lies",
        keys: &["for_ms"],
        make: |d| Fault::SyncLies { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "disk.full",
        keys: &["for_ms", "bytes"],
        make: |d| Fault::DiskFull {
            for_ms: d.for_ms(),
            free_bytes: d.bytes(0.0),
        },
    },
    FaultKind {
        name: "disk.crash_at_op",
        keys: &["nth", "for_ms"],
        make: |d| Fault::CrashAtDiskOp {
            nth: d.number(d.spec.nth, 1.0).max(1) as u64,
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "disk.bit_rot",
        keys: &[],
        make: |_| Fault::BitRot,
    },
    FaultKind {
        name: "clock.jump",
        keys: &["by_ms"],
        make: |d| Fault::ClockJump {
            by_ms: d.number(d.spec.by_ms, 60_000.0),
        },
    },
    FaultKind {
        name: "clock.drift",
        keys: &["ppm"],
        make: |d| Fault::ClockDrift {
            ppm: d.number(d.spec.ppm, 100.0),
        },
    },
    FaultKind {
        name: "task.panic",
        keys: &["task", "count"],
        make: |d| Fault::Panic {
            task: d.spec.task.clone().unwrap_or_else(|| "worker".to_owned()),
            count: d.number(d.spec.count, 1.0).max(1) as u32,
        },
    },
    FaultKind {
        name: "cpu.slow",
        keys: &["for_ms", "factor"],
        make: |d| Fault::SlowCpu {
            for_ms: d.for_ms(),
            factor: d.factor(),
        },
    },
];

/// Draws one occurrence of a fault.
struct Drawn<'a> {
    spec: &'a FaultSpec,
    rng: std::cell::RefCell<&'a mut seed::SimRng>,
}

impl Drawn<'_> {
    fn number(&self, span: Option<Span>, default: f64) -> i64 {
        span.unwrap_or(Span::fixed(default))
            .draw_signed(&mut self.rng.borrow_mut())
    }

    fn for_ms(&self) -> u64 {
        self.number(self.spec.for_ms, 1000.0).max(0) as u64
    }

    fn per_10_000(&self, default: f64) -> u32 {
        self.number(self.spec.per_10_000, default).clamp(0, 10_000) as u32
    }

    fn factor(&self) -> u32 {
        self.number(self.spec.factor, 10.0).clamp(1, 1_000_000) as u32
    }

    fn bytes(&self, default: f64) -> u64 {
        self.number(self.spec.bytes, default).max(0) as u64
    }
}

/// Draws the whole plan of a seed, in order of time.
pub fn draw(scenario: &Scenario, seed: u64, nodes: &[String]) -> Vec<Planned> {
    let mut plan = Vec::new();
    for (index, spec) in scenario.fault.iter().enumerate() {
        let mut rng = seed::stream(seed, &format!("fault {index} {}", spec.kind));
        let kind = FAULT_KINDS
            .iter()
            .find(|k| k.name == spec.kind)
            .expect("validated");
        for _ in 0..spec.times.unwrap_or(Span::fixed(1.0)).draw_count(&mut rng) {
            let matching: Vec<&String> = nodes.iter().filter(|n| matches(&spec.on, n)).collect();
            let on = matching[seed::pick(&mut rng, 0, matching.len() as u64 - 1) as usize].clone();
            let at_us = spec.at_s.draw_secs(&mut rng).as_micros() as u64;
            let drawn = Drawn {
                spec,
                rng: (&mut rng).into(),
            };
            let fault = (kind.make)(&drawn);
            plan.push(Planned { at_us, on, fault });
        }
    }
    plan.sort_by_key(|planned| planned.at_us);
    plan
}

/// `pool` names the node `pool` and, as a group, `pool-2`, `pool-3` …
pub fn matches(on: &str, node: &str) -> bool {
    node == on
        || on == "*"
        || node
            .strip_prefix(on)
            .is_some_and(|rest| rest.starts_with('-'))
}

impl Planned {
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.at_us)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill { down_ms } => write!(f, "node.kill, down {down_ms} ms"),
            Fault::PowerOff { down_ms } => write!(f, "node.power_off, down {down_ms} ms"),
            Fault::Shutdown { again_ms: None, .. } => write!(f, "node.shutdown"),
            Fault::Shutdown {
                again_ms: Some(ms), ..
            } => write!(f, "node.shutdown, again after {ms} ms"),
            Fault::Pause { for_ms } => write!(f, "node.pause {for_ms} ms"),
            Fault::Partition { for_ms, one_way } => {
                write!(
                    f,
                    "net.partition {for_ms} ms{}",
                    if *one_way { ", one way" } else { "" }
                )
            }
            Fault::Loss { for_ms, per_10_000 } => {
                write!(f, "net.loss {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::Latency { for_ms, factor } => write!(f, "net.latency x{factor} for {for_ms} ms"),
            Fault::SlowLink {
                for_ms,
                bytes_per_s,
            } => write!(f, "net.slow {bytes_per_s} B/s for {for_ms} ms"),
            Fault::ConnectHang { for_ms } => write!(f, "net.connect_hang {for_ms} ms"),
            Fault::ResetConnections => write!(f, "net.reset"),
            Fault::DiskStall { for_ms } => write!(f, "disk.stall {for_ms} ms"),
            Fault::DiskErrors { for_ms, per_10_000 } => {
                write!(f, "disk.errors {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::SyncFails { for_ms, per_10_000 } => {
                write!(f, "disk.sync_fails {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::SyncLies { for_ms } => write!(f, "disk.sync_lies {for_ms} ms"),
            Fault::DiskFull { for_ms, free_bytes } => {
                write!(f, "disk.full ({free_bytes} B free) for {for_ms} ms")
            }
            Fault::CrashAtDiskOp { nth, .. } => write!(f, "disk.crash_at_op {nth}"),
            Fault::BitRot => write!(f, "disk.bit_rot"),
            Fault::ClockJump { by_ms } => write!(f, "clock.jump {by_ms:+} ms"),
            Fault::ClockDrift { ppm } => write!(f, "clock.drift {ppm:+} ppm"),
            Fault::Panic { task, count } => write!(f, "task.panic {count}x {task}"),
            Fault::SlowCpu { for_ms, factor } => write!(f, "cpu.slow x{factor} for {for_ms} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(faults: &str) -> Scenario {
        let text = format!(
            "about = \"x\"\n[[node]]\nname = \"pool\"\nservice = \"pool\"\ncount = 3\n{faults}\n\
             [check]\nalways = []\neventually = {{ within_s = 1, hold = [] }}\n"
        );
        Scenario::parse("x", "x.toml", &text).expect("a valid scenario")
    }

    fn nodes() -> Vec<String> {
        ["pool", "pool-2", "pool-3"].map(str::to_owned).to_vec()
    }

    /// Every kind once, its times far apart enough to be told from each other.
    fn every_kind() -> Scenario {
        let faults = FAULT_KINDS.iter().map(|kind| {
            let key = |key: &&str| match *key {
                "task" => "task = \"worker\"\n".to_owned(),
                "one_way" => "one_way = true\n".to_owned(),
                key => format!("{key} = [10, 20]\n"),
            };
            let keys: String = kind.keys.iter().map(key).collect();
            let name = kind.name;
            format!(
                "[[fault]]\nkind = \"{name}\"\non = \"*\"\nat_s = [1, 3]\ntimes = [2, 4]\n{keys}"
            )
        });
        scenario(&faults.collect::<String>())
    }

    /// All numbers of a fault.
    fn numbers(fault: &Fault) -> Vec<i64> {
        let json = serde_json::to_value(fault).expect("a fault is data");
        let fields = json.as_object().expect("with named fields").values();
        fields.filter_map(serde_json::Value::as_i64).collect()
    }

    #[test]
    fn a_plan_keeps_to_the_ranges_of_its_scenario_and_to_the_order_of_time() {
        let scenario = every_kind();
        let (mut times, mut struck) = (Vec::new(), Vec::new());
        for seed in 0..50 {
            let plan = draw(&scenario, seed, &nodes());
            assert!(plan.is_sorted_by_key(|planned| planned.at_us));
            let whole = 2 * FAULT_KINDS.len()..=4 * FAULT_KINDS.len();
            assert!(whole.contains(&plan.len()), "{}", plan.len());
            for planned in plan {
                assert!((1_000_000..=3_000_000).contains(&planned.at_us));
                for n in numbers(&planned.fault) {
                    assert!((10..=20).contains(&n), "{n} in {:?}", planned.fault);
                }
                times.push(planned.at_us);
                struck.push(planned.on);
            }
        }
        // Drawn, not fixed: near both ends, and on every node.
        assert!(times.iter().any(|at| *at < 1_050_000) && times.iter().any(|at| *at > 2_950_000));
        assert!(nodes().iter().all(|node| struck.contains(node)));
    }

    #[test]
    fn a_seed_always_draws_the_same_plan_and_another_seed_another() {
        let scenario = every_kind();
        assert_eq!(draw(&scenario, 7, &nodes()), draw(&scenario, 7, &nodes()));
        assert_ne!(draw(&scenario, 7, &nodes()), draw(&scenario, 8, &nodes()));
    }

    #[test]
    fn taking_a_later_fault_out_does_not_shift_what_the_others_draw() {
        let one = "[[fault]]\nkind = \"net.loss\"\non = \"*\"\nat_s = [1, 9]\n";
        let two = format!("{one}[[fault]]\nkind = \"net.slow\"\non = \"*\"\nat_s = [1, 9]\n");
        let alone = draw(&scenario(one), 3, &nodes());
        assert!(draw(&scenario(&two), 3, &nodes()).contains(&alone[0]));
    }

    #[test]
    fn a_plan_that_was_saved_is_the_same_plan() {
        let plan = draw(&every_kind(), 1, &nodes());
        let text = serde_json::to_string(&plan).expect("a plan is data");
        let back: Vec<Planned> = serde_json::from_str(&text).expect("and can be read back");
        assert_eq!(plan, back);
    }

    #[test]
    fn a_name_means_its_node_and_its_group_and_no_other() {
        for (on, node, expected) in [
            ("pool", "pool", true),
            ("pool", "pool-2", true),
            ("pool-2", "pool-2", true),
            ("pool-2", "pool", false),
            ("pool", "pools", false),
            ("*", "pool", true),
        ] {
            assert_eq!(matches(on, node), expected, "{on} {node}");
        }
    }
}
