//! The pool's tasks: workers, and two that exist only to try the kernel.

use std::{sync::Arc, time::Duration};

use ron_core::{Env, shutdown::Shutdown};
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
        if app.planted("lose_job") && job.key % 7 == 5 {
            std::mem::forget(job);
            continue;
        }
        if app.config.job_ms > 0 {
            app.env
                .sleep(Duration::from_millis(app.config.job_ms))
                .await;
        }
        let incarnation = if app.planted("stale_writer") && job.key % 2 == 0 {
            app.incarnation - 1
        } else {
            app.incarnation
        };
        let record = Record {
            key: job.key,
            incarnation,
        };
        let sync = !app.planted("ack_before_sync");
        match app.store.append(&app.env, record, sync).await {
            Ok(Ok(())) => job.settle(Done::Stored),
            Ok(Err(_)) | Err(_) => job.settle(Done::Failed),
        }
    }
}

/// Sleeps and tells how long each sleep lasted by the node's own clock.
pub async fn tick(app: Arc<App>, stop: Shutdown) {
    let by_wall = app.planted("clock_wall");
    loop {
        let (began, began_wall) = (app.env.now(), app.env.wall_ms());
        tokio::select! {
            biased;
            () = stop.wait() => return,
            () = app.env.sleep(Duration::from_millis(100)) => {}
        }
        let mut lasted = (app.env.now() - began).as_nanos() as u64;
        if by_wall {
            lasted = app.env.wall_ms().saturating_sub(began_wall) * 1_000_000;
        }
        app.env.probe("clock.tick", lasted, format_args!("ns"));
    }
}

/// Asks for the shutdown signal long after its start, perhaps after the signal was given.
pub async fn subscribe_late(app: Arc<App>, late: Duration, stop: Shutdown) {
    app.env.sleep(late).await;
    if app.planted("edge_shutdown") && stop.is_triggered() {
        // An edge that has passed never comes again.
        std::future::pending::<()>().await;
    }
    if stop.is_triggered() {
        app.env
            .probe("late.subscribed_after_shutdown", 0, format_args!(""));
    }
    stop.wait().await;
}
