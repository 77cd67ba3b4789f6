//! `cargo xtask`: the project's own commands. Parses arguments; all work is in the library.

use std::process::{Command, ExitCode};

use xtask::{
    ci, deps, mutants, new_service, spec, tidy,
    tree::{self, Tree},
};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  spec                            count the rules: proven, superseded, unproven
  spec --list-unproven [SERVICE]  name the rules that nothing proves yet
  spec --where ID                 show where a rule is proven
  tidy                            check the house rules
  docs [--check]                  write docs/_generated, or fail if it is out of date
  new-service NAME                write a service that serves, is documented, simulated and tested
  deps                            install the packages that the tests need
  mutants [--quick | ARGS...]     plant each bug of sim/mutants in a copy of the tree and hunt it
  ci [--list] [STEP...]           run the steps of CI, or those named";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["mutants", args @ ..] = &args[..] {
        return mutants::gate(&tree::root(), args);
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<(), String> {
    match args {
        ["spec"] => {
            let report = spec::check(&read()?);
            print!("{}", spec::summary(&report));
            fail_on(report.errors)
        }
        ["spec", "--list-unproven"] => print(spec::list_unproven(&spec::check(&read()?), None)?),
        ["spec", "--list-unproven", service] => {
            print(spec::list_unproven(&spec::check(&read()?), Some(service))?)
        }
        ["spec", "--where", id] => print(spec::where_is(&spec::check(&read()?), id)?),
        ["tidy"] => fail_on(tidy::check(&read()?)),
        ["docs"] => tables(&[]),
        ["docs", "--check"] => tables(&["--check"]),
        ["new-service", name] => {
            let files = new_service::files(&read()?, name)?;
            new_service::write(&tree::root(), &files).map_err(|error| error.to_string())?;
            let paths: Vec<&str> = files.keys().map(String::as_str).collect();
            print(format!("{}\nnow run: cargo xtask docs\n", paths.join("\n")))
        }
        ["deps"] => deps::run(&tree::root()),
        ["ci", "--list"] => print(ci::list()),
        ["ci", steps @ ..] => {
            let steps: Vec<String> = steps.iter().map(|s| s.to_string()).collect();
            ci::run(&tree::root(), &steps)
        }
        ["help" | "--help" | "-h"] => print(format!("{USAGE}\n")),
        _ => Err(USAGE.to_string()),
    }
}

fn read() -> Result<Tree, String> {
    let root = tree::root();
    Tree::read(&root).map_err(|error| format!("cannot read {}: {error}", root.display()))
}

/// The tables come from the crates they tell about, which this tool does not want to be built with.
fn tables(args: &[&str]) -> Result<(), String> {
    let cargo = [
        "run",
        "--quiet",
        "--package",
        "tests",
        "--bin",
        "tables",
        "--",
    ];
    let status = Command::new("cargo")
        .args(cargo)
        .args(args)
        .current_dir(tree::root())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("docs/_generated and the code differ".to_string()),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

fn print(text: String) -> Result<(), String> {
    print!("{text}");
    Ok(())
}

fn fail_on(errors: Vec<String>) -> Result<(), String> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors.join("\n")),
    }
}
