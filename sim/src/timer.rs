//! Timers on madsim's virtual clock, at nanosecond resolution.
//!
//! madsim's own `Sleep` lasts at least a millisecond and adds a heap entry at every pending poll; ours
//! keeps its deadline exactly and registers once per task that waits on it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use madsim::time::TimeHandle;

/// Simulated time since the world began.
pub fn elapsed() -> Duration {
    TimeHandle::current().elapsed()
}

pub fn now() -> Instant {
    TimeHandle::current().now_instant()
}

/// Wakes `waker` once the world's clock reaches `at`. It cannot be taken back.
pub fn wake_at(at: Instant, waker: &Waker) {
    let time = TimeHandle::current();
    if time.now_instant() >= at {
        return waker.wake_by_ref();
    }
    let mut sleep = time.sleep_until(at);
    // `sleep_until` rounds up to a millisecond; `reset` does not.
    Pin::new(&mut sleep).reset(at);
    let _ = Pin::new(&mut sleep).poll(&mut Context::from_waker(waker));
}

/// Resolves at `at`, world time.
pub struct Sleep {
    at: Instant,
    slot: Option<Arc<Slot>>,
}

#[derive(Default)]
struct Slot(Mutex<Option<Waker>>);

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = self.0.lock().unwrap().take() {
            waker.wake();
        }
    }
}

pub fn sleep_until(at: Instant) -> Sleep {
    Sleep { at, slot: None }
}

pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now() >= self.at {
            return Poll::Ready(());
        }
        match &self.slot {
            Some(slot) => {
                let mut waker = slot.0.lock().unwrap();
                // Fired a touch early (clock rounding): register again.
                let fired = waker.is_none();
                *waker = Some(cx.waker().clone());
                drop(waker);
                if fired {
                    wake_at(self.at, &Waker::from(slot.clone()));
                }
            }
            None => {
                let slot = Arc::new(Slot(Mutex::new(Some(cx.waker().clone()))));
                wake_at(self.at, &Waker::from(slot.clone()));
                self.slot = Some(slot);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.0.lock().unwrap().take();
        }
    }
}
