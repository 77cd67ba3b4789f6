//! hyper's idea of a runtime, on the seam: its timers and tasks come from [`Env`].
//!
//! IO needs no adapter of ours (`hyper_util::rt::TokioIo` wraps any [`Conn`](crate::seam::Conn)).

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::rt::{Executor, Sleep, Timer};

use crate::{Env, seam::BoxFuture};

/// Spawns hyper's own tasks (HTTP/2 streams, client connections) through [`Env::spawn`].
#[derive(Clone, Debug)]
pub struct EnvExecutor(pub Env);

impl<F> Executor<F> for EnvExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn("hyper", future));
    }
}

/// hyper's timers, on [`Env::sleep_until`].
#[derive(Clone, Debug)]
pub struct EnvTimer(pub Env);

impl Timer for EnvTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.0.now() + duration)
    }

    fn sleep_until(&self, at: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(EnvSleep(Mutex::new(self.0.sleep_until(at))))
    }

    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// The lock is never contended: it only makes the boxed future `Sync`, which hyper asks for.
struct EnvSleep(Mutex<BoxFuture<'static, ()>>);

impl Sleep for EnvSleep {}

impl Future for EnvSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.get_mut().0.get_mut();
        sleep
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .poll(cx)
    }
}
