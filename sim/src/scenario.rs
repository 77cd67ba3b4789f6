//! A scenario: what to simulate, as data. Topology, workload, faults, checks.
//!
//! Every number may be a range that the seed draws from. Everything a file can get wrong is said in one
//! line that names the file, the place and what is allowed.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    catalogue,
    oracle::{self, OracleKind},
    seed::{self, SimRng},
    services,
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Path below `scenarios/` without its ending: `shutdown-race`, `kms/disk-full`.
    #[serde(skip)]
    pub name: String,
    pub about: String,
    #[serde(default)]
    pub proves: Vec<String>,
    pub node: Vec<NodeSpec>,
    #[serde(default)]
    pub link: LinkSpec,
    #[serde(default)]
    pub workload: Vec<WorkloadSpec>,
    #[serde(default)]
    pub fault: Vec<FaultSpec>,
    #[serde(default)]
    pub swarm: SwarmSpec,
    #[serde(default)]
    pub check: CheckSpec,
    #[serde(default)]
    pub seeds: SeedsSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    pub name: String,
    pub service: String,
    /// That many nodes: `name`, `name-2`, `name-3` …
    #[serde(default = "one")]
    pub count: u32,
    /// Where a setting is a number, `[lowest, highest]` may stand for it: the seed draws one.
    #[serde(default)]
    pub config: toml::Table,
    /// Clock drift in parts per million, either way.
    #[serde(default)]
    pub drift_ppm: Span,
    /// How far its wall clock is off from the start.
    #[serde(default)]
    pub offset_ms: Span,
}

/// What a seed may draw besides the ranges of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwarmSpec {
    /// Which of the faults are on at all, and in which part of their ranges.
    pub faults: bool,
    /// Which points of the code are bent.
    pub buggify: bool,
    /// So many nodes at most are out of service at once.
    pub most_down: Option<u32>,
}

