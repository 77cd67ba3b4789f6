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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn stop(n: usize) -> Command {
        Command::Stop(TaskId(n as u64))
    }

    fn next(receiver: &Receiver) -> Option<u64> {
        match receiver.next().now_or_never()? {
            Command::Stop(TaskId(n)) => Some(n),
            Command::Start(_) => None,
        }
    }

    #[test]
    fn commands_come_in_order_and_whoever_finds_no_room_waits_for_it() {
        let (sender, receiver) = channel();
        for n in 0..COMMANDS {
            assert_eq!(sender.send(stop(n)).now_or_never(), Some(Ok(())));
        }
        let mut late = Box::pin(sender.send(stop(COMMANDS)));
        assert_eq!(late.as_mut().now_or_never(), None);
        assert_eq!(next(&receiver), Some(0));
        assert_eq!(late.as_mut().now_or_never(), Some(Ok(())));
        for n in 1..=COMMANDS {
            assert_eq!(next(&receiver), Some(n as u64));
        }
        assert_eq!(next(&receiver), None);
        assert_eq!(receiver.0.lock().capacity(), 0, "empty, it has no memory");
    }

    #[test]
    fn when_the_supervisor_is_gone_senders_are_told_and_what_waited_is_dropped() {
        let (sender, receiver) = channel();
        let (reply, mut started) = oneshot::channel();
        let start = Command::Start(Box::new(Start {
            rules: crate::supervisor::TaskSpec::new("a", "a", crate::supervisor::PhaseId(0))
                .rules(None),
            factory: Arc::new(|_| Box::pin(async {})),
            reply,
        }));
        assert_eq!(sender.send(start).now_or_never(), Some(Ok(())));
        for n in 1..COMMANDS {
            assert_eq!(sender.send(stop(n)).now_or_never(), Some(Ok(())));
        }
        let mut late = Box::pin(sender.send(stop(COMMANDS)));
        assert_eq!(late.as_mut().now_or_never(), None);
        drop(receiver);
        assert_eq!(late.as_mut().now_or_never(), Some(Err(Draining)));
        assert_eq!(sender.send(stop(0)).now_or_never(), Some(Err(Draining)));
        assert!(started.try_recv().is_err());
    }
}
