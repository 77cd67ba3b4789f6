//! The `sim` command. All of it is in [`sim::cli`].

use std::process::ExitCode;

/// A request is hundreds of small allocations, and runs on all cores allocate at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    sim::cli::main(&args)
}
