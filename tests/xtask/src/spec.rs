//! The count of rules: proven, superseded, unproven.
//!
//! `docs/spec/*.tsv` holds the rules, the code cites them, and here the two are held against each other.
//! What always holds: every cited or superseded id exists, and a complete service has no unproven rule.
//!
//! A rule of a service is proven only where that service is: by its crate, its scenarios, its side of the simulator, or
//! a test named after it. A test of the kernel may add to the proof, but a service that is not there proves nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use crate::{
    citations::{self, Citation},
    tree::Tree,
};

const DIR: &str = "docs/spec/";
const SUPERSEDED: &str = "docs/spec/superseded.tsv";
const COMPLETE: &str = "docs/spec/complete.txt";
const DECISIONS: &str = "docs/DECISIONS.md";

#[derive(Debug, Default)]
pub struct Report {
    pub services: Vec<Service>,
    /// Where each rule is cited, in order of path.
    pub places: BTreeMap<String, Vec<Citation>>,
    pub superseded: BTreeMap<String, Supersession>,
    /// What makes the check fail.
    pub errors: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// In the order of the index.
    pub rules: Vec<Rule>,
    pub complete: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    pub id: String,
    pub text: String,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Proven,
    /// Wins over proven: a citation then speaks only of the part that still holds.
    Superseded,
    Unproven,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Supersession {
    pub decision: String,
    pub why: String,
}

impl Service {
    pub fn count(&self, state: State) -> usize {
        self.rules.iter().filter(|rule| rule.state == state).count()
    }

    pub fn unproven(&self) -> impl Iterator<Item = &Rule> {
        self.rules
            .iter()
            .filter(|rule| rule.state == State::Unproven)
    }
}

pub fn check(tree: &Tree) -> Report {
    let mut errors = Vec::new();
    let superseded = read_superseded(tree, &mut errors);
    let (citations, wrong) = citations::collect(tree);
    errors.extend(wrong);
    let mut places: BTreeMap<String, Vec<Citation>> = BTreeMap::new();
    for citation in citations {
        places
            .entry(citation.id.clone())
            .or_default()
            .push(citation);
    }
    let proven = |service: &str, id: &str| {
        let places = places.get(id).into_iter().flatten();
        places.into_iter().any(|place| is_of(service, &place.path))
    };
    let state_of = |service: &str, id: &str| match superseded.contains_key(id) {
        true => State::Superseded,
        false if proven(service, id) => State::Proven,
        false => State::Unproven,
    };
    let mut services = read_services(tree, state_of, &mut errors);
    mark_complete(tree, &mut services, &mut errors);
    report_unknown(&services, &places, &superseded, &mut errors);
    Report {
        services,
        places,
        superseded,
        errors,
    }
}

/// One line per service.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    for service in &report.services {
        let _ = writeln!(
            out,
            "{}: {} proven, {} superseded, {} unproven",
            service.name,
            service.count(State::Proven),
            service.count(State::Superseded),
            service.count(State::Unproven),
        );
    }
    out
}

/// The unproven rules of one service, or of all.
pub fn list_unproven(report: &Report, service: Option<&str>) -> Result<String, String> {
    if let Some(name) = service
        && !report.services.iter().any(|s| s.name == name)
    {
        let known: Vec<&str> = report.services.iter().map(|s| s.name.as_str()).collect();
        return Err(format!("no service {name}; there are {}", known.join(", ")));
    }
    let mut out = String::new();
    let chosen = |s: &&Service| service.is_none_or(|name| s.name == name);
    for rule in report
        .services
        .iter()
        .filter(chosen)
        .flat_map(Service::unproven)
    {
        let _ = writeln!(out, "{}\t{}", rule.id, rule.text);
    }
    Ok(out)
}

