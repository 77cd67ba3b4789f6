//! A ring with the two lines before it: consumers waiting for items, producers waiting for room.
//!
//! Pure like the ring: wakers are any type `W` and are handed out, never called, so the model checker
//! steps exactly this. Always, once [`Line::due`] returned `None`: a consumer sleeps only if each item is
//! already promised to a woken consumer, and a producer only if each free place is promised to a woken one.

use std::task::Poll;

use super::{
    policy::{Offer, Policy},
    ring::{Refused, Ring},
};
use crate::sync::waiters::{Slot, Waiters};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line<T, W> {
    pub ring: Ring<T>,
    consumers: Waiters<W>,
    producers: Waiters<W>,
}

impl<T, W> Line<T, W> {
    pub fn new(cap: usize) -> Self {
        Line {
            ring: Ring::new(cap),
            consumers: Waiters::new(),
            producers: Waiters::new(),
        }
    }

    /// A producer's first try. A newcomer takes no place that is promised to one who waited for it.
    pub fn offer<P: Policy<T>>(&mut self, policy: &P, item: T) -> Offer<P::Accepted, T> {
        let promised = self.producers.woken();
        if self.ring.is_closed() || self.ring.room() > promised {
            policy.offer(&mut self.ring, item)
        } else {
            Offer::Wait(item)
        }
    }

    /// A waiting producer looks again: decided, or (still) in line. Returns a waker to drop outside
    /// the lock, if one is left over.
    pub fn poll_offer<P: Policy<T>>(
        &mut self,
        policy: &P,
        slot: &mut Option<Slot>,
        item: T,
        waker: impl FnOnce() -> W,
    ) -> (Offer<P::Accepted, T>, Option<W>) {
        let offer = if self.producers.is_woken(*slot) {
            policy.offer(&mut self.ring, item)
        } else {
            self.offer(policy, item)
        };
        match offer {
            done @ Offer::Done(_) => (done, self.producers.leave(slot)),
            Offer::Wait(item) => (Offer::Wait(item), self.producers.park(slot, waker())),
        }
    }

    /// A producer's last try. Room that is there is taken, promised or not: one that is woken in vain
    /// keeps its turn, and nothing is thrown away while there is room.
    pub fn give_up<P: Policy<T>>(
        &mut self,
        policy: &P,
        slot: &mut Option<Slot>,
        item: T,
    ) -> (Result<P::Accepted, Refused<T>>, Option<W>) {
        let unused = self.producers.leave(slot);
        (policy.give_up(&mut self.ring, item), unused)
    }

    /// A consumer looks: something taken, the end (closed and drained), or in line for the next item.
    pub fn poll_take<R>(
        &mut self,
        slot: &mut Option<Slot>,
        take: impl FnOnce(&mut Ring<T>) -> Option<R>,
        waker: impl FnOnce() -> W,
    ) -> (Poll<Option<R>>, Option<W>) {
        match take(&mut self.ring) {
            None if !self.ring.is_closed() => {
                crate::sometimes!("queue.consumer_waits");
                if self.consumers.is_woken(*slot) {
                    crate::sometimes!("queue.overtaken");
                }
                (Poll::Pending, self.consumers.park(slot, waker()))
            }
            taken => (Poll::Ready(taken), self.consumers.leave(slot)),
        }
    }

    /// A consumer goes away without an item; a wake-up it was given passes on through [`Line::due`].
    pub fn leave_consumers(&mut self, slot: &mut Option<Slot>) -> Option<W> {
        if self.consumers.is_woken(*slot) {
            crate::sometimes!("queue.wake_passed_on");
        }
        self.consumers.leave(slot)
    }

    /// A producer goes away with its item, which is counted as refused.
    pub fn leave_producers(&mut self, slot: &mut Option<Slot>) -> Option<W> {
        self.ring.abandon();
        self.producers.leave(slot)
    }

    /// Who must be woken now, and whether another one is due after it. To be asked after every change
    /// until nobody is.
    pub fn due(&mut self) -> Option<(W, bool)> {
        let waker = if self.consumer_due() {
            self.consumers.wake_first()
        } else if self.producer_due() {
            self.producers.wake_first()
        } else {
            None
        }?;
        Some((waker, self.consumer_due() || self.producer_due()))
    }

    /// True if somebody sleeps although there is something to do: never between two operations.
    pub fn has_sleeper_with_work(&self) -> bool {
        self.consumer_due() || self.producer_due()
    }

    fn consumer_due(&self) -> bool {
        self.consumers.waiting() > 0
            && (self.ring.is_closed() || self.ring.len() > self.consumers.woken())
    }

    fn producer_due(&self) -> bool {
        self.producers.waiting() > 0
            && (self.ring.is_closed() || self.ring.room() > self.producers.woken())
    }
}
