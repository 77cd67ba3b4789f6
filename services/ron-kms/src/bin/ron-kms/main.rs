//! The command line of ron-kms. Parses arguments; the work is in the library.

mod audit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keys that never leave, and an audit log anyone can verify.
#[derive(Parser)]
#[command(name = "ron-kms", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Verify an audit log, or a receipt from one, without the service
    Audit(audit::AuditArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Audit(args) => audit::run(args),
    }
}
