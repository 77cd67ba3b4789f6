//! A task's future as the supervisor spawns it: its end is always told, and never as a panic.
//!
//! Always: the inner future is dropped before its end is told, however it ends, so whoever has heard of
//! the end knows that nothing of the task is left.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use tokio::sync::oneshot;

use crate::seam::BoxFuture;

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

pub(super) struct Tracked {
    future: Option<BoxFuture<'static, ()>>,
    killer: Killer,
    done: Option<oneshot::Sender<Result<(), Death>>>,
}

impl Tracked {
    pub fn new(
        future: BoxFuture<'static, ()>,
        killer: Killer,
    ) -> (Self, oneshot::Receiver<Result<(), Death>>) {
        let (done, ending) = oneshot::channel();
        let tracked = Tracked {
            future: Some(future),
            killer,
            done: Some(done),
        };
        (tracked, ending)
    }

    /// A destructor that panics must not unwind into the runtime either.
    fn discard(&mut self) -> Result<(), Death> {
        let future = self.future.take();
        catch_unwind(AssertUnwindSafe(|| drop(future))).map_err(death)
    }

    fn end(&mut self, ended: Result<(), Death>) {
        let discarded = self.discard();
        if let Some(done) = self.done.take() {
            let _ = done.send(ended.and(discarded));
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
        let Some(future) = &mut this.future else {
            return Poll::Ready(());
        };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => this.end(Ok(())),
            Err(panic) => this.end(Err(death(panic))),
        }
        Poll::Ready(())
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // `done` is dropped after this body, so even an abort is told only once nothing is left.
        let _ = self.discard();
    }
}

fn death(panic: Box<dyn Any + Send>) -> Death {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Death(text.unwrap_or_else(|| "a panic without a message".into()))
}
