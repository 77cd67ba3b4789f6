//! `Queue`: the one bounded queue, many producers and many consumers, with its overflow policy as a type.
//!
//! A thin shell: lock, step the pure [`Line`], unlock, wake. Always: depth never exceeds the cap; items
//! leave in the order they came; every item refused or dropped is counted; a dropped future loses
//! neither an item of the queue nor a wake-up; closing lets consumers drain what is left.

pub mod line;
pub mod policy;
pub mod ring;

use std::{
    fmt,
    future::poll_fn,
    task::{Context, Poll, Waker},
    time::Duration,
};

use self::{
    line::Line,
    policy::{Offer, Policy},
    ring::Ring,
};
pub use self::{
    policy::{DropOldest, RejectNew, RetryOnce, WaitFor, WaitThenDropOldest},
    ring::{Refusal, Refused},
};
use crate::{
    Env, Rng,
    sync::{Arc, Mutex, MutexGuard, waiters::Slot},
    view::{QueueStats, QueueView},
};

/// A handle; clones share one queue.
pub struct Queue<T, P> {
    shared: Arc<Shared<T, P>>,
}

struct Shared<T, P> {
    name: &'static str,
    policy: P,
    line: Mutex<Line<T, Waker>>,
}

impl<T, P> Queue<T, P> {
    /// A cap of 0 counts as 1.
    pub fn new(name: &'static str, cap: usize, policy: P) -> Self {
        Queue {
            shared: Arc::new(Shared {
                name,
                policy,
                line: Mutex::new(Line::new(cap)),
            }),
        }
    }

    /// The oldest item, as soon as there is one; `None` once the queue is closed and drained. May be
    /// dropped at any time: an item is either returned or still in the queue.
    pub async fn pop(&self) -> Option<T> {
        let mut consumer = Consumer::new(self);
        poll_fn(|cx| consumer.poll_take(cx, Ring::take)).await
    }

    /// As soon as there is one item: the oldest ones, `max` at most (0 counts as 1). Empty once the
    /// queue is closed and drained. May be dropped at any time, like [`Queue::pop`].
    pub async fn pop_batch(&self, max: usize) -> Vec<T> {
        let mut consumer = Consumer::new(self);
        poll_fn(|cx| consumer.poll_take(cx, |ring| ring.take_batch(max)))
            .await
            .unwrap_or_default()
    }

    pub fn try_pop(&self) -> Option<T> {
        let mut line = self.lock();
        let item = line.ring.take();
        self.settle(line, None);
        item
    }

    /// For a producer that can serve its item itself: true if the queue is open and nothing waits in it. The
    /// item counts as accepted and delivered; nobody was overtaken, and no consumer need be woken.
    pub fn pass(&self) -> bool {
        self.lock().ring.pass()
    }

    /// From now on producers are refused; consumers drain what is left. Returns whether it was open.
    pub fn close(&self) -> bool {
        let mut line = self.lock();
        let first = line.ring.close();
        self.settle(line, None);
        first
    }

    /// Takes everything out without serving it, counted as dropped.
    pub fn clear(&self) -> Vec<T> {
        let mut line = self.lock();
        let thrown = line.ring.clear();
        self.settle(line, None);
        thrown
    }

    pub fn name(&self) -> &'static str {
        self.shared.name
    }

    pub fn len(&self) -> usize {
        self.lock().ring.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn cap(&self) -> usize {
        self.lock().ring.cap()
    }

    pub fn is_closed(&self) -> bool {
        self.lock().ring.is_closed()
    }

    pub fn stats(&self) -> QueueStats {
        self.lock().ring.stats(self.shared.name)
    }

    fn lock(&self) -> MutexGuard<'_, Line<T, Waker>> {
        self.shared.line.lock()
    }

    /// Ends a step: whoever is due is woken, one at a time and outside the lock, because a waker (and
    /// the drop of one) may run code that comes back to this queue.
    fn settle(&self, mut line: MutexGuard<'_, Line<T, Waker>>, unused: Option<Waker>) {
        let mut due = line.due();
        drop(line);
        drop(unused);
        while let Some((waker, more)) = due {
            waker.wake();
            due = if more { self.lock().due() } else { None };
        }
    }
}

