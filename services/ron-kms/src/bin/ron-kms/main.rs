//! The command line of ron-kms. Parses arguments; the work is in the library.

// The binary is where the service meets the machine: files, terminal, environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

/// A line on stdout. Nobody has to read it: a reader that went away, as in `ron-kms serve | head -1`, stops nothing.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod admin;
mod audit;
mod rekey;
mod serve;
mod setup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A request allocates dozens of times, and much of it is freed on another thread: this costs a tenth of the
/// service's CPU time less than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keys that never leave, and an audit log anyone can verify.
#[derive(Parser)]
#[command(name = "ron-kms", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service (the default)
    Serve(setup::ConfigArgs),
    /// Verify an audit log, or a receipt from one, without the service
    Audit(audit::AuditArgs),
    /// List or rotate the keys of a running service
    Keys(admin::KeysArgs),
    /// Seal the key store anew: another key file or passphrase, and a fresh key-encryption key
    Rekey(rekey::RekeyArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match command.unwrap_or_else(|| Command::Serve(setup::ConfigArgs::default())) {
        Command::Serve(args) => serve::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Keys(args) => admin::run(args),
        Command::Rekey(args) => rekey::run(args),
    }
}
