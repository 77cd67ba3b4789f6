//! The audit appender: takes what the queue holds, writes it as one batch, answers whoever waits.
//!
//! One batch at a time, each durable before the next begins. A batch that fails is undone: what it may have
//! left in the file is cut off before anything else is written.

use std::{sync::Arc, time::Duration};

use ron_core::{backoff::Backoff, supervisor::TaskContext};
use tokio::sync::oneshot;

use crate::{
    audit::log::{Act, Mismatch, Trouble},
    auditor::{Auditor, Recorded, Sent, spec::Items},
    journal::{self, JournalError},
};

type Waiters = Vec<Option<oneshot::Sender<Result<Recorded, Trouble>>>>;

/// Runs until the queue is closed and drained, and the log is closed behind it.
pub async fn run(auditor: Arc<Auditor>, context: TaskContext) {
    let mut appender = Appender {
        auditor,
        rng: context.env.rng(),
        failures: 0,
    };
    appender.undo_unfinished().await;
    loop {
        // What is left to tell is told with the end, which may use the reserve.
        if appender.auditor.queue.is_closed() && appender.auditor.queue.is_empty() {
            break;
        }
        let wants = appender.auditor.step(|log| log.wants_append());
        let items = if wants {
            appender.take_ready()
        } else {
            let auditor = &appender.auditor;
            tokio::select! {
                biased;
                items = auditor.queue.pop_batch(auditor.batch_max) => {
                    if items.is_empty() {
                        break;
                    }
                    items
                }
                () = auditor.append_wanted.notified() => continue,
            }
        };
        let waiting = items.iter().filter(|item| item.waiter.is_some()).count();
        let begun = appender.auditor.env.now();
        appender.append(items).await;
        appender.rest().await;
        let took = appender.auditor.env.now() - begun;
        appender.gather(waiting, took).await;
    }
    appender.close().await;
}

struct Appender {
    auditor: Arc<Auditor>,
    rng: ron_core::Rng,
    /// In a row.
    failures: u32,
}

const BACKOFF: Backoff = Backoff::band(
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_secs(1),
);

/// How long events that nobody waits for may wait for company: a batch costs a sync, however small.
const GATHER: Duration = Duration::from_millis(20);

impl Appender {
    /// An earlier incarnation may have died with a batch in its hands.
    async fn undo_unfinished(&mut self) {
        let acts = self.undo();
        self.auditor.spec("spec.kms.audit.append_failed", 0);
        self.perform(acts, Vec::new()).await;
    }

    /// The batch in hand is not written: what it loses is counted.
    fn undo(&self) -> Vec<Act> {
        let lost = self.auditor.step(|log| log.at_stake());
        self.auditor.metrics.audit_dropped.inc_by(lost as u64);
        self.auditor.step(|log| log.handle_append_failed())
    }

    fn take_ready(&self) -> Vec<Sent> {
        let next = || self.auditor.queue.try_pop();
        std::iter::from_fn(next)
            .take(self.auditor.batch_max)
            .collect()
    }

    async fn append(&mut self, items: Vec<Sent>) {
        let wall_ms = self.auditor.env.wall_ms();
        let mut waiters = Waiters::with_capacity(items.len());
        let submissions = items.into_iter().zip(0..).map(|(item, ticket)| {
            let (submission, waiter) = item.into_submission(ticket);
            waiters.push(waiter);
            submission
        });
        let submissions: Vec<_> = submissions.collect();
        let items = Items(&submissions);
        let count = submissions.len() as u64;
        let env = &self.auditor.env;
        env.probe("spec.kms.audit.append", count, format_args!("{items}"));
        let acts = self
            .auditor
            .step(|log| log.begin_append(wall_ms, submissions));
        let refused = acts.iter().filter(|act| matches!(act, Act::Refuse { .. }));
        let refused = refused.count() as u64;
        self.auditor.metrics.audit_dropped.inc_by(refused);
        let in_flight = self.auditor.step(|log| log.in_flight());
        self.auditor.spec("spec.kms.audit.batch", in_flight);
        self.perform(acts, waiters).await;
        let now_ms = self.auditor.now_ms();
        if self.auditor.step(|log| log.checkpoint_due(now_ms)) {
            self.auditor.checkpoint_wanted.notify_one();
        }
    }

    async fn perform(&mut self, acts: Vec<Act>, mut waiters: Waiters) {
        let mut todo = std::collections::VecDeque::from(acts);
        while let Some(act) = todo.pop_front() {
            match act {
                Act::Write { at, bytes } => todo.extend(self.write(at, bytes).await),
                Act::Truncate { len } => self.truncate(len).await,
                Act::Proceed { ticket, seq, index } => {
                    let index = Some(index);
                    if !answer(&mut waiters, ticket, Ok(Recorded { seq, index })) {
                        // Nobody will follow up an intent whose owner is gone.
                        self.auditor.step(|log| log.handle_abandoned(seq));
                        self.auditor.spec("spec.kms.audit.abandon", seq);
                    }
                }
                Act::Refuse { ticket, trouble } => {
                    answer(&mut waiters, ticket, Err(trouble));
                }
                Act::Degraded | Act::Ready => self.auditor.tell(&[act]),
                Act::Publish { .. } => {}
            }
        }
    }

