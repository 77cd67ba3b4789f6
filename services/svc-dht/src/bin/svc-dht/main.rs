//! The command line of svc-dht. Parses arguments; the work is in the library.

// The binary is where the service meets the machine: files, terminal, environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod ask;
mod serve;
mod setup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kademlia that finds things with a third of its nodes dead.
#[derive(Parser)]
#[command(name = "svc-dht", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node (the default)
    Serve(setup::ConfigArgs),
    /// Find a value, by its key or by its name and publisher
    Get(ask::GetArgs),
    /// Store a value under a name; it is signed with the node's key
    Put(ask::PutArgs),
    /// Announce that the node provides what a key stands for
    Provide(ask::ProvideArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match command.unwrap_or_else(|| Command::Serve(setup::ConfigArgs::default())) {
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => ask::get(args),
        Command::Put(args) => ask::put(args),
        Command::Provide(args) => ask::provide(args),
    }
}
