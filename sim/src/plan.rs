//! The plan: everything that will be done to a world. Which fault strikes where, when and for how long; which
//! client asks for what; which points of the code are bent; how large the nodes are.
//!
//! Plain data, drawn from the seed before the world begins, so that it can be printed, saved and shrunk. The
//! draws of each part are independent: taking one out changes none of the others.

mod fault;
mod kinds;

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use self::kinds::Drawn;
pub use self::{
    fault::Fault,
    kinds::{FAULT_KINDS, FaultKind},
};
use crate::{
    ops::{self, Op},
    promise,
    scenario::{Scenario, Span},
    seed,
    swarm::{self, Bent},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Drawn settings of nodes, by the node's name in the scenario.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: BTreeMap<String, toml::Table>,
    /// In order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Planned>,
    /// Points of the code that may do what is rare but allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buggify: Vec<Bent>,
    /// What clients ask for, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<Op>,
}

impl Plan {
    /// All that this seed draws.
    pub fn draw(scenario: &Scenario, seed: u64) -> Plan {
        Plan {
            sizes: swarm::sizes(scenario, seed),
            faults: draw(scenario, seed, &crate::catalogue::node_names(scenario)),
            buggify: swarm::buggify(scenario, seed),
            ops: ops::draw(scenario, seed),
        }
    }

    /// What was drawn, a line each; operations are told by their workload.
    pub fn options(&self) -> Vec<String> {
        let sizes = self.sizes.iter().flat_map(|(node, table)| {
            table
                .iter()
                .map(move |(key, value)| format!("size {node} {key}={value}"))
        });
        let faults = self.faults.iter().map(Planned::to_string);
        sizes
            .chain(self.buggify.iter().map(Bent::to_string))
            .chain(faults)
            .collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    pub at_us: u64,
    pub on: String,
    pub fault: Fault,
}

/// Draws the faults of a seed, in order of time, and leaves out what would ask for more than is promised.
pub fn draw(scenario: &Scenario, seed: u64, nodes: &[String]) -> Vec<Planned> {
    let mut plan = Vec::new();
    let moods = swarm::moods(scenario, seed);
    for (index, spec) in scenario.fault.iter().enumerate() {
        let Some(mood) = moods[index] else { continue };
        let mut rng = seed::stream(seed, &format!("fault {index} {}", spec.kind));
        let kind = FAULT_KINDS
            .iter()
            .find(|k| k.name == spec.kind)
            .expect("validated");
        let times = mood.how_often.of(spec.times.unwrap_or(Span::fixed(1.0)));
        for _ in 0..times.draw_count(&mut rng) {
            let matching: Vec<&String> = nodes.iter().filter(|n| matches(&spec.on, n)).collect();
            let on = matching[seed::pick(&mut rng, 0, matching.len() as u64 - 1) as usize].clone();
            let at_us = spec.at_s.draw_secs(&mut rng).as_micros() as u64;
            let drawn = Drawn {
                spec,
                mood,
                rng: (&mut rng).into(),
            };
            let fault = (kind.make)(&drawn);
            plan.push(Planned { at_us, on, fault });
        }
    }
    plan.sort_by_key(|planned| planned.at_us);
    promise::keep(scenario, plan)
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

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at().as_secs_f64();
        write!(f, "{} on {} at {at:.3}s", self.fault, self.on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(faults: &str) -> Scenario {
        let text = format!(
            "about = \"x\"\n[[node]]\nname = \"pool\"\nservice = \"pool\"\ncount = 3\n{faults}\n\
             [swarm]\nfaults = false\n[check]\neventually = {{ within_s = 1, hold = [] }}\n"
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
                "path" => "path = \"items\"\n".to_owned(),
                key => format!("{key} = [100, 200]\n"),
            };
            let keys: String = kind.keys.iter().map(key).collect();
            let name = kind.name;
            let beyond = promise::beyond(name).is_some();
            format!(
                "[[fault]]\nkind = \"{name}\"\non = \"*\"\nat_s = [1, 3]\ntimes = [2, 4]\nbeyond_promise = {beyond}\n{keys}"
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
                    assert!((100..=200).contains(&n), "{n} in {:?}", planned.fault);
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
