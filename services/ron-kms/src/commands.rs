//! The commands of `ron-kms`, as a library: a binary of its own holds them, and one that holds other services' too may.
//!
//! Here the service meets the machine: files, terminal, environment. The rest of the crate stays behind the seam.

mod audit;
mod keys;
mod rekey;
mod serve;
mod unlock;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ron_io::cli::{ConfigArgs, OperateArgs, Program, operate};

use crate::{config::Config, topology::NAME};

pub const PROGRAM: Program = Program {
    name: NAME,
    version: env!("CARGO_PKG_VERSION"),
    url: "http://127.0.0.1:7480",
};

/// Keys that never leave, and an audit log anyone can verify.
#[derive(Parser)]
#[command(name = NAME, version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service (the default)
    Serve(ConfigArgs),
    /// Verify an audit log, or a receipt from one, without the service
    Audit(audit::AuditArgs),
    /// List or rotate the keys of a running service
    Keys(keys::KeysArgs),
    /// Have a running one read its configuration anew
    Reload(OperateArgs),
    /// Have a running one drain and stop
    Shutdown(OperateArgs),
    /// Seal the key store anew: another key file or passphrase, and a fresh key-encryption key
    Rekey(rekey::RekeyArgs),
}

impl Cli {
    pub fn run(self) -> ExitCode {
        match self
            .command
            .unwrap_or_else(|| Command::Serve(ConfigArgs::default()))
        {
            Command::Reload(args) => operate(&PROGRAM, args, "reload", |c: &Config| &c.auth),
            Command::Shutdown(args) => operate(&PROGRAM, args, "shutdown", |c: &Config| &c.auth),
            Command::Serve(args) => serve::run(&args),
            Command::Audit(args) => audit::run(args),
            Command::Keys(args) => keys::run(args),
            Command::Rekey(args) => rekey::run(args),
        }
    }
}
