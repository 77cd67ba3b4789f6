//! The pool's tasks: workers, and two that exist only to try the kernel.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use ron_core::{
    Env,
    bus::{Bus, KernelEvent},
    shutdown::Shutdown,
};
use tokio::sync::oneshot;

use super::{App, log::Record};

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Stored,
    Failed,
}

/// One item to store. It tells, exactly once, what became of it: even when it is thrown away.
pub struct Job {
    pub key: u64,
    reply: Option<oneshot::Sender<Done>>,
    env: Env,
    accepted: bool,
}

impl Job {
    pub fn new(env: &Env, key: u64) -> (Self, oneshot::Receiver<Done>) {
        let (reply, answer) = oneshot::channel();
        (
            Job {
                key,
                reply: Some(reply),
                env: env.clone(),
                accepted: true,
            },
            answer,
        )
    }

    /// It was never accepted: nothing is lost if it goes.
    pub fn refused(mut self) {
        self.accepted = false;
    }

    fn settle(mut self, done: Done) {
        let event = if done == Done::Stored {
            "job.done"
        } else {
            "job.failed"
        };
        self.env.probe(event, self.key, format_args!(""));
        self.accepted = false;
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(done);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.accepted {
            self.env.probe("job.lost", self.key, format_args!(""));
        }
    }
}

/// Takes jobs until the queue is closed and empty.
pub async fn run(app: Arc<App>) {
    while let Some(job) = app.queue.pop().await {
        app.env.probe("spec.queue.pop", job.key, format_args!(""));
        if ron_core::buggify!("pool.slow_job") {
            app.env.sleep(Duration::from_millis(3)).await;
        }
        if app.config.job_ms > 0 {
            app.env
                .sleep(Duration::from_millis(app.config.job_ms))
                .await;
        }
        let record = Record {
            key: job.key,
            incarnation: app.incarnation,
        };
        match app.store.append(&app.env, record).await {
            Ok(Ok(())) => job.settle(Done::Stored),
            Ok(Err(_)) | Err(_) => job.settle(Done::Failed),
        }
    }
}

/// Sleeps and tells how long each sleep lasted by the node's own clock.
pub async fn tick(app: Arc<App>, stop: Shutdown) {
    let (mut published, snapshot) = ron_core::snapshot(0u64);
    for turn in 1u64.. {
        let began = app.env.now();
        tokio::select! {
            biased;
            () = stop.wait() => return,
            () = app.env.sleep(Duration::from_millis(100)) => {}
        }
        let lasted = (app.env.now() - began).as_nanos() as u64;
        app.env.probe("clock.tick", lasted, format_args!("ns"));
        published.publish(turn);
        let loaded = snapshot.load();
        app.env
            .probe("snapshot.loaded", *loaded, format_args!("{turn}"));
        tell_losses(&app);
    }
}

/// Floods a small bus that nobody reads meanwhile, and tells what its reader got and what was counted as lost.
fn tell_losses(app: &App) {
    let bus = Bus::with_capacity(8);
    let mut reader = bus.subscribe();
    for version in 0..FLOOD {
        bus.publish(KernelEvent::ConfigUpdated { version });
    }
    let got = std::iter::from_fn(|| reader.recv().now_or_never().flatten()).count();
    let lost = bus.lagged();
    app.env
        .probe("bus.flooded", got as u64, format_args!("{lost}"));
}

pub const FLOOD: u64 = 20;

/// Asks for the shutdown signal long after its start, perhaps after the signal was given.
pub async fn subscribe_late(app: Arc<App>, late: Duration, stop: Shutdown) {
    app.env.sleep(late).await;
    if stop.is_triggered() {
        app.env
            .probe("late.subscribed_after_shutdown", 0, format_args!(""));
    }
    stop.wait().await;
}
