//! A task as the supervisor spawns it: its end is always told, and never as a panic.
//!
//! Always: the inner future is dropped before its end is told, however it ends, so whoever has heard of
//! the end knows that nothing of the task is left; each end is told once.

use std::{
    any::Any,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

use super::{Factory, TaskContext};
use crate::{lifecycle::TaskId, seam::BoxFuture};

/// Why a task ended other than by returning: what its panic said.
#[derive(Clone, Debug)]
pub(super) struct Death(pub String);

/// Makes a live task fail as if it had panicked at its present await.
#[derive(Clone, Default)]
pub(super) struct Killer(Arc<Kill>);

#[derive(Default)]
struct Kill {
    asked: AtomicBool,
    waker: AtomicWaker,
}

impl Killer {
    pub fn kill(&self) {
        self.0.asked.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// Where all tasks of a supervisor tell their end. As many wait in it as have ended since it was last looked at.
#[derive(Default)]
pub(super) struct Endings {
    told: Mutex<VecDeque<(TaskId, Result<(), Death>)>>,
    waker: AtomicWaker,
}

impl Endings {
    /// The next end, in the order in which they came. May be dropped at any time.
    pub async fn next(&self) -> (TaskId, Result<(), Death>) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            let mut told = self.lock();
            let next = told.pop_front();
            if told.is_empty() {
                *told = VecDeque::new();
            }
            next.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn tell(&self, id: TaskId, ended: Result<(), Death>) {
        self.lock().push_back((id, ended));
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(TaskId, Result<(), Death>)>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Tracked {
    id: TaskId,
    state: State,
    killer: Killer,
    /// None once its end was told.
    endings: Option<Arc<Endings>>,
}

enum State {
    /// The factory runs inside the task, so that a panic in it is a panic of the task.
    New(Factory, TaskContext),
    Running(BoxFuture<'static, ()>),
    Gone,
}

impl Tracked {
    pub fn new(
        id: TaskId,
        factory: Factory,
        context: TaskContext,
        killer: Killer,
        endings: Arc<Endings>,
    ) -> Self {
        Tracked {
            id,
            state: State::New(factory, context),
            killer,
            endings: Some(endings),
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::New(..) = self.state
            && let State::New(factory, context) = std::mem::replace(&mut self.state, State::Gone)
        {
            self.state = State::Running(factory(context));
        }
        match &mut self.state {
            State::Running(future) => future.as_mut().poll(cx),
            State::New(..) | State::Gone => Poll::Ready(()),
        }
    }

    /// A destructor that panics must not unwind into the runtime either.
    fn discard(&mut self) -> Result<(), Death> {
        let state = std::mem::replace(&mut self.state, State::Gone);
        catch_unwind(AssertUnwindSafe(|| drop(state))).map_err(death)
    }

    fn end(&mut self, ended: Result<(), Death>) {
        let discarded = self.discard();
        if let Some(endings) = self.endings.take() {
            endings.tell(self.id, ended.and(discarded));
        }
    }
}

impl Future for Tracked {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.killer.0.waker.register(cx.waker());
        if this.killer.0.asked.load(Ordering::Acquire) {
            this.end(Err(Death("killed on purpose".into())));
            return Poll::Ready(());
        }
        match catch_unwind(AssertUnwindSafe(|| this.step(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => this.end(Ok(())),
            Err(panic) => this.end(Err(death(panic))),
        }
        Poll::Ready(())
    }
}

/// An end without a word is an abort of ours, or of the runtime; the machine knows which.
impl Drop for Tracked {
    fn drop(&mut self) {
        let _ = self.discard();
        if let Some(endings) = self.endings.take() {
            endings.tell(self.id, Ok(()));
        }
    }
}

fn death(panic: Box<dyn Any + Send>) -> Death {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Death(text.unwrap_or_else(|| "a panic without a message".into()))
}
