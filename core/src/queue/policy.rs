//! What happens to an item that finds the queue full: one type per answer, so that a queue's signature
//! tells it and a caller cannot mistake one for another.
//!
//! Pure: a policy decides over the [`Ring`]; the queue does the waiting. Always: an item ends up in the
//! ring, back with its producer, or in place of one that is handed out and counted; depth stays within cap.

use std::time::Duration;

use rand_core::Rng as _;

use super::ring::{Refused, Ring};
use crate::Rng;

/// How a producer that finds the queue full goes on.
pub trait Policy<T> {
    /// What a producer learns when its item got in.
    type Accepted;

    /// The first try.
    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<Self::Accepted, T>;

    /// The last try, once waiting is over (or was never meant): it always decides.
    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<Self::Accepted, Refused<T>>;
}

/// A first try's answer.
pub enum Offer<A, T> {
    Done(Result<A, Refused<T>>),
    /// Full; this policy waits before it decides.
    Wait(T),
}

/// Full means no, at once: the caller is told and can shed load while latency stays bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectNew;

/// Waits for room, this long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFor(pub Duration);

/// The newest items win: the oldest one leaves and is handed to the producer that displaced it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropOldest;

/// Waits for room for `wait` at most; then the oldest item that need not be kept leaves and is handed
/// to the producer that displaced it. If every queued item must be kept, the new one is refused, even
/// if it must be kept itself: the cap holds, and the producer learns of it and still has its item.
pub struct WaitThenDropOldest<T> {
    pub wait: Duration,
    /// Runs under the queue's lock: a plain look at the item, nothing more.
    pub keep: fn(&T) -> bool,
}

/// Tries, sleeps a random time from the window, tries once more, then refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOnce {
    pub lo: Duration,
    /// A window that ends before it starts is just `lo`.
    pub hi: Duration,
}

impl RetryOnce {
    /// Uniform over `lo..=hi`, to the nanosecond.
    pub fn delay(&self, rng: &mut Rng) -> Duration {
        let span = self.hi.saturating_sub(self.lo).as_nanos() as u64;
        let drawn = (u128::from(rng.next_u64()) * (u128::from(span) + 1)) >> 64;
        self.lo + Duration::from_nanos(drawn as u64)
    }
}

impl<T> Policy<T> for RejectNew {
    type Accepted = ();

    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<(), T> {
        Offer::Done(ring.put(item))
    }

    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<(), Refused<T>> {
        ring.put(item)
    }
}

impl<T> Policy<T> for WaitFor {
    type Accepted = ();

    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<(), T> {
        put_or_wait(ring, item)
    }

    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<(), Refused<T>> {
        ring.put(item)
    }
}

impl<T> Policy<T> for DropOldest {
    type Accepted = Option<T>;

    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<Option<T>, T> {
        Offer::Done(self.give_up(ring, item))
    }

    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<Option<T>, Refused<T>> {
        let displaced = ring.make_room(|_| false);
        ring.put(item).map(|()| displaced)
    }
}

impl<T> Policy<T> for WaitThenDropOldest<T> {
    type Accepted = Option<T>;

    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<Option<T>, T> {
        match put_or_wait(ring, item) {
            Offer::Done(done) => Offer::Done(done.map(|()| None)),
            Offer::Wait(item) => Offer::Wait(item),
        }
    }

    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<Option<T>, Refused<T>> {
        let displaced = ring.make_room(self.keep);
        ring.put(item).map(|()| displaced)
    }
}

impl<T> Policy<T> for RetryOnce {
    type Accepted = ();

    fn offer(&self, ring: &mut Ring<T>, item: T) -> Offer<(), T> {
        put_or_wait(ring, item)
    }

    fn give_up(&self, ring: &mut Ring<T>, item: T) -> Result<(), Refused<T>> {
        ring.put(item)
    }
}

// By hand, because a derive would ask the same of `T`.
impl<T> Clone for WaitThenDropOldest<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for WaitThenDropOldest<T> {}

