//! `svc-dht`: its commands are in the library.

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    svc_dht::commands::Cli::parse().run()
}
