//! Swarm: a seed draws not only when faults strike, but which of them exist at all in its run, whether they
//! are rare or frequent, short or long, how large the nodes are, and which points of the code are bent.
//!
//! A run with everything at once finds less than many runs with a few things each: some faults hide others.
//! Always: what is drawn stays inside the ranges of the scenario; at least one fault stays on; every draw is
//! told.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    catalogue,
    scenario::{Scenario, Span},
    seed::{self, SimRng},
};

/// How this run treats one fault of its scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mood {
    pub how_often: Part,
    pub how_long: Part,
}

/// Which part of a range is drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    Low,
    #[default]
    Whole,
    High,
}

impl Part {
    fn draw(rng: &mut SimRng) -> Self {
        [Part::Low, Part::Whole, Part::High][seed::pick(rng, 0, 2) as usize]
    }

    pub fn of(self, span: Span) -> Span {
        let middle = f64::midpoint(span.lo, span.hi);
        match self {
            Part::Low => Span { hi: middle, ..span },
            Part::Whole => span,
            Part::High => Span { lo: middle, ..span },
        }
    }
}

/// A fault is on in this many of a hundred runs.
const ON_PERCENT: u64 = 66;

/// For each fault of the scenario: off, or how.
pub fn moods(scenario: &Scenario, seed: u64) -> Vec<Option<Mood>> {
    let specs = scenario.fault.iter().enumerate();
    if !scenario.swarm.faults {
        return specs.map(|_| Some(Mood::default())).collect();
    }
    let mut moods: Vec<_> = specs
        .map(|(index, spec)| {
            let mut rng = seed::stream(seed, &format!("swarm {index} {}", spec.kind));
            let on = seed::pick(&mut rng, 1, 100) <= ON_PERCENT;
            on.then(|| Mood {
                how_often: Part::draw(&mut rng),
                how_long: Part::draw(&mut rng),
            })
        })
        .collect();
    if !moods.is_empty() && moods.iter().all(Option::is_none) {
        let last = moods.len() as u64 - 1;
        let chosen = seed::pick(&mut seed::stream(seed, "swarm one"), 0, last);
        moods[chosen as usize] = Some(Mood::default());
    }
    moods
}

/// One line that tells the moods, if the seed drew any.
pub fn describe(scenario: &Scenario, seed: u64) -> Option<String> {
    if !scenario.swarm.faults || scenario.fault.is_empty() {
        return None;
    }
    let moods = moods(scenario, seed);
    let told = scenario.fault.iter().zip(moods).map(|(spec, mood)| {
        let Some(mood) = mood else {
            return format!("{} off", spec.kind);
        };
        let often = match mood.how_often {
            Part::Low => " rare",
            Part::Whole => "",
            Part::High => " frequent",
        };
        let long = match mood.how_long {
            _ if spec.for_ms.is_none() => "",
            Part::Low => " short",
            Part::Whole => "",
            Part::High => " long",
        };
        format!("{}{often}{long}", spec.kind)
    });
    Some(format!("swarm {}", told.collect::<Vec<_>>().join(" · ")))
}

// ------------------------------------------------------------------------------------------- sizes

/// The settings whose value is a range, drawn; by the node's name in the scenario.
pub fn sizes(scenario: &Scenario, seed: u64) -> BTreeMap<String, toml::Table> {
    let mut sizes = BTreeMap::new();
    for node in &scenario.node {
        let mut table = toml::Table::new();
        for (key, value) in &node.config {
            if let Some((lo, hi)) = range(value) {
                let mut rng = seed::stream(seed, &format!("size {} {key}", node.name));
                let span = Span {
                    lo: lo as f64,
                    hi: hi as f64,
                };
                table.insert(
                    key.clone(),
                    toml::Value::Integer(span.draw_signed(&mut rng)),
                );
            }
        }
        if !table.is_empty() {
            sizes.insert(node.name.clone(), table);
        }
    }
    sizes
}

/// A node's config with what was drawn, and for a range that was not, with its lowest value.
pub fn settled(config: &toml::Table, drawn: Option<&toml::Table>) -> toml::Table {
    let value_of = |(key, value): (&String, &toml::Value)| {
        let chosen = drawn.and_then(|table| table.get(key)).cloned();
        let lowest = || range(value).map(|(lo, _)| toml::Value::Integer(lo));
        let value = chosen.or_else(lowest).unwrap_or_else(|| value.clone());
        (key.clone(), value)
    };
    config.iter().map(value_of).collect()
}

/// The same config with every range at its highest.
pub fn at_most(config: &toml::Table) -> toml::Table {
    let highest = config.iter().filter_map(|(key, value)| {
        let (_, hi) = range(value)?;
        Some((key.clone(), toml::Value::Integer(hi)))
    });
    settled(config, Some(&highest.collect()))
}

