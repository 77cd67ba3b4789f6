//! Signals of the operating system, as a service hears them.
//!
//! SIGINT or SIGTERM asks for a stop; the second one ends the process at once. SIGHUP asks for a reload.
//! They have a thread of their own, so that even a process that is stuck can be ended.

use std::{io, process, thread};

use ron_core::Shutdown;
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// Listens from now on until the process ends.
pub fn watch_signals(stop: Shutdown, on_reload: impl Fn() + Send + 'static) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let signals = {
        let _here = runtime.enter();
        Signals {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(signals.watch(stop, on_reload)))?;
    Ok(())
}

struct Signals {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Signals {
    async fn watch(mut self, stop: Shutdown, on_reload: impl Fn()) {
        let mut asked = false;
        loop {
            // What a shell reports for a process ended by that signal.
            let code = tokio::select! {
                biased;
                Some(()) = self.int.recv() => 130,
                Some(()) = self.term.recv() => 143,
                Some(()) = self.hup.recv() => {
                    on_reload();
                    continue;
                }
                else => return,
            };
            if asked {
                process::exit(code);
            }
            asked = true;
            stop.trigger();
        }
    }
}
