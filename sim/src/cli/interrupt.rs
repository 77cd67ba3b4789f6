//! Ctrl-C asks a long command to end; a second one ends it at once.

use std::{
    io,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// What a shell expects of a command that was interrupted.
pub const EXIT: u8 = 130;

/// Set by the first SIGINT from now on.
pub fn flag() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    // Without a runtime of its own the signal ends the process, as it would anyway.
    let _ = listen(asked.clone());
    asked
}

fn listen(asked: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _within = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            while signals.recv().await.is_some() {
                if asked.swap(true, Ordering::Relaxed) {
                    exit(EXIT.into());
                }
            }
        });
    });
    Ok(())
}
