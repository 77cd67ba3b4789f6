//! What others ask of a running supervisor: to start a task, to stop one.
//!
//! A channel that is small while it is empty, which is nearly always: a process has one, and a machine may have
//! thousands of processes. Always: in the order they were sent; at most [`COMMANDS`] wait, who sends more waits for
//! room; once the supervisor is gone, whoever sends is told, and what waited is dropped.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use futures_util::task::AtomicWaker;
use tokio::sync::{Semaphore, oneshot};

use super::{Draining, Factory};
use crate::lifecycle::{TaskId, TaskRules};

/// How many requests to start or stop a task may wait at once.
const COMMANDS: usize = 64;

pub(super) enum Command {
    Start(Box<Start>),
    Stop(TaskId),
}

pub(super) struct Start {
    pub rules: TaskRules,
    pub factory: Factory,
    pub reply: oneshot::Sender<Option<TaskId>>,
}

#[derive(Clone)]
pub(super) struct Sender(Arc<Shared>);

/// There is one; dropped, it closes the channel.
pub(super) struct Receiver(Arc<Shared>);

struct Shared {
    waiting: Mutex<VecDeque<Command>>,
    /// Closed with the channel.
    room: Semaphore,
    waker: AtomicWaker,
}

pub(super) fn channel() -> (Sender, Receiver) {
    let shared = Arc::new(Shared {
        waiting: Mutex::default(),
        room: Semaphore::new(COMMANDS),
        waker: AtomicWaker::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl Sender {
    pub async fn send(&self, command: Command) -> Result<(), Draining> {
        let shared = &self.0;
        shared.room.acquire().await.map_err(|_| Draining)?.forget();
        let mut waiting = shared.lock();
        if shared.room.is_closed() {
            return Err(Draining);
        }
        waiting.push_back(command);
        drop(waiting);
        shared.waker.wake();
        Ok(())
    }
}

impl Receiver {
    /// May be dropped at any time: a command is either returned or still there.
    pub async fn next(&self) -> Command {
        let shared = &self.0;
        let command = poll_fn(|cx| {
            shared.waker.register(cx.waker());
            let mut waiting = shared.lock();
            let next = waiting.pop_front();
            if waiting.is_empty() {
                *waiting = VecDeque::new();
            }
            next.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        shared.room.add_permits(1);
        command
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.room.close();
        // Outside the lock: what a command holds may come back here.
        let waiting = std::mem::take(&mut *self.0.lock());
        drop(waiting);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
