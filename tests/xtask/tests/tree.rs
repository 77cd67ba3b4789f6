//! Every check over the real tree: `cargo test` alone notices what `cargo xtask` would.

use xtask::{
    ci, spec, tidy,
    tree::{self, Tree},
};

fn tree() -> Tree {
    Tree::read(&tree::root()).expect("the checkout can be read")
}

fn tidy(name: &str) {
    let (_, check) = tidy::CHECKS
        .into_iter()
        .find(|(n, _)| *n == name)
        .expect("the check is listed");
    let findings = check(&tree());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

macro_rules! tidy_tests {
    ($($test:ident: $name:literal,)*) => {
        const TESTED: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                tidy($name);
            }
        )*
    };
}

tidy_tests! {
    every_select_is_biased: "every select! is biased",
    files_stay_short: "files stay short",
    a_file_says_what_it_is: "a file says what it is",
    unsafe_only_where_listed: "unsafe only where listed",
    nothing_is_left_unfinished: "nothing is left unfinished",
    the_top_level_holds_what_it_should: "the top level holds what it should",
    no_path_of_one_machine: "no path of one machine",
    lints_are_inherited: "lints are inherited",
    versions_are_pinned_once: "versions are pinned once",
    links_between_documents_resolve: "links between documents resolve",
    lists_name_what_exists: "lists name what exists",
}

#[test]
fn every_tidy_check_is_run() {
    let listed: Vec<&str> = tidy::CHECKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(TESTED, listed);
}

#[test]
fn the_workspace_denies_what_the_rules_ask_for() {
    let tree = tree();
    for (group, lint) in [
        // proves: KMS-15.1, DHT-15.4, EDG-15.1, RWD-15.1, ADM-15.1, ADM-15.2
        ("rust", "warnings"),
        // proves: KMS-15.2, DHT-15.1, EDG-15.2, RWD-15.2, ADM-15.3
        ("clippy", "await_holding_lock"),
        // proves: KMS-15.3, DHT-15.2, RWD-15.3, ADM-15.4
        ("clippy", "needless_collect"),
        ("clippy", "unused_async"),
        ("rust", "unsafe_code"),
    ] {
        let findings = tidy::manifests::missing_denials(&tree, group, lint);
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}

#[test]
fn citations_and_rules_agree() {
    let report = spec::check(&tree());
    assert!(report.errors.is_empty(), "{}", report.errors.join("\n"));
}

#[test]
fn the_index_holds_all_rules_of_the_five_services() {
    let report = spec::check(&tree());
    let sizes: Vec<(&str, usize)> = report
        .services
        .iter()
        .map(|s| (s.name.as_str(), s.rules.len()))
        .collect();
    assert_eq!(
        sizes,
        [
            ("ron-kms", 91),
            ("svc-admin", 205),
            ("svc-dht", 87),
            ("svc-edge", 71),
            ("svc-rewarder", 85),
        ]
    );
}

#[test]
fn the_workflow_runs_every_step_once() {
    let tree = tree();
    let workflow = tree
        .text(".github/workflows/ci.yml")
        .expect("the workflow is there");
    let mut run: Vec<&str> = workflow
        .lines()
        .filter_map(|line| line.split_once("cargo xtask ci "))
        .flat_map(|(_, steps)| steps.split_whitespace())
        .collect();
    let mut table: Vec<&str> = ci::STEPS.iter().map(|s| s.name).collect();
    run.sort_unstable();
    table.sort_unstable();
    assert_eq!(run, table);
}

#[test]
fn no_workflow_sets_rustflags() {
    for (path, text) in tree()
        .iter()
        .filter(|(p, _)| p.starts_with(".github/") || p.starts_with(".ci/"))
    {
        let sets = text.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("RUSTFLAGS") || line.starts_with("export RUSTFLAGS")
        });
        assert!(
            !sets,
            "{path} sets RUSTFLAGS, which would switch simulation off"
        );
    }
}

/// The README's first command: which program a bare `cargo run` starts.
#[test]
fn a_bare_cargo_run_starts_ron_kms() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = std::process::Command::new(cargo)
        .current_dir(tree::root())
        .args(["run", "--bin"])
        .output()
        .expect("cargo can be started");
    // Asked for a program without a name, cargo lists those it would choose from.
    let listed = String::from_utf8_lossy(&out.stderr);
    let programs = listed.lines().filter(|line| line.starts_with("    "));
    assert_eq!(programs.map(str::trim).collect::<Vec<_>>(), ["ron-kms"]);
}