impl<T> Queue<T, RejectNew> {
    /// Never waits.
    pub fn push(&self, item: T) -> Result<(), Refused<T>> {
        self.push_now(item)
    }
}

impl<T> Queue<T, DropOldest> {
    /// Never waits and never fails for want of room. Returns the item that had to leave, if any.
    pub fn push(&self, item: T) -> Result<Option<T>, Refused<T>> {
        self.push_now(item)
    }
}

impl<T> Queue<T, WaitFor> {
    /// Waits for room, in order of arrival. Dropped while it waits, the item goes with it and is
    /// counted as refused.
    pub async fn push(&self, env: &Env, item: T) -> Result<(), Refused<T>> {
        self.push_within(env, self.shared.policy.0, item).await
    }
}

impl<T> Queue<T, WaitThenDropOldest<T>> {
    /// Waits for room, in order of arrival; then returns the item that had to leave, if any. Dropped
    /// while it waits, the item goes with it and is counted as refused.
    pub async fn push(&self, env: &Env, item: T) -> Result<Option<T>, Refused<T>> {
        self.push_within(env, self.shared.policy.wait, item).await
    }
}

impl<T> Queue<T, RetryOnce> {
    /// Dropped while it sleeps, the item goes with it and is counted as refused.
    pub async fn push(&self, env: &Env, rng: &mut Rng, item: T) -> Result<(), Refused<T>> {
        let mut producer = match self.first_try(item) {
            Ok(done) => return done,
            Err(waiting) => waiting,
        };
        env.sleep(self.shared.policy.delay(rng)).await;
        producer.give_up()
    }
}

impl<T, P: Policy<T>> Queue<T, P> {
    fn push_now(&self, item: T) -> Result<P::Accepted, Refused<T>> {
        let mut line = self.lock();
        let result = match line.offer(&self.shared.policy, item) {
            Offer::Done(result) => result,
            Offer::Wait(item) => self.shared.policy.give_up(&mut line.ring, item),
        };
        self.settle(line, None);
        result
    }

    async fn push_within(
        &self,
        env: &Env,
        wait: Duration,
        item: T,
    ) -> Result<P::Accepted, Refused<T>> {
        let mut producer = match self.first_try(item) {
            Ok(done) => return done,
            Err(waiting) => waiting,
        };
        let room = poll_fn(|cx| producer.poll_offer(cx));
        match env.timeout(wait, room).await {
            Ok(result) => result,
            Err(_elapsed) => producer.give_up(),
        }
    }

    /// Without a timer or a place in the line: the common case costs neither.
    fn first_try(&self, item: T) -> Result<Result<P::Accepted, Refused<T>>, Producer<'_, T, P>> {
        let mut line = self.lock();
        let offer = line.offer(&self.shared.policy, item);
        self.settle(line, None);
        match offer {
            Offer::Done(result) => Ok(result),
            Offer::Wait(item) => Err(Producer {
                queue: self,
                item: Some(item),
                slot: None,
            }),
        }
    }
}

/// A pop in progress.
struct Consumer<'a, T, P> {
    queue: &'a Queue<T, P>,
    slot: Option<Slot>,
    /// How often it lets others go first; above 0 only where a simulated run wants it.
    yields: u32,
}

impl<'a, T, P> Consumer<'a, T, P> {
    fn new(queue: &'a Queue<T, P>) -> Self {
        Consumer {
            queue,
            slot: None,
            yields: 0,
        }
    }

    fn poll_take<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Ring<T>) -> Option<R>,
    ) -> Poll<Option<R>> {
        // Whoever is polled may take its time: the item stays in the queue, the promise with this consumer.
        if self.yields == 0 && crate::buggify!("queue.pop_yields") {
            self.yields = 100;
        }
        if self.yields > 0 {
            self.yields -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut line = self.queue.lock();
        let (taken, unused) = line.poll_take(&mut self.slot, take, || cx.waker().clone());
        if line.ring.is_closed() && matches!(taken, Poll::Ready(Some(_))) {
            crate::sometimes!("queue.drained_after_close");
        }
        self.queue.settle(line, unused);
        // A waker may be called more often than it must be.
        if taken.is_pending() && crate::buggify!("queue.wakes_twice") {
            cx.waker().wake_by_ref();
        }
        taken
    }
}

