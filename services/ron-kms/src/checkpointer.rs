//! The audit checkpointer: publishes the tree and signs its head, every N records or T seconds.
//!
//! Late or failed, it turns readiness off and is counted; the next one that succeeds turns it on again. At
//! the end it covers everything that was appended.

use std::{sync::Arc, time::Duration};

use ron_core::{backoff::Backoff, supervisor::TaskContext};

use crate::{
    audit::log::{Act, Head, Mismatch},
    auditor::Auditor,
    journal::{JournalError, Reserve},
};

const BACKOFF: Backoff = Backoff::band(
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_secs(1),
);

/// Runs until it is told to stop, then writes the final checkpoint.
pub async fn run(auditor: Arc<Auditor>, tick: Duration, context: TaskContext) {
    let mut rng = context.env.rng();
    // An earlier incarnation may have died with a checkpoint in its hands.
    let acts = auditor.step(|log| log.handle_checkpoint_failed());
    auditor.spec_ready("spec.kms.audit.checkpoint_failed", 0);
    auditor.tell(&acts);
    let mut failures = 0;
    loop {
        let pause = match failures {
            0 => tick,
            n => BACKOFF.delay(n - 1, &mut rng),
        };
        tokio::select! {
            biased;
            () = context.stop.wait() => break,
            () = auditor.checkpoint_wanted.notified(), if failures == 0 => {}
            () = context.env.sleep(pause) => {}
        }
        let now_ms = auditor.now_ms();
        // One that nobody asked for does no harm.
        let due = auditor.step(|log| log.checkpoint_due(now_ms));
        if !due && !ron_core::buggify!("kms.checkpoint_unasked") {
            continue;
        }
        match checkpoint(&auditor, Reserve::Keep).await {
            true => failures = 0,
            false => {
                failures += 1;
                auditor.metrics.backoff_retries.with(&["checkpoint"]).inc();
            }
        }
    }
    finish(&auditor).await;
}

/// Covers all that is durable, however often it takes; the phase's deadline ends it.
pub(crate) async fn finish(auditor: &Auditor) {
    let mut rng = auditor.env.rng();
    let uncovered = || auditor.step(|log| log.size() > log.covered() && log.mismatch().is_none());
    let mut attempt = 0;
    while uncovered() {
        ron_core::sometimes!("kms.last_checkpoint");
        if !checkpoint(auditor, Reserve::Use).await {
            auditor.env.sleep(BACKOFF.delay(attempt, &mut rng)).await;
            attempt += 1;
        }
    }
}

/// One checkpoint; false if it failed.
async fn checkpoint(auditor: &Auditor, reserve: Reserve) -> bool {
    let now_ms = auditor.now_ms();
    let Some(Act::Publish { head, files }) = auditor.step(|log| log.begin_checkpoint(now_ms))
    else {
        return true;
    };
    auditor.spec("spec.kms.audit.checkpoint", head.size);
    let note = match auditor.sign(&head) {
        Ok(note) => note,
        Err(error) => {
            tracing::error!(%error, "the checkpoint could not be signed");
            return end(auditor, &head, None);
        }
    };
    let (journal, attempt, bytes) = (
        auditor.journal.clone(),
        auditor.next_attempt(),
        note.clone(),
    );
    let mut writing = std::pin::pin!(auditor.env.disk(move |disk| {
        let published = journal.publish(disk.as_ref(), attempt, &files, &bytes, reserve);
        if published.is_ok() {
            // Room that an emergency used is set aside again once there is some.
            let _ = journal.make_reserve(disk.as_ref());
        }
        published
    }));
    let written = tokio::select! {
        biased;
        written = &mut writing => written,
        () = auditor.env.sleep(auditor.checkpoint_deadline) => {
            ron_core::sometimes!("kms.checkpoint_late");
            auditor.metrics.io_timeouts.with(&["checkpoint"]).inc();
            let now_ms = auditor.now_ms();
            let acts = auditor.step(|log| log.handle_time(now_ms));
            auditor.spec_ready("spec.kms.audit.overdue", 0);
            auditor.tell(&acts);
            writing.await
        }
    };
    match written {
        Ok(Ok(())) => end(auditor, &head, Some(note)),
        Ok(Err(JournalError::Replaced)) => {
            let acts = auditor.step(|log| log.handle_mismatch(Mismatch::Replaced));
            auditor.tell(&acts);
            end(auditor, &head, None)
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the checkpoint could not be written");
            end(auditor, &head, None)
        }
        Err(_) => end(auditor, &head, None),
    }
}

fn end(auditor: &Auditor, head: &Head, note: Option<Vec<u8>>) -> bool {
    let Some(note) = note else {
        ron_core::sometimes!("kms.checkpoint_failed");
        let acts = auditor.step(|log| log.handle_checkpoint_failed());
        auditor.spec_ready("spec.kms.audit.checkpoint_failed", 0);
        auditor.tell(&acts);
        return false;
    };
    let now_ms = auditor.now_ms();
    auditor.published(head.size, note);
    auditor
        .env
        .probe("kms.checkpointed", head.size, format_args!(""));
    let acts = auditor.step(|log| log.handle_checkpointed(now_ms));
    auditor.spec_ready("spec.kms.audit.checkpointed", head.size);
    auditor.tell(&acts);
    true
}
