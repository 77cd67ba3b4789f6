//! The primitives that `Queue`, `Shutdown` and `Snapshot` stand on: std's, or loom's with the feature `loom`.
//!
//! Code that shares state between tasks takes these from here, so that loom sees every step of it.
//! Always: a lock is held for a few instructions, never across an await, and never while a waker runs.

pub mod waiters;

#[cfg(not(feature = "loom"))]
use std::sync as imp;

#[cfg(feature = "loom")]
use loom::sync as imp;

pub use imp::{Arc, MutexGuard};

pub mod atomic {
    #[cfg(feature = "loom")]
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(feature = "loom"))]
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

/// A mutex whose `lock` just locks. What it guards is consistent between any two operations, so a
/// holder that panicked (in a caller's closure) leaves nothing half done: poison is ignored.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(imp::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::Mutex;

    #[test]
    fn a_panic_under_the_lock_does_not_lock_out_the_others() {
        let mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 1);
    }
}