/// The rule, whether it is superseded, and every place that cites it.
pub fn where_is(report: &Report, id: &str) -> Result<String, String> {
    let rule = report
        .services
        .iter()
        .flat_map(|s| &s.rules)
        .find(|rule| rule.id == id)
        .ok_or_else(|| format!("no rule {id}; the rules are in {DIR}"))?;
    let mut out = format!("{id}\t{}\n", rule.text);
    if let Some(s) = report.superseded.get(id) {
        let _ = writeln!(out, "superseded by {}: {}", s.decision, s.why);
    }
    for place in report.places.get(id).into_iter().flatten() {
        let _ = writeln!(out, "{}:{}", place.path, place.line);
    }
    if rule.state == State::Unproven {
        out.push_str(match report.places.contains_key(id) {
            true => "unproven: only the kernel is cited, not the service\n",
            false => "unproven\n",
        });
    }
    Ok(out)
}

/// Whether what stands at `path` runs the service: in its crate, or where its short name (`kms` of `ron-kms`) is a
/// directory or a word of the file's name.
fn is_of(service: &str, path: &str) -> bool {
    if let Some(rest) = path.strip_prefix("services/") {
        return rest.split('/').next() == Some(service);
    }
    let short = service.rsplit('-').next().unwrap_or(service);
    let outside_kernel = ["scenarios/", "sim/", "tests/"];
    outside_kernel.iter().any(|dir| path.starts_with(dir))
        && path.split('/').any(|part| {
            let stem = part.split('.').next().unwrap_or(part);
            stem.split('_').any(|word| word == short)
        })
}

fn read_services(
    tree: &Tree,
    state_of: impl Fn(&str, &str) -> State,
    errors: &mut Vec<String>,
) -> Vec<Service> {
    let mut seen = BTreeSet::new();
    let mut services = Vec::new();
    for (path, text) in tree.with_extension("tsv") {
        let Some(name) = path.strip_prefix(DIR).filter(|_| path != SUPERSEDED) else {
            continue;
        };
        let mut service = Service {
            name: name.trim_end_matches(".tsv").to_string(),
            ..Service::default()
        };
        for (line, [id, rule]) in rows(path, text, ["id", "rule"], errors) {
            if !seen.insert(id.to_string()) {
                errors.push(format!("{path}:{line}: {id} stands in the index twice"));
                continue;
            }
            service.rules.push(Rule {
                id: id.to_string(),
                text: rule.to_string(),
                state: state_of(&service.name, id),
            });
        }
        services.push(service);
    }
    services
}

fn read_superseded(tree: &Tree, errors: &mut Vec<String>) -> BTreeMap<String, Supersession> {
    let decisions = tree.text(DECISIONS).unwrap_or_default();
    let decided = |decision: &str| {
        let heading = format!("## {decision} ");
        decisions.lines().any(|line| line.starts_with(&heading))
    };
    let text = tree.text(SUPERSEDED).unwrap_or("id\tdecision\twhy\n");
    let mut superseded = BTreeMap::new();
    for (line, [id, decision, why]) in rows(SUPERSEDED, text, ["id", "decision", "why"], errors) {
        if !decided(decision) {
            errors.push(format!(
                "{SUPERSEDED}:{line}: {DECISIONS} has no heading `## {decision} …`"
            ));
        }
        superseded.insert(
            id.to_string(),
            Supersession {
                decision: decision.to_string(),
                why: why.to_string(),
            },
        );
    }
    superseded
}

