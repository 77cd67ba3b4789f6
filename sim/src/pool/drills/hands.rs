//! A future in hand: it is looked at only when it was woken, as an executor would, but exactly when the drill says so.
//!
//! Who was never woken stays asleep, so that a lost wake-up shows as an answer that does not come.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use ron_core::seam::BoxFuture;

/// Whether somebody was woken since it was last asked.
#[derive(Default)]
pub struct Woken(AtomicBool);

impl Woken {
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub struct Hand<T> {
    work: BoxFuture<'static, T>,
    woken: Arc<Woken>,
    waker: Waker,
}

/// A point of the code may let others go first a hundred times in a row, again and again.
const LOOKS: u32 = 100_000;

impl<T> Hand<T> {
    /// Due for a first look.
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Hand {
            work: Box::pin(work),
            waker: woken.clone().into(),
            woken,
        }
    }

    /// What it came to, if it was woken and is done. Not to be called again then.
    pub fn look(&mut self) -> Option<T> {
        for _ in 0..LOOKS {
            if !self.woken.take() {
                break;
            }
            let mut cx = Context::from_waker(&self.waker);
            if let Poll::Ready(value) = self.work.as_mut().poll(&mut cx) {
                return Some(value);
            }
        }
        None
    }
}