impl<T, P> Drop for Consumer<'_, T, P> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            let mut line = self.queue.lock();
            let unused = line.leave_consumers(&mut self.slot);
            self.queue.settle(line, unused);
        }
    }
}

/// A push in progress; `item` is there until it is decided.
struct Producer<'a, T, P> {
    queue: &'a Queue<T, P>,
    item: Option<T>,
    slot: Option<Slot>,
}

impl<T, P: Policy<T>> Producer<'_, T, P> {
    fn poll_offer(&mut self, cx: &mut Context<'_>) -> Poll<Result<P::Accepted, Refused<T>>> {
        let Some(item) = self.item.take() else {
            return Poll::Pending;
        };
        let mut line = self.queue.lock();
        let (offer, unused) =
            line.poll_offer(&self.queue.shared.policy, &mut self.slot, item, || {
                cx.waker().clone()
            });
        self.queue.settle(line, unused);
        match offer {
            Offer::Done(result) => Poll::Ready(result),
            Offer::Wait(item) => {
                self.item = Some(item);
                Poll::Pending
            }
        }
    }

    fn give_up(&mut self) -> Result<P::Accepted, Refused<T>> {
        let item = self.item.take().expect("only an undecided push gives up");
        let mut line = self.queue.lock();
        let (result, unused) = line.give_up(&self.queue.shared.policy, &mut self.slot, item);
        self.queue.settle(line, unused);
        result
    }
}

impl<T, P> Drop for Producer<'_, T, P> {
    fn drop(&mut self) {
        if self.item.is_some() {
            let mut line = self.queue.lock();
            let unused = line.leave_producers(&mut self.slot);
            self.queue.settle(line, unused);
        }
    }
}

impl<T, P> Clone for Queue<T, P> {
    fn clone(&self) -> Self {
        Queue {
            shared: self.shared.clone(),
        }
    }
}