/// Tab-separated rows under a header; each field must be there and say something.
fn rows<'a, const N: usize>(
    path: &str,
    text: &'a str,
    header: [&str; N],
    errors: &mut Vec<String>,
) -> Vec<(usize, [&'a str; N])> {
    let fields = |line: &'a str| <[&str; N]>::try_from(line.split('\t').collect::<Vec<_>>()).ok();
    let mut lines = text.lines().zip(1..);
    if lines.next().and_then(|(line, _)| fields(line)) != Some(header) {
        errors.push(format!(
            "{path}:1: the header must be {}",
            header.join("<TAB>")
        ));
    }
    let mut rows = Vec::new();
    for (line, number) in lines {
        match fields(line) {
            Some(row) if row.iter().all(|field| !field.trim().is_empty()) => {
                rows.push((number, row));
            }
            _ => errors.push(format!(
                "{path}:{number}: a row has {N} fields with a tab between"
            )),
        }
    }
    rows
}

fn mark_complete(tree: &Tree, services: &mut [Service], errors: &mut Vec<String>) {
    for (line, number) in tree.text(COMPLETE).unwrap_or_default().lines().zip(1..) {
        let name = line.trim();
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        let Some(service) = services.iter_mut().find(|s| s.name == name) else {
            errors.push(format!("{COMPLETE}:{number}: no service {name} in {DIR}"));
            continue;
        };
        service.complete = true;
        let unproven: Vec<&str> = service.unproven().map(|rule| rule.id.as_str()).collect();
        if !unproven.is_empty() {
            errors.push(format!(
                "{name} is marked complete, but unproven: {}",
                unproven.join(", ")
            ));
        }
    }
}

fn report_unknown(
    services: &[Service],
    places: &BTreeMap<String, Vec<Citation>>,
    superseded: &BTreeMap<String, Supersession>,
    errors: &mut Vec<String>,
) {
    let known: BTreeSet<&str> = services
        .iter()
        .flat_map(|s| &s.rules)
        .map(|rule| rule.id.as_str())
        .collect();
    for (id, cited) in places {
        if !known.contains(id.as_str()) {
            for place in cited {
                errors.push(format!(
                    "{}:{}: no rule {id} in {DIR}",
                    place.path, place.line
                ));
            }
        }
    }
    for id in superseded.keys() {
        if !known.contains(id.as_str()) {
            errors.push(format!("{SUPERSEDED}: no rule {id} in {DIR}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: (&str, &str) = (
        "docs/spec/ron-kms.tsv",
        "id\trule\nKMS-1.1\tNo lock.\nKMS-1.2\tOne writer.\nKMS-1.3\tBounded.\n",
    );
    const DECIDED: (&str, &str) = ("docs/DECISIONS.md", "# D\n\n## D-1 So it is\n");
    const OVERRULED: (&str, &str) = (
        SUPERSEDED,
        "id\tdecision\twhy\nKMS-1.3\tD-1\tIt cannot be.\n",
    );
    const TEST: (&str, &str) = (
        "services/ron-kms/src/q.rs",
        "// proves: KMS-1.1\n#[test]\nfn a() {}\n",
    );

    fn report(files: &[(&str, &str)]) -> Report {
        check(&Tree::of(files))
    }

    #[test]
    fn rules_are_counted_by_state() {
        let report = report(&[INDEX, DECIDED, OVERRULED, TEST]);
        assert_eq!(report.errors, [""; 0]);
        assert_eq!(
            summary(&report),
            "ron-kms: 1 proven, 1 superseded, 1 unproven\n"
        );
        assert_eq!(
            list_unproven(&report, Some("ron-kms")).unwrap(),
            "KMS-1.2\tOne writer.\n"
        );
    }

    #[test]
    fn only_what_runs_the_service_proves_its_rules() {
        const CITES: &str = "// proves: KMS-1.1\n#[test]\nfn a() {}\n";
        for (path, proven) in [
            ("services/ron-kms/tests/a.rs", 1),
            ("sim/src/kms/oracle/a.rs", 1),
            ("sim/src/services/kms.rs", 1),
            ("tests/tests/kms_process.rs", 1),
            ("tests/fuzz/src/bin/fuzz_kms_requests.rs", 1),
            ("core/src/q.rs", 0),
            ("core/src/kms.rs", 0),
            ("services/svc-kms/src/q.rs", 0),
            ("services/svc-dht/src/kms.rs", 0),
            ("tests/tests/kmsx.rs", 0),
            ("sim/src/net.rs", 0),
        ] {
            let counted = report(&[INDEX, (path, CITES)]);
            assert_eq!(counted.services[0].count(State::Proven), proven, "{path}");
            assert_eq!(counted.errors, [""; 0]);
        }
        let kernel = report(&[INDEX, ("core/src/q.rs", CITES)]);
        assert_eq!(
            where_is(&kernel, "KMS-1.1").unwrap(),
            "KMS-1.1\tNo lock.\ncore/src/q.rs:1\nunproven: only the kernel is cited, not the service\n"
        );
    }

    #[test]
    fn superseded_wins_over_proven() {
        let cites = (
            "core/tests/a.rs",
            "// proves: KMS-1.3\n#[test]\nfn a() {}\n",
        );
        let report = report(&[INDEX, DECIDED, OVERRULED, cites]);
        assert_eq!(report.errors, [""; 0]);
        assert_eq!(
            summary(&report),
            "ron-kms: 0 proven, 1 superseded, 2 unproven\n"
        );
    }

    #[test]
    fn an_unknown_id_is_an_error_that_names_file_and_line() {
        let cites = (
            "core/tests/a.rs",
            "\n// proves: KMS-9.9\n#[test]\nfn a() {}\n",
        );
        assert_eq!(
            report(&[INDEX, cites]).errors,
            ["core/tests/a.rs:2: no rule KMS-9.9 in docs/spec/"]
        );
        let scenario = ("scenarios/a.toml", "proves = [\"KMS-1.1\", \"KMS-9.9\"]");
        assert_eq!(
            report(&[INDEX, scenario]).errors,
            ["scenarios/a.toml:1: no rule KMS-9.9 in docs/spec/"]
        );
    }

    #[test]
    fn a_complete_service_may_have_no_unproven_rule() {
        let complete = (COMPLETE, "# done\nron-kms\n");
        assert_eq!(
            report(&[INDEX, DECIDED, OVERRULED, TEST, complete]).errors,
            ["ron-kms is marked complete, but unproven: KMS-1.2"]
        );
        let rest = ("scenarios/kms/a.toml", "proves = [\"KMS-1.2\"]");
        let whole = report(&[INDEX, DECIDED, OVERRULED, TEST, complete, rest]);
        assert_eq!(whole.errors, [""; 0]);
        assert!(whole.services[0].complete);
    }

    #[test]
    fn a_wrong_index_is_an_error() {
        let cases: [(&str, &str, &str); 7] = [
            (
                INDEX.0,
                "KMS-1.1\tNo header.\n",
                "header must be id<TAB>rule",
            ),
            (
                INDEX.0,
                "id\trule\nKMS-1.1\n",
                "ron-kms.tsv:2: a row has 2 fields",
            ),
            (
                INDEX.0,
                "id\trule\nKMS-1.1\t \n",
                "ron-kms.tsv:2: a row has 2 fields",
            ),
            (
                INDEX.0,
                "id\trule\nKMS-1.1\ta\nKMS-1.1\tb\n",
                "KMS-1.1 stands in the index twice",
            ),
            (
                SUPERSEDED,
                "id\tdecision\twhy\nKMS-1.1\tD-2\tx\n",
                "no heading `## D-2 ",
            ),
            (
                SUPERSEDED,
                "id\tdecision\twhy\nKMS-7.7\tD-1\tx\n",
                "no rule KMS-7.7",
            ),
            (COMPLETE, "svc-none\n", "no service svc-none"),
        ];
        for (path, text, expected) in cases {
            let mut files = vec![INDEX, DECIDED];
            files.retain(|(p, _)| *p != path);
            files.push((path, text));
            let errors = report(&files).errors;
            assert!(
                errors.iter().any(|e| e.contains(expected)),
                "{expected}: {errors:?}"
            );
        }
    }

    #[test]
    fn a_rule_can_be_looked_up() {
        let report = report(&[INDEX, DECIDED, OVERRULED, TEST]);
        for (id, expected) in [
            (
                "KMS-1.1",
                "KMS-1.1\tNo lock.\nservices/ron-kms/src/q.rs:1\n",
            ),
            ("KMS-1.2", "KMS-1.2\tOne writer.\nunproven\n"),
            (
                "KMS-1.3",
                "KMS-1.3\tBounded.\nsuperseded by D-1: It cannot be.\n",
            ),
        ] {
            assert_eq!(where_is(&report, id).unwrap(), expected);
        }
        assert!(where_is(&report, "KMS-7.7").is_err());
        assert!(list_unproven(&report, Some("svc-none")).is_err());
    }
}
