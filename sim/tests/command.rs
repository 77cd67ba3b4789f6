//! The command as a person uses it: pipes that close, help, an interrupted sweep, and where its files go.
#![allow(
    clippy::disallowed_methods,
    reason = "it starts the command and watches it from outside"
)]

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
};

fn sim(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(args);
    command
}

#[test]
fn a_reader_that_goes_away_ends_the_list_in_peace() {
    let mut command = sim(&["list"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Closed before anything is read: the first line that is written finds nobody.
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut told = String::new();
    let mut stderr = child.stderr.take().expect("its errors");
    stderr.read_to_string(&mut told).expect("text");
    assert!(status.success() && told.is_empty(), "{status}: {told}");
}

#[test]
fn every_command_tells_its_use() {
    for (command, says) in [
        ("sweep", "--seeds N"),
        ("run", "--trace FILE"),
        ("list", "what it shows"),
        ("models", "every state"),
    ] {
        for help in ["--help", "-h"] {
            let out = sim(&[command, help]).output().expect("it starts");
            let told = String::from_utf8_lossy(&out.stdout);
            assert_eq!(out.status.code(), Some(0), "{command} {help}");
            assert!(told.starts_with(&format!("  sim {command}")), "{told}");
            assert!(told.contains(says), "{told}");
            let others = told.matches("  sim ").count();
            assert_eq!(others, 1, "{told}");
        }
    }
}

#[test]
fn an_interrupted_sweep_tells_how_far_it_came() {
    let mut command = sim(&[
        "sweep",
        "partition-heal",
        "--seeds",
        "1000000",
        "--jobs",
        "1",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut told = BufReader::new(child.stdout.take().expect("its words"));
    let mut first = String::new();
    told.read_line(&mut first).expect("a line");
    assert!(first.starts_with("replay"), "{first}");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill is there").success());
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{rest}");
    assert!(rest.contains(" violations, "), "{rest}");
    let last = rest.lines().last().unwrap_or_default();
    assert!(last.starts_with("interrupted after "), "{rest}");
    assert!(last.ends_with(" of 1000000 seeds"), "{rest}");
}

#[test]
fn scenarios_and_bug_files_are_those_of_the_project_around_the_current_folder() {
    let project = std::env::temp_dir().join(format!("sim-project-{}", std::process::id()));
    let deep = project.join("some/where");
    std::fs::create_dir_all(&deep).expect("a folder");
    std::fs::create_dir_all(project.join("scenarios")).expect("a folder");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/torn-write.toml");
    std::fs::write(project.join("scenarios/coverage.toml"), "").expect("its mark");
    std::fs::copy(own, project.join("scenarios/mine.toml")).expect("its scenario");
    let out = sim(&["list"]).current_dir(&deep).output();
    let told = String::from_utf8(out.expect("it starts").stdout).expect("text");
    assert!(
        told.starts_with("mine ") && told.lines().count() == 1,
        "{told}"
    );
    std::fs::remove_dir_all(&project).expect("the folder goes");
}