impl<T> std::fmt::Debug for WaitThenDropOldest<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitThenDropOldest")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// Full is undecided; everything else is settled by the ring.
fn put_or_wait<T>(ring: &mut Ring<T>, item: T) -> Offer<(), T> {
    if ring.is_full() {
        return Offer::Wait(item);
    }
    Offer::Done(ring.put(item))
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::queue::Refusal;

    fn full() -> Ring<u32> {
        let mut ring = Ring::new(2);
        ring.put(1).unwrap();
        ring.put(2).unwrap();
        ring
    }

    fn contents(ring: &Ring<u32>) -> Vec<u32> {
        ring.items().copied().collect()
    }

    #[test]
    fn when_every_queued_item_is_kept_the_new_one_is_refused_kept_or_not() {
        // proves: KMS-3.7
        let policy = WaitThenDropOldest {
            wait: Duration::ZERO,
            keep: |item: &u32| *item < 10,
        };
        for newcomer in [3, 30] {
            let mut ring = full();
            let refused = policy.give_up(&mut ring, newcomer).unwrap_err();
            assert_eq!((refused.item, refused.why), (newcomer, Refusal::Full));
            assert_eq!(contents(&ring), [1, 2]);
        }
    }

    #[test]
    fn after_the_wait_the_oldest_item_that_is_not_kept_leaves() {
        // proves: KMS-3.7
        let policy = WaitThenDropOldest {
            wait: Duration::ZERO,
            keep: |item: &u32| *item == 1,
        };
        let mut ring = full();
        assert_eq!(policy.give_up(&mut ring, 3), Ok(Some(2)));
        assert_eq!(contents(&ring), [1, 3]);
    }

    #[test]
    fn waiting_policies_do_not_decide_at_the_first_try_and_count_nothing() {
        let mut ring = full();
        let before = ring.stats("q");
        let retry = RetryOnce {
            lo: Duration::ZERO,
            hi: Duration::ZERO,
        };
        assert!(matches!(retry.offer(&mut ring, 3), Offer::Wait(3)));
        let wait = WaitFor(Duration::ZERO);
        assert!(matches!(wait.offer(&mut ring, 3), Offer::Wait(3)));
        assert_eq!(ring.stats("q"), before);
    }

    #[test]
    fn closed_ends_every_policy_at_the_first_try() {
        let mut ring = full();
        ring.close();
        let retry = RetryOnce {
            lo: Duration::ZERO,
            hi: Duration::ZERO,
        };
        assert!(matches!(retry.offer(&mut ring, 3), Offer::Done(Err(_))));
        assert!(matches!(
            DropOldest.offer(&mut ring, 3),
            Offer::Done(Err(_))
        ));
        assert_eq!(contents(&ring), [1, 2]);
    }

    #[test]
    fn the_retry_delay_fills_its_window_and_never_leaves_it() {
        // proves: RWD-3.9
        let (lo, hi) = (Duration::from_millis(50), Duration::from_millis(150));
        let mut rng = Rng::seed_from_u64(7);
        let delays: Vec<Duration> = (0..1000)
            .map(|_| RetryOnce { lo, hi }.delay(&mut rng))
            .collect();
        assert!(delays.iter().all(|d| (lo..=hi).contains(d)));
        assert!(delays.iter().min().unwrap() < &Duration::from_millis(55));
        assert!(delays.iter().max().unwrap() > &Duration::from_millis(145));
        let backwards = RetryOnce { lo: hi, hi: lo };
        assert_eq!(backwards.delay(&mut rng), hi);
        let both_ends = RetryOnce {
            lo: Duration::from_nanos(1),
            hi: Duration::from_nanos(2),
        };
        let drawn: std::collections::BTreeSet<_> =
            (0..64).map(|_| both_ends.delay(&mut rng)).collect();
        assert_eq!(drawn.len(), 2);
    }
}