impl<T, P> fmt::Debug for Queue<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<T: Send, P: Send + Sync> QueueView for Queue<T, P> {
    fn stats(&self) -> QueueStats {
        Queue::stats(self)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::{
        future::Future,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use futures_util::FutureExt;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A pop that was polled once, and how often it was woken.
    fn polled<F: Future>(future: F) -> (std::pin::Pin<Box<F>>, Arc<Wakes>) {
        let wakes = Arc::new(Wakes::default());
        let mut future = Box::pin(future);
        let waker = wakes.clone().into();
        assert!(
            future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        (future, wakes)
    }

    fn woken(wakes: &[&Arc<Wakes>]) -> Vec<usize> {
        wakes.iter().map(|w| w.0.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn full_queue_refuses_at_once_and_keeps_depth_at_cap() {
        // proves: EDG-10.1, DHT-10.1, EDG-3.4
        let queue = Queue::new("work", 2, RejectNew);
        assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
        let refused = queue.push(3).unwrap_err();
        assert_eq!((refused.item, refused.why), (3, Refusal::Full));
        assert_eq!((queue.len(), queue.cap()), (2, 2));
        assert_eq!(queue.stats().refused, 1);
        assert_eq!(queue.name(), "work");
    }

    #[test]
    fn drop_oldest_hands_out_the_item_that_had_to_leave() {
        let queue = Queue::new("samples", 2, DropOldest);
        let left: Vec<_> = (1..=4).map(|item| queue.push(item).unwrap()).collect();
        assert_eq!(left, [None, None, Some(1), Some(2)]);
        assert_eq!(queue.stats().dropped, 2);
        queue.close();
        assert_eq!(queue.push(5).unwrap_err().why, Refusal::Closed);
        assert_eq!((queue.try_pop(), queue.try_pop()), (Some(3), Some(4)));
    }

    #[test]
    fn closing_lets_consumers_drain_and_then_ends_them() {
        let queue = Queue::new("q", 4, RejectNew);
        for item in 0..3 {
            queue.push(item).unwrap();
        }
        assert!(queue.close());
        assert!(!queue.clone().close());
        assert!(queue.is_closed());
        assert_eq!(queue.push(9).unwrap_err().why, Refusal::Closed);
        assert_eq!(queue.pop().now_or_never(), Some(Some(0)));
        assert_eq!(queue.pop_batch(9).now_or_never(), Some(vec![1, 2]));
        assert_eq!(queue.pop().now_or_never(), Some(None));
        assert_eq!(queue.pop_batch(9).now_or_never(), Some(vec![]));
    }

    #[test]
    fn a_producer_may_serve_its_item_itself_while_nothing_waits() {
        let queue = Queue::new("q", 4, RejectNew);
        assert!(queue.pass());
        queue.push(1).unwrap();
        assert!(!queue.pass());
        assert_eq!(queue.try_pop(), Some(1));
        queue.close();
        assert!(!queue.pass());
        let stats = queue.stats();
        assert_eq!((stats.offered, stats.accepted, stats.delivered), (2, 2, 2));
    }

    #[test]
    fn close_wakes_every_waiting_consumer() {
        let queue = Queue::<u8, _>::new("q", 1, RejectNew);
        let (a, wakes_a) = polled(queue.pop());
        let (b, wakes_b) = polled(queue.pop_batch(4));
        queue.close();
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [1, 1]);
        assert_eq!(a.now_or_never(), Some(None));
        assert_eq!(b.now_or_never(), Some(vec![]));
    }

    #[test]
    fn each_item_wakes_one_consumer_in_order_of_arrival() {
        // proves: EDG-3.5
        let queue = Queue::new("q", 4, RejectNew);
        let (a, wakes_a) = polled(queue.pop());
        let (b, wakes_b) = polled(queue.pop());
        queue.push(1).unwrap();
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [1, 0]);
        queue.push(2).unwrap();
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [1, 1]);
        assert_eq!(b.now_or_never(), Some(Some(1)));
        assert_eq!(a.now_or_never(), Some(Some(2)));
    }

    #[test]
    fn a_woken_pop_that_is_dropped_passes_its_wake_up_on() {
        let queue = Queue::new("q", 4, RejectNew);
        let (a, wakes_a) = polled(queue.pop());
        let (b, wakes_b) = polled(queue.pop());
        queue.push(1).unwrap();
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [1, 0]);
        drop(a);
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [1, 1]);
        assert_eq!(b.now_or_never(), Some(Some(1)));
    }

    #[test]
    fn a_pop_dropped_while_it_waits_takes_no_wake_up_with_it() {
        let queue = Queue::new("q", 4, RejectNew);
        let (a, _) = polled(queue.pop());
        let (_b, wakes_b) = polled(queue.pop());
        drop(a);
        queue.push(1).unwrap();
        assert_eq!(woken(&[&wakes_b]), [1]);
    }

    #[test]
    fn a_consumer_overtaken_by_another_keeps_its_turn() {
        let queue = Queue::new("q", 4, RejectNew);
        let (mut a, wakes_a) = polled(queue.pop());
        let (_b, wakes_b) = polled(queue.pop());
        queue.push(1).unwrap();
        assert_eq!(queue.try_pop(), Some(1));
        let waker = wakes_a.clone().into();
        assert!(
            a.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        queue.push(2).unwrap();
        assert_eq!(woken(&[&wakes_a, &wakes_b]), [2, 0]);
    }

    #[test]
    fn what_is_cleared_is_handed_out_and_counted_as_dropped() {
        let queue = Queue::new("q", 4, RejectNew);
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        assert_eq!(queue.clear(), [1, 2]);
        let view: &dyn QueueView = &queue;
        let stats = view.stats();
        assert_eq!((stats.dropped, stats.depth, stats.high_water), (2, 0, 2));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waker_may_come_back_to_the_queue_it_was_woken_by() {
        struct Reenters(Queue<u8, RejectNew>);
        impl Wake for Reenters {
            fn wake(self: Arc<Self>) {
                self.0.push(2).unwrap();
            }
        }
        let queue = Queue::new("q", 4, RejectNew);
        let waker = Arc::new(Reenters(queue.clone())).into();
        let mut pop = Box::pin(queue.pop());
        assert!(
            pop.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        queue.push(1).unwrap();
        assert_eq!(queue.len(), 2);
    }
}