/// `[4, 64]` is a range; a setting that is itself a list of two whole numbers does not exist.
fn range(value: &toml::Value) -> Option<(i64, i64)> {
    match value.as_array().map(Vec::as_slice) {
        Some([toml::Value::Integer(lo), toml::Value::Integer(hi)]) => Some((*lo, *hi)),
        _ => None,
    }
}

// ----------------------------------------------------------------------------------------- buggify

/// A point of the code that this run may bend, and how often it then does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bent {
    pub point: String,
    pub per_10_000: u32,
}

impl fmt::Display for Bent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buggify {} {}/10000", self.point, self.per_10_000)
    }
}

/// Each point is drawn in one run of this many.
const BENT_ONE_IN: u64 = 4;
const BENT_RATES: [u32; 3] = [100, 500, 2500];

pub fn buggify(scenario: &Scenario, seed: u64) -> Vec<Bent> {
    if !scenario.swarm.buggify {
        return Vec::new();
    }
    let points = catalogue::points(scenario);
    let names = points.iter().flat_map(|points| points.buggify);
    let drawn = names.filter_map(|point| {
        let mut rng = seed::stream(seed, &format!("buggify {} {point}", scenario.name));
        let on = seed::pick(&mut rng, 1, BENT_ONE_IN) == 1;
        on.then(|| Bent {
            point: (*point).to_owned(),
            per_10_000: BENT_RATES[seed::pick(&mut rng, 0, 2) as usize],
        })
    });
    drawn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(rest: &str) -> Scenario {
        let text = format!(
            "about = \"x\"\n[[node]]\nname = \"pool\"\nservice = \"pool\"\n\
             config = {{ workers = [2, 5], queue_cap = 8 }}\n{rest}\n\
             [check]\neventually = {{ within_s = 1, hold = [] }}\n"
        );
        Scenario::parse("x", "x.toml", &text).expect("a valid scenario")
    }

    const TWO: &str = "[[fault]]\nkind = \"disk.stall\"\non = \"pool\"\ntimes = [0, 8]\nfor_ms = [0, 100]\n\
                       [[fault]]\nkind = \"net.reset\"\non = \"pool\"\n";

    #[test]
    fn seeds_differ_in_which_faults_are_on_and_one_always_is() {
        let scenario = scenario(TWO);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let on: Vec<bool> = moods(&scenario, seed).iter().map(Option::is_some).collect();
            assert!(on.contains(&true), "seed {seed} has nothing to try");
            assert_eq!(moods(&scenario, seed), moods(&scenario, seed));
            seen.insert(on);
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
    }

    #[test]
    fn switched_off_every_fault_is_on_over_its_whole_range() {
        let scenario = scenario(&format!("{TWO}[swarm]\nfaults = false\nbuggify = false\n"));
        for seed in 0..50 {
            assert_eq!(moods(&scenario, seed), [Some(Mood::default()); 2]);
            assert!(buggify(&scenario, seed).is_empty());
        }
        assert_eq!(describe(&scenario, 1), None);
    }

    #[test]
    fn a_part_of_a_range_stays_inside_it() {
        let span = Span { lo: 2.0, hi: 8.0 };
        let parts = [Part::Low, Part::Whole, Part::High].map(|part| part.of(span));
        assert_eq!(
            parts.map(|s| (s.lo, s.hi)),
            [(2.0, 5.0), (2.0, 8.0), (5.0, 8.0)]
        );
    }

    #[test]
    fn sizes_are_drawn_over_their_whole_range_and_the_rest_is_left_alone() {
        let scenario = scenario("");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let sizes = sizes(&scenario, seed);
            let config = settled(&scenario.node[0].config, sizes.get("pool"));
            assert_eq!(config["queue_cap"].as_integer(), Some(8));
            seen.insert(config["workers"].as_integer().expect("a number"));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(
            at_most(&scenario.node[0].config)["workers"].as_integer(),
            Some(5)
        );
    }

    #[test]
    fn some_points_are_bent_in_some_seeds_each() {
        let scenario = scenario("");
        let all = ron_core::POINTS.buggify.len();
        let counts: Vec<usize> = (0..200)
            .map(|seed| buggify(&scenario, seed).len())
            .collect();
        assert!(counts.contains(&0) && counts.iter().all(|n| *n < all));
        let drawn: std::collections::BTreeSet<_> = (0..200)
            .flat_map(|seed| buggify(&scenario, seed))
            .map(|bent| bent.point)
            .collect();
        assert!(drawn.len() >= all, "{drawn:?}");
    }
}