impl Default for SwarmSpec {
    fn default() -> Self {
        SwarmSpec {
            faults: true,
            buggify: true,
            most_down: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub latency_us: Span,
}

impl Default for LinkSpec {
    fn default() -> Self {
        LinkSpec {
            latency_us: Span {
                lo: 50.0,
                hi: 800.0,
            },
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    pub kind: String,
    /// Nodes by name or by prefix; default: all service nodes, in turn.
    pub on: Option<String>,
    #[serde(default)]
    pub clients: Option<Span>,
    /// Of each client.
    #[serde(default)]
    pub rate_per_s: Option<Span>,
    #[serde(default)]
    pub at_s: Span,
    #[serde(default)]
    pub for_s: Option<Span>,
    /// Ends after this many requests of all clients, whatever `for_s` says.
    #[serde(default)]
    pub requests: Option<Span>,
    #[serde(default)]
    pub timeout_ms: Option<Span>,
    #[serde(default)]
    pub every_ms: Option<Span>,
    /// Size of each request's body.
    #[serde(default)]
    pub bytes: Option<Span>,
    /// The deadline that each request names.
    #[serde(default)]
    pub within_ms: Option<Span>,
    /// Which keys it uses, by number; eight of them belong to one tenant.
    #[serde(default)]
    pub slots: Option<Span>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    pub kind: String,
    pub on: String,
    #[serde(default)]
    pub at_s: Span,
    #[serde(default)]
    pub times: Option<Span>,
    #[serde(default)]
    pub for_ms: Option<Span>,
    #[serde(default)]
    pub by_ms: Option<Span>,
    #[serde(default)]
    pub ppm: Option<Span>,
    #[serde(default)]
    pub nth: Option<Span>,
    #[serde(default)]
    pub count: Option<Span>,
    #[serde(default)]
    pub task: Option<String>,
    #[serde(default)]
    pub per_10_000: Option<Span>,
    #[serde(default)]
    pub factor: Option<Span>,
    #[serde(default)]
    pub bytes: Option<Span>,
    #[serde(default)]
    pub path: Option<String>,
    #[serde(default)]
    pub one_way: bool,
    /// It is no fault that the system promises to survive; the scenario checks something else.
    #[serde(default)]
    pub beyond_promise: bool,
}

/// All laws of the kernel and of the services that take part hold; what is checked besides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckSpec {
    /// For a test of one law: nobody else speaks.
    #[serde(skip)]
    pub only: Option<String>,
    /// Laws that do not hold here, each with the reason.
    pub except: BTreeMap<String, String>,
    pub eventually: Eventually,
    /// Probes that at least one seed of a test must reach: a run that never comes near its subject
    /// proves nothing.
    pub sometimes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eventually {
    pub within_s: f64,
    pub hold: Vec<String>,
}

impl Default for Eventually {
    fn default() -> Self {
        Eventually {
            within_s: 10.0,
            hold: vec![catalogue::READY.to_owned()],
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedsSpec {
    /// Seeds that `cargo test` runs.
    #[serde(default = "twenty")]
    pub test: u64,
    /// In a sweep this scenario has its turn in every so many rounds: one that takes a hundred times as long
    /// as the others would otherwise take almost all of the time.
    #[serde(default = "every_round")]
    pub one_in: NonZeroU64,
}

impl Default for SeedsSpec {
    fn default() -> Self {
        SeedsSpec {
            test: twenty(),
            one_in: every_round(),
        }
    }
}

fn twenty() -> u64 {
    20
}

fn every_round() -> NonZeroU64 {
    NonZeroU64::MIN
}

fn one() -> u32 {
    1
}

/// A number, or `[lo, hi]` to draw from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "SpanText")]
pub struct Span {
    pub lo: f64,
    pub hi: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SpanText {
    Fixed(f64),
    Range(Vec<f64>),
}

impl TryFrom<SpanText> for Span {
    type Error = String;

    fn try_from(text: SpanText) -> Result<Self, String> {
        let (lo, hi) = match text {
            SpanText::Fixed(value) => (value, value),
            SpanText::Range(range) => match range[..] {
                [lo, hi] => (lo, hi),
                _ => return Err("a range is [lowest, highest]".to_owned()),
            },
        };
        if !lo.is_finite() || !hi.is_finite() || lo > hi {
            return Err(format!("[{lo}, {hi}] is no range: the lowest comes first"));
        }
        if lo < -FARTHEST || hi > FARTHEST {
            return Err(format!("[{lo}, {hi}] is too far: -1e12 to 1e12 is allowed"));
        }
        Ok(Span { lo, hi })
    }
}

/// No number of a scenario is larger, so that none overflows where it is used.
const FARTHEST: f64 = 1e12;

impl Span {
    pub fn fixed(value: f64) -> Self {
        Span {
            lo: value,
            hi: value,
        }
    }

    pub fn draw(self, rng: &mut SimRng) -> f64 {
        // Fixed-point at a millionth: exact for what a person writes, and the same on every machine.
        let unit = 1_000_000.0;
        let offset = (self.lo * unit).round() as i64;
        let width = ((self.hi - self.lo) * unit).round() as u64;
        (offset + seed::pick(rng, 0, width) as i64) as f64 / unit
    }

    pub fn draw_count(self, rng: &mut SimRng) -> u64 {
        seed::pick(rng, self.lo.max(0.0) as u64, self.hi.max(0.0) as u64)
    }

    pub fn draw_signed(self, rng: &mut SimRng) -> i64 {
        self.draw(rng).round() as i64
    }

    pub fn draw_secs(self, rng: &mut SimRng) -> Duration {
        Duration::from_secs_f64(self.draw(rng).max(0.0))
    }

    pub fn draw_millis(self, rng: &mut SimRng) -> Duration {
        Duration::from_secs_f64(self.draw(rng).max(0.0) / 1000.0)
    }
}

/// Why a scenario cannot be used: one line, ready to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(pub String);

impl Scenario {
    pub fn load(root: &Path, name: &str) -> Result<Self, ScenarioError> {
        let path = root.join(format!("{name}.toml"));
        if !path.is_file() {
            let known = names(root)?.join(", ");
            return Err(ScenarioError(format!(
                "no scenario named {name:?}; there are: {known}"
            )));
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|e| ScenarioError(format!("{}: cannot be read: {e}", path.display())))?;
        Self::parse(name, &path.display().to_string(), &text)
    }

    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|e| {
            let line = e
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1));
            let message = e.message().replace('\n', " ");
            ScenarioError(format!("{file}:{line}: {message}"))
        })?;
        scenario.name = name.to_owned();
        catalogue::validate(&scenario)
            .map_err(|e| ScenarioError(format!("{file}:{}: {}", line_of(text, &e.word), e)))?;
        Ok(scenario)
    }

    /// The laws that are watched: all that hold here but those that the file excepts.
    pub fn laws(&self) -> Vec<&'static OracleKind> {
        if let Some(only) = &self.check.only {
            return oracle::find(only).into_iter().collect();
        }
        let mut laws = services::laws_of(self);
        laws.retain(|law| !self.check.except.contains_key(law.name));
        laws
    }

    /// Whether no fault strikes in any of its runs.
    pub fn is_calm(&self) -> bool {
        self.fault.is_empty()
    }

    /// Whether tasks panic and nothing else goes wrong, if anything does.
    pub fn only_tasks_fail(&self) -> bool {
        self.fault.iter().all(|fault| fault.kind == "task.panic")
    }

    /// Whether a fault of this kind may strike.
    pub fn has_fault(&self, kind: &str) -> bool {
        self.fault.iter().any(|fault| fault.kind == kind)
    }

    /// What `sometimes` lists and no seed reached. A run that never came near its subject proves nothing.
    pub fn unreached(&self, marks: &BTreeMap<String, u64>) -> Vec<&str> {
        let listed = self.check.sometimes.iter().map(String::as_str);
        listed.filter(|mark| !marks.contains_key(*mark)).collect()
    }

    /// The name as a test path: `kms/disk-full` is `kms::disk_full`.
    pub fn test_name(&self) -> String {
        test_name(&self.name)
    }
}

pub fn test_name(name: &str) -> String {
    name.replace('/', "::").replace('-', "_")
}

/// Where in the file a wrong word stands, for an editor to jump to.
fn line_of(text: &str, word: &str) -> usize {
    text.lines()
        .position(|line| !word.is_empty() && line.contains(word))
        .map_or(1, |n| n + 1)
}

/// A word that the catalogue does not know, or a key that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The word that is wrong, as it stands in the file.
    pub word: String,
    pub text: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// All scenarios below `root`, sorted; filed bugs are not among them.
pub fn names(root: &Path) -> Result<Vec<String>, ScenarioError> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let entries = std::fs::read_dir(&full).map_err(|e| {
            ScenarioError(format!(
                "{}: scenarios cannot be listed: {e}",
                full.display()
            ))
        })?;
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                if entry.file_name() != "bugs" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "toml") && path.as_os_str() != COVERAGE
            {
                found.push(path.with_extension("").to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What a word of the command line stands for: a scenario, a folder of them, or `kernel` for those that are in
/// no folder.
pub fn named(root: &Path, word: &str) -> Result<Vec<String>, ScenarioError> {
    let all = names(root)?;
    let within = |name: &String| match name.split_once('/') {
        Some((folder, _)) => folder == word,
        None => word == KERNEL,
    };
    if all.iter().any(|name| name == word) || !all.iter().any(within) {
        return Ok(vec![word.to_owned()]);
    }
    Ok(all.into_iter().filter(within).collect())
}

/// The scenarios that need no service but the simulator's own.
pub const KERNEL: &str = "kernel";

/// Those of a service are in a folder of their own.
pub fn is_of_a_service(name: &str) -> bool {
    name.contains('/')
}

/// Not a scenario: what need not be covered, see [`crate::coverage`].
pub const COVERAGE: &str = "coverage.toml";

/// Where the scenarios lie: as `SIM_SCENARIOS` says, or those of the project that holds the current folder, or of the
/// checkout this was built from.
pub fn root() -> PathBuf {
    if let Some(told) = std::env::var_os("SIM_SCENARIOS") {
        return told.into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let mut around = here.ancestors().map(|folder| folder.join("scenarios"));
    let own = around.find(|folder| folder.join(COVERAGE).is_file());
    own.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_no_seed_reached_is_told() {
        let scenario = Scenario::load(&root(), "shutdown-race").expect("the scenario is there");
        let reached = |marks: &[&str]| {
            marks
                .iter()
                .map(|m| ((*m).to_owned(), 1))
                .collect::<BTreeMap<_, _>>()
        };
        let all: Vec<&str> = scenario
            .check
            .sometimes
            .iter()
            .map(String::as_str)
            .collect();
        assert!(all.len() > 1);
        assert!(scenario.unreached(&reached(&all)).is_empty());
        assert_eq!(scenario.unreached(&reached(&all[1..])), all[..1]);
    }
}
