//! Laws are on by default: a scenario that says nothing of checks has all of them, and only a reason takes one away.

use std::collections::BTreeSet;

use sim::{
    scenario::{self, Scenario},
    services,
};

/// One node of each service that has laws, no fault, and no word about checks.
const SILENT: &str = r#"
about = "x"
[[node]]
name = "pool"
service = "pool"
[[node]]
name = "kms"
service = "ron-kms"
config = { "audit.policy" = "strict", "attest_interval_ms" = 200 }
[[node]]
name = "dht"
service = "svc-dht"
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse("x", "x.toml", text).map_err(|error| error.to_string())
}

fn names(scenario: &Scenario) -> BTreeSet<&'static str> {
    scenario.laws().iter().map(|law| law.name).collect()
}

/// That each of them can fail is proven by its planted bug, one for every law of the same list.
#[test]
fn a_scenario_without_checks_has_every_law_of_the_kernel_and_its_services() {
    let all: BTreeSet<_> = services::laws().map(|law| law.name).collect();
    assert_eq!(names(&parse(SILENT).expect("a scenario")), all);
    let alone = SILENT.split("[[node]]\nname = \"kms\"").next();
    let alone = names(&parse(alone.expect("its beginning")).expect("a scenario"));
    assert!(
        alone.contains("pool.acked_is_durable") && alone.contains("tasks.none_alive_after_stop")
    );
    assert!(
        !alone
            .iter()
            .any(|law| law.starts_with("kms.") || law.starts_with("dht."))
    );
}

#[test]
fn an_exception_takes_away_one_law_and_needs_a_reason() {
    let with = |except: &str| parse(&format!("{SILENT}\n[check.except]\n{except}\n"));
    let all = names(&parse(SILENT).expect("a scenario"));
    let without = names(&with("\"dht.one_writer\" = \"two write here\"").expect("a reason"));
    assert_eq!(
        all.difference(&without).collect::<Vec<_>>(),
        [&"dht.one_writer"]
    );
    for (except, says) in [
        (
            "\"dht.one_writer\" = \" \"",
            "x.toml:15: check.except: \"dht.one_writer\" is excepted without a reason",
        ),
        (
            "\"dht.one_witer\" = \"x\"",
            "x.toml:15: check.except: \"dht.one_witer\" is not allowed",
        ),
    ] {
        let error = with(except).expect_err(except);
        assert!(
            error.starts_with(says) && error.lines().count() == 1,
            "{error}"
        );
    }
}

/// What is said of laws in files is the exception.
#[test]
fn scenarios_name_few_laws_and_none_in_vain() {
    let root = scenario::root();
    let mut mentions = 0;
    for name in scenario::names(&root).expect("the scenarios") {
        let scenario = Scenario::load(&root, &name).expect("a scenario");
        mentions += scenario.check.except.len();
    }
    assert!(mentions <= 140, "{mentions} exceptions");
}
