//! `Shutdown`: the signal to stop, as a latch and not an edge.
//!
//! Always: once triggered it stays so; whoever waits is woken and whoever asks later is answered at
//! once; triggering again changes nothing; a dropped `wait` leaves nothing behind.

use std::{
    fmt,
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use crate::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    waiters::{Slot, Waiters},
};

/// A handle; clones share one latch.
#[derive(Clone)]
pub struct Shutdown {
    latch: Arc<Latch>,
}

struct Latch {
    triggered: AtomicBool,
    waiters: Mutex<Waiters<Waker>>,
}

impl Shutdown {
    pub fn new() -> Self {
        Shutdown {
            latch: Arc::new(Latch {
                triggered: AtomicBool::new(false),
                waiters: Mutex::new(Waiters::new()),
            }),
        }
    }

    /// Returns whether this call was the first. Everybody who waits is woken, in order of arrival.
    pub fn trigger(&self) -> bool {
        if self.latch.triggered.swap(true, Ordering::AcqRel) {
            crate::sometimes!("shutdown.asked_twice");
            return false;
        }
        // One at a time, because a waker may run code that comes back here.
        loop {
            let next = self.latch.waiters.lock().wake_first();
            match next {
                Some(waker) => waker.wake(),
                None => return true,
            }
        }
    }

    pub fn is_triggered(&self) -> bool {
        self.latch.triggered.load(Ordering::Acquire)
    }

    /// Resolves once triggered, at once if that has already happened. May be dropped at any time.
    pub async fn wait(&self) {
        let mut waiter = Waiter {
            latch: &self.latch,
            slot: None,
        };
        poll_fn(|cx| waiter.poll(cx)).await;
    }

    /// How many wait and have not been woken.
    pub fn waiting(&self) -> usize {
        self.latch.waiters.lock().waiting()
    }
}

struct Waiter<'a> {
    latch: &'a Latch,
    slot: Option<Slot>,
}

impl Waiter<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.latch.triggered.load(Ordering::Acquire) {
            if self.slot.is_none() {
                crate::sometimes!("shutdown.asked_late");
            }
            return Poll::Ready(());
        }
        let mut waiters = self.latch.waiters.lock();
        // `trigger` sets the flag before it takes the lock: not set here means it will find us.
        if self.latch.triggered.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let stale = waiters.park(&mut self.slot, cx.waker().clone());
        drop(waiters);
        drop(stale);
        if crate::buggify!("shutdown.wakes_for_nothing") {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            let unused = self.latch.waiters.lock().leave(&mut self.slot);
            drop(unused);
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("triggered", &self.is_triggered())
            .finish()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        sync::{Arc, atomic::AtomicUsize},
        task::{Context, Wake},
    };

    use futures_util::{FutureExt, task::noop_waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_who_waits_late_still_sees_it() {
        let shutdown = Shutdown::new();
        let other = shutdown.clone();
        assert!(shutdown.wait().now_or_never().is_none());
        shutdown.trigger();
        assert!(other.is_triggered());
        assert_eq!(other.wait().now_or_never(), Some(()));
    }

    #[test]
    fn only_the_first_trigger_is_the_first() {
        // proves: DHT-6.7
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_triggered());
        assert!(shutdown.trigger());
        assert!(!shutdown.clone().trigger());
        assert!(shutdown.is_triggered());
    }

    #[test]
    fn trigger_wakes_everyone_who_waits() {
        let shutdown = Shutdown::new();
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        let (mut a, mut b) = (pin!(shutdown.wait()), pin!(shutdown.wait()));
        assert!(a.as_mut().poll(&mut cx).is_pending());
        assert!(b.as_mut().poll(&mut cx).is_pending());
        shutdown.trigger();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert!(a.as_mut().poll(&mut cx).is_ready());
        assert!(b.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn dropped_waits_leave_nothing_behind() {
        let shutdown = Shutdown::new();
        let waker = noop_waker();
        for _ in 0..100 {
            let mut wait = Box::pin(shutdown.wait());
            assert!(
                wait.as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            assert_eq!(shutdown.waiting(), 1);
        }
        assert_eq!(shutdown.waiting(), 0);
    }
}
