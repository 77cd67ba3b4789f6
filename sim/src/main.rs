//! The `sim` command. All of it is in [`sim::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    sim::cli::main(&args)
}
