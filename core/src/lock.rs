//! A mutex with a name and a rank, so that locks can only ever be nested in one order.
//!
//! Deadlock between locks needs two threads taking them in different orders; a thread that takes a lock
//! whose rank is not above all it holds panics at once, on the first run that tries, not the unlucky one.
//! Checked in debug builds, and in any build that called [`enforce_order`] (simulations do).

use std::{
    cell::RefCell,
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// What a lock guards and where it stands; declared once, in the service's topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockDecl {
    pub name: &'static str,
    /// Locks are taken in strictly ascending rank.
    pub rank: u16,
    pub guards: &'static str,
}

/// The rank of locks under which nothing else is ever taken: those inside the kernel's own parts.
pub const LEAF: u16 = u16::MAX;

/// Turns the check on for the rest of the process, whatever the build.
pub fn enforce_order() {
    ENFORCED.store(true, Ordering::Relaxed);
}

pub struct RankedMutex<T> {
    decl: LockDecl,
    inner: Mutex<T>,
}

impl<T> RankedMutex<T> {
    pub const fn new(decl: LockDecl, value: T) -> Self {
        RankedMutex {
            decl,
            inner: Mutex::new(value),
        }
    }

    /// Waits for the lock. A holder that panicked does not poison it: critical sections here are a few
    /// assignments, and the supervisor sees the panic itself.
    ///
    /// # Panics
    /// If this thread already holds a lock of the same or a higher rank.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        // The order is checked before waiting: a wrong order must panic, not hang.
        let held = Held::push(self.decl);
        RankedGuard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            _held: held,
        }
    }

    pub fn decl(&self) -> LockDecl {
        self.decl
    }
}

impl<T> fmt::Debug for RankedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankedMutex")
            .field("name", &self.decl.name)
            .field("rank", &self.decl.rank)
            .finish_non_exhaustive()
    }
}

/// The lock is held while this lives. It cannot leave its thread, hence never crosses a spawned `.await`.
pub struct RankedGuard<'a, T> {
    // Dropped in this order: the lock is free before the thread forgets that it held it.
    inner: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// True if this thread holds any ranked lock: what a test asserts to be false at an `.await`.
pub fn holds_any() -> bool {
    HELD.with_borrow(|held| !held.is_empty())
}

static ENFORCED: AtomicBool = AtomicBool::new(cfg!(debug_assertions));

thread_local! {
    static HELD: RefCell<Vec<LockDecl>> = const { RefCell::new(Vec::new()) };
}

/// An entry in this thread's list of held locks.
struct Held {
    rank: Option<u16>,
}

impl Held {
    fn push(decl: LockDecl) -> Held {
        if !ENFORCED.load(Ordering::Relaxed) {
            return Held { rank: None };
        }
        HELD.with_borrow_mut(|held| {
            if let Some(top) = held.iter().max_by_key(|h| h.rank)
                && top.rank >= decl.rank
            {
                panic!(
                    "lock order: `{}` (rank {}) taken while holding `{}` (rank {}); ranks must ascend",
                    decl.name, decl.rank, top.name, top.rank
                );
            }
            held.push(decl);
        });
        Held {
            rank: Some(decl.rank),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(rank) = self.rank {
            // Ranks held by one thread are distinct, so the rank finds the entry whatever the drop order.
            HELD.with_borrow_mut(|held| held.retain(|h| h.rank != rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn lock(name: &'static str, rank: u16) -> RankedMutex<u32> {
        let decl = LockDecl {
            name,
            rank,
            guards: "a number",
        };
        RankedMutex::new(decl, 0)
    }

    // proves: KMS-4.5, EDG-4.5, RWD-4.5, ADM-4.16
    #[test]
    fn locks_nest_only_in_ascending_rank() {
        let cases = [(1, 2, true), (2, 1, false), (1, 1, false), (1, LEAF, true)];
        for (outer, inner, allowed) in cases {
            let (a, b) = (lock("a", outer), lock("b", inner));
            let nested = catch_unwind(AssertUnwindSafe(|| {
                let _outer = a.lock();
                *b.lock() += 1;
            }));
            assert_eq!(nested.is_ok(), allowed, "{outer} then {inner}");
            assert!(
                !holds_any(),
                "nothing stays held after {outer} then {inner}"
            );
        }
    }

    #[test]
    fn the_highest_lock_held_counts_whatever_was_released_in_between() {
        let (a, b, c) = (lock("a", 1), lock("b", 2), lock("c", 3));
        let guard_a = a.lock();
        let guard_c = c.lock();
        drop(guard_a);
        let wrong = catch_unwind(AssertUnwindSafe(|| drop(b.lock())));
        let message = *wrong.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("`b` (rank 2)") && message.contains("`c` (rank 3)"));
        drop(guard_c);
        drop(b.lock());
        assert!(!holds_any());
    }

    #[test]
    fn a_panic_under_the_lock_does_not_lock_others_out() {
        let a = lock("a", 1);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = a.lock();
            *guard = 7;
            panic!("under the lock");
        }));
        assert_eq!(*a.lock(), 7);
    }
}
