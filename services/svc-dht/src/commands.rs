//! The commands of `svc-dht`, as a library: a binary of its own holds them, and one that holds other services' too may.
//!
//! Here the node meets the machine: files, terminal, environment. The rest of the crate stays behind the seam.

mod ask;
mod identity_file;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ron_io::cli::{OperateArgs, Program, operate};

use crate::{config::Config, topology::NAME};

pub const PROGRAM: Program = Program {
    name: NAME,
    version: env!("CARGO_PKG_VERSION"),
    url: "http://127.0.0.1:7491",
};

/// A Kademlia that finds things with a third of its nodes dead.
#[derive(Parser)]
#[command(name = NAME, version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node (the default)
    Serve(serve::ServeArgs),
    /// Have a running one read its configuration anew
    Reload(OperateArgs),
    /// Have a running one drain and stop
    Shutdown(OperateArgs),
    /// Find a value, by its key or by its name and publisher
    Get(ask::GetArgs),
    /// Store a value under a name; it is signed with the node's key
    Put(ask::PutArgs),
    /// Announce that the node provides what a key stands for
    Provide(ask::ProvideArgs),
}

impl Cli {
    pub fn run(self) -> ExitCode {
        match self
            .command
            .unwrap_or_else(|| Command::Serve(serve::ServeArgs::default()))
        {
            Command::Reload(args) => operate(&PROGRAM, args, "reload", |c: &Config| &c.auth),
            Command::Shutdown(args) => operate(&PROGRAM, args, "shutdown", |c: &Config| &c.auth),
            Command::Serve(args) => serve::run(args),
            Command::Get(args) => ask::get(args),
            Command::Put(args) => ask::put(args),
            Command::Provide(args) => ask::provide(args),
        }
    }
}
