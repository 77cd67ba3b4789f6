//! Timers on the world's virtual clock, at nanosecond resolution.
//!
//! Always: a sleep that is dropped leaves nothing behind but a place in the heap, and no more places than
//! there are timers are left behind like that; timers of one moment fire in the order they were set.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::executor::{base, nanos, with_timers};

/// Simulated time since the world began.
pub fn elapsed() -> Duration {
    Duration::from_nanos(nanos())
}

pub fn now() -> Instant {
    base() + elapsed()
}

/// The same in nanoseconds: what the hot paths count in.
pub(crate) fn now_ns() -> u64 {
    nanos()
}

/// Wakes `waker` once the world's clock has reached so many nanoseconds. It cannot be taken back.
pub(crate) fn wake_at(at_ns: u64, waker: &Waker) {
    if nanos() >= at_ns {
        return waker.wake_by_ref();
    }
    with_timers(|timers| timers.add(at_ns, waker.clone()));
}

/// Resolves at `at`, world time.
pub struct Sleep {
    at_ns: u64,
    set: Option<Key>,
}

pub fn sleep_until(at: Instant) -> Sleep {
    let since = at.saturating_duration_since(base());
    Sleep {
        at_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        set: None,
    }
}

pub fn sleep(duration: Duration) -> Sleep {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Sleep {
        at_ns: nanos().saturating_add(ns),
        set: None,
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if nanos() >= self.at_ns {
            return Poll::Ready(());
        }
        let waker = cx.waker();
        let (at_ns, set) = (self.at_ns, self.set);
        let old = with_timers(|timers| match set {
            Some(key) if timers.will_wake(key, waker) => (key, None),
            Some(key) => {
                let old = timers.cancel(key);
                (timers.add(at_ns, waker.clone()), old)
            }
            None => (timers.add(at_ns, waker.clone()), None),
        });
        // The old waker is dropped here, where nothing is borrowed.
        if let Some((key, _old)) = old {
            self.set = Some(key);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.set {
            // As above: what the waker drops may be a sleep again.
            let _waker = with_timers(|timers| timers.cancel(key));
        }
    }
}

/// Every timer of a world.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_number: u64,
    /// Entries of the heap whose timer was cancelled.
    dead: usize,
}

/// By time, then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at_ns: u64,
    number: u64,
    slot: u32,
}

struct Slot {
    /// Of the timer that has the slot now; numbers are never used twice.
    number: u64,
    waker: Option<Waker>,
}

/// A timer that is set, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    number: u64,
}

/// A heap of fewer entries is not worth a sweep.
const SWEEP_FROM: usize = 64;

impl Timers {
    pub fn add(&mut self, at_ns: u64, waker: Waker) -> Key {
        let number = self.next_number;
        self.next_number += 1;
        let taken = Slot {
            number,
            waker: Some(waker),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = taken;
                slot
            }
            None => {
                self.slots.push(taken);
                self.slots.len() as u32 - 1
            }
        };
        self.heap.push(Reverse(Entry {
            at_ns,
            number,
            slot,
        }));
        Key { slot, number }
    }

    /// Whether the timer is still to fire and will wake the same task.
    pub fn will_wake(&self, key: Key, waker: &Waker) -> bool {
        let slot = self.slots.get(key.slot as usize);
        let slot = slot.filter(|slot| slot.number == key.number);
        slot.and_then(|slot| slot.waker.as_ref())
            .is_some_and(|set| set.will_wake(waker))
    }

    /// Gives back whom it would have woken, so that the caller drops it where nothing is borrowed.
    pub fn cancel(&mut self, key: Key) -> Option<Waker> {
        let slot = self.slots.get(key.slot as usize)?;
        if slot.number != key.number {
            return None;
        }
        let waker = self.release(key.slot)?;
        self.dead += 1;
        if self.heap.len() >= SWEEP_FROM && self.dead * 2 > self.heap.len() {
            let slots = &self.slots;
            self.heap.retain(|Reverse(entry)| is_live(slots, *entry));
            self.dead = 0;
        }
        Some(waker)
    }

    /// When the next one fires.
    pub fn next(&mut self) -> Option<u64> {
        while let Some(Reverse(first)) = self.heap.peek() {
            if is_live(&self.slots, *first) {
                return Some(first.at_ns);
            }
            self.heap.pop();
            self.dead -= 1;
        }
        None
    }

    /// Takes the first one whose time has come.
    pub fn due(&mut self, now_ns: u64) -> Option<Waker> {
        while let Some(Reverse(first)) = self.heap.peek()
            && first.at_ns <= now_ns
        {
            let slot = first.slot;
            let live = is_live(&self.slots, *first);
            self.heap.pop();
            if live {
                return self.release(slot);
            }
            self.dead -= 1;
        }
        None
    }

    fn release(&mut self, slot: u32) -> Option<Waker> {
        // A slot is free once, however often its timer is cancelled after it fired.
        let waker = self.slots[slot as usize].waker.take()?;
        self.free.push(slot);
        Some(waker)
    }
}

/// A slot that was given to a later timer has its number; one that is free has no waker.
fn is_live(slots: &[Slot], entry: Entry) -> bool {
    let slot = &slots[entry.slot as usize];
    slot.number == entry.number && slot.waker.is_some()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn waker() -> (Arc<Woken>, Waker) {
        let woken = Arc::<Woken>::default();
        (woken.clone(), Waker::from(woken))
    }

    #[test]
    fn timers_fire_in_order_of_time_and_then_of_setting() {
        let mut timers = Timers::default();
        let all: Vec<_> = (0..4).map(|_| waker()).collect();
        for (n, at) in [30, 10, 20, 10].into_iter().enumerate() {
            timers.add(at, all[n].1.clone());
        }
        let mut order = Vec::new();
        while let Some(at) = timers.next() {
            let fired = timers.due(at).expect("it is due");
            order.push(all.iter().position(|(_, w)| w.will_wake(&fired)));
        }
        assert_eq!(order, [Some(1), Some(3), Some(2), Some(0)]);
        assert!(timers.due(u64::MAX).is_none());
    }

    #[test]
    fn a_cancelled_timer_never_fires_and_its_place_is_used_again() {
        let mut timers = Timers::default();
        let (_, first) = waker();
        let (woken, second) = waker();
        let key = timers.add(5, first);
        assert!(timers.cancel(key).is_some());
        assert!(timers.cancel(key).is_none(), "once only");
        let again = timers.add(7, second);
        assert_eq!(again.slot, key.slot);
        assert!(timers.cancel(key).is_none(), "it is another's now");
        assert!(timers.free.is_empty());
        assert_eq!(timers.next(), Some(7));
        timers.due(7).expect("the second").wake();
        assert_eq!(woken.0.load(Relaxed), 1);
        assert!(timers.cancel(again).is_none(), "it has fired");
        assert_eq!(timers.free.len(), 1);
    }

    #[test]
    fn a_million_cancelled_timers_leave_next_to_nothing() {
        let mut timers = Timers::default();
        let (_, waker) = waker();
        timers.add(u64::MAX, waker.clone());
        for n in 0..1_000_000 {
            let key = timers.add(1000 + n, waker.clone());
            drop(timers.cancel(key));
        }
        assert!(timers.heap.len() <= SWEEP_FROM, "{}", timers.heap.len());
        assert!(timers.slots.len() <= 2);
        assert_eq!(timers.next(), Some(u64::MAX));
    }
}
