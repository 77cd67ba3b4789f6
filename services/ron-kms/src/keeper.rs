//! The backend keeper: keeps the backend's sessions alive, and does what time makes due.
//!
//! While the backend answers, it is asked at a steady pace; once it does not, with a growing, jittered pause.

use std::{sync::Arc, time::Duration};

use ron_core::{backoff::Backoff, supervisor::TaskContext};

use crate::{ask::Caller, changes, engine::Engine};

const RECONNECT: Backoff = Backoff::band(
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_secs(5),
);

pub(crate) async fn run(engine: Arc<Engine>, pace: Duration, context: TaskContext) {
    let mut rng = context.env.rng();
    let mut failures = 0;
    let mut full = 0;
    loop {
        let up = tokio::select! {
            biased;
            () = context.stop.wait() => return,
            up = engine.refresh() => up,
        };
        let pause = match up {
            true => {
                failures = 0;
                changes::housekeep(&engine).await;
                full = tell_full(&engine, full);
                pace
            }
            false => {
                failures += 1;
                engine.metrics.backoff_retries.with(&["backend"]).inc();
                RECONNECT.delay(failures - 1, &mut rng).min(pace)
            }
        };
        tokio::select! {
            biased;
            () = context.stop.wait() => return,
            () = context.env.sleep(pause) => {}
        }
    }
}

/// Says once of each key that its policy can rotate it no more; returns how many there are.
fn tell_full(engine: &Engine, before: usize) -> usize {
    let everyone = Caller {
        actor: String::new(),
        tenant: None,
    };
    let index = engine.ring.index();
    let keys = index.visible(&everyone);
    let full = keys
        .iter()
        .filter(|entry| entry.key.is_full() && entry.key.policy().rotate_after_ms.is_some())
        .count();
    if full > before {
        let keys = full - before;
        tracing::warn!(
            keys,
            "keys have all the versions they may have and are not rotated any more: create others"
        );
    }
    engine.metrics.keys_full.set(full as i64);
    full
}