    async fn write(&mut self, at: u64, bytes: Arc<Vec<u8>>) -> Vec<Act> {
        let auditor = &self.auditor;
        let (journal, epoch) = (auditor.journal.clone(), auditor.journal.epoch());
        let length = bytes.len() as u64;
        let mut writing = std::pin::pin!(
            auditor
                .env
                .disk(move |disk| { journal.write(disk.as_ref(), epoch, at, &bytes) })
        );
        let written = tokio::select! {
            biased;
            written = &mut writing => written,
            () = auditor.env.sleep(auditor.append_deadline) => {
                ron_core::sometimes!("kms.append_late");
                auditor.metrics.io_timeouts.with(&["append"]).inc();
                writing.await
            }
        };
        match written {
            Ok(Ok(())) => {
                self.failures = 0;
                let acts = auditor.step(|log| log.handle_appended());
                auditor.spec("spec.kms.audit.appended", auditor.size());
                auditor.tell_reserved();
                auditor
                    .env
                    .probe("kms.appended", auditor.size(), format_args!("{length}"));
                acts
            }
            Ok(Err(JournalError::Replaced)) => {
                let mut acts = auditor.step(|log| log.handle_mismatch(Mismatch::Replaced));
                acts.extend(self.undo());
                acts
            }
            failed => {
                if let Ok(Err(error)) = failed {
                    tracing::warn!(%error, "the audit log could not be written");
                }
                self.failures += 1;
                let acts = self.undo();
                auditor.spec("spec.kms.audit.append_failed", 0);
                acts
            }
        }
    }

    /// Until it is done: nothing may be written behind what a failed write left.
    async fn truncate(&mut self, len: u64) {
        let mut attempt = 0;
        loop {
            let journal = self.auditor.journal.clone();
            let cut = self
                .auditor
                .env
                .disk(move |disk| journal.truncate(disk.as_ref(), len))
                .await;
            match cut {
                Ok(Ok(())) => {
                    self.auditor.step(|log| log.handle_truncated());
                    self.auditor.spec("spec.kms.audit.truncated", len);
                    return;
                }
                Ok(Err(JournalError::Replaced)) => {
                    let acts = self
                        .auditor
                        .step(|log| log.handle_mismatch(Mismatch::Replaced));
                    self.auditor.tell(&acts);
                    return;
                }
                _ => {
                    let delay = BACKOFF.delay(attempt, &mut self.rng);
                    attempt = match self.auditor.is_draining() {
                        true => 0,
                        false => attempt + 1,
                    };
                    self.auditor
                        .metrics
                        .backoff_retries
                        .with(&["truncate"])
                        .inc();
                    self.auditor.env.sleep(delay).await;
                }
            }
        }
    }

    /// After a failure, so that a broken disk is not asked without pause. The queue's policy holds meanwhile.
    async fn rest(&mut self) {
        if self.failures == 0 {
            return;
        }
        let auditor = &self.auditor;
        let draining = auditor.is_draining();
        // A drain has a deadline, and requests that were accepted wait one behind the other.
        let attempt = if draining { 0 } else { self.failures - 1 };
        let delay = BACKOFF.delay(attempt, &mut self.rng);
        auditor.metrics.backoff_retries.with(&["append"]).inc();
        let mut rested = std::pin::pin!(auditor.env.sleep(delay));
        while draining || !auditor.is_draining() {
            tokio::select! {
                biased;
                () = &mut rested => return,
                () = auditor.hurry.notified(), if !draining => {}
            }
        }
    }

    /// Lets a batch grow. Those who waited for the last one are about to tell what came of it, or to ask
    /// again: a moment's patience makes one batch of them all, where two would take turns at half the rate.
    /// What nobody waits for gathers longer, until somebody does.
    async fn gather(&self, waited: usize, took: Duration) {
        let auditor = &self.auditor;
        let queue = &auditor.queue;
        let (enough, limit) = match waited {
            // A queue that such a wait could fill must be emptied at once.
            0 if queue.cap() < 4 * auditor.batch_max => return,
            0 => (auditor.batch_max, GATHER),
            n => (n.min(auditor.batch_max), took / 3),
        };
        // A batch need not wait for company.
        if ron_core::buggify!("kms.no_gathering") {
            return;
        }
        let mut patience = std::pin::pin!(auditor.env.sleep(limit));
        while queue.len() < enough && !queue.is_closed() {
            tokio::select! {
                biased;
                () = auditor.hurry.notified() => {
                    if waited == 0 {
                        return;
                    }
                }
                () = &mut patience => return,
            }
        }
    }

    /// All that was queued is written; the last record says that nothing is missing.
    async fn close(&mut self) {
        self.auditor.step(|log| {
            log.handle_all_abandoned();
            log.close();
        });
        self.auditor.spec("spec.kms.audit.close", 0);
        // The process is about to end: what cannot be written by the phase's deadline is told at the next start.
        loop {
            self.append(Vec::new()).await;
            let (closed, stuck) = self
                .auditor
                .step(|log| (log.is_closed(), log.mismatch().is_some()));
            if closed || stuck {
                return;
            }
            let freed = self
                .auditor
                .env
                .disk(|disk| journal::free_reserve(disk.as_ref()))
                .await;
            match freed {
                Ok(Ok(true)) => ron_core::sometimes!("kms.reserve_used_to_close"),
                _ => self.rest().await,
            }
        }
    }
}

/// False if nobody waits for it.
fn answer(waiters: &mut Waiters, ticket: u64, result: Result<Recorded, Trouble>) -> bool {
    let waiter = usize::try_from(ticket)
        .ok()
        .and_then(|ticket| waiters.get_mut(ticket))
        .and_then(Option::take);
    waiter.is_some_and(|waiter| waiter.send(result).is_ok())
}
