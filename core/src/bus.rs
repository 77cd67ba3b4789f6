//! The kernel's news: a bounded broadcast that every part may read and no reader can hold up.
//!
//! News are hints; the truth is in the latch, the snapshot or the gate they speak of. Always: to
//! publish never waits; a slow reader loses the oldest news, and each lost one is counted.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// How many events a slow reader may fall behind before it loses some.
pub const BUS_CAPACITY: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// Everything is to drain and stop. The supervisor publishes it, and obeys it from anyone.
    Shutdown { reason: String },
    /// A new configuration is in force.
    ConfigUpdated { version: u64 },
    /// A task that failed runs again; `attempt` counts its restarts since the start.
    Restarted { task: String, attempt: u32 },
    /// A task failed more often than its budget allows.
    Escalated { task: String },
    /// A task outlasted its drain deadline and was stopped by force.
    Aborted { task: String },
    /// The process became ready, or not, or other gates are missing.
    ReadinessChanged {
        ready: bool,
        missing: Vec<String>,
        degraded: Vec<String>,
    },
}

#[derive(Clone, Debug)]
pub struct Bus(Arc<Open>);

impl Bus {
    pub fn new() -> Self {
        Bus::with_capacity(BUS_CAPACITY)
    }

    /// At least 1. Only events that somebody has yet to read take room.
    pub fn with_capacity(capacity: usize) -> Self {
        Bus(Arc::new(Open(Arc::new(Shared {
            capacity: capacity.max(1),
            lagged: AtomicU64::new(0),
            state: Mutex::default(),
        }))))
    }

    /// Never waits; without a subscriber the event is gone.
    pub fn publish(&self, event: KernelEvent) {
        let shared = &self.0.0;
        let wakers = shared.lock().publish(event, shared.capacity);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sees what is published from now on.
    pub fn subscribe(&self) -> Subscriber {
        let shared = self.0.0.clone();
        let id = shared.lock().join();
        Subscriber { shared, id }
    }

    /// Events lost by slow subscribers, all of them together.
    pub fn lagged(&self) -> u64 {
        self.0.0.lagged.load(Ordering::Relaxed)
    }
}

impl Default for Bus {
    fn default() -> Self {
        Bus::new()
    }
}

/// Held by every `Bus`; the last one to go closes it.
#[derive(Debug)]
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        let wakers = {
            let mut state = self.0.lock();
            state.closed = true;
            state.take_wakers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

struct Shared {
    capacity: usize,
    lagged: AtomicU64,
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events are numbered from 0; those that some reader has not read yet are held.
#[derive(Default)]
struct State {
    held: VecDeque<KernelEvent>,
    /// The number of the first one held.
    first: u64,
    readers: Vec<Reader>,
    next_id: u64,
    closed: bool,
}

struct Reader {
    id: u64,
    /// The number of the event it reads next.
    next: u64,
    waker: Option<Waker>,
}

/// What a reader finds.
enum Found {
    Event(KernelEvent),
    /// So many events were lost before the next one.
    Lost(u64),
    Closed,
    Nothing,
}

impl State {
    fn join(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let next = self.first + self.held.len() as u64;
        let waker = None;
        if self.readers.is_empty() {
            // Most have one.
            self.readers.reserve_exact(1);
        }
        self.readers.push(Reader { id, next, waker });
        id
    }

    fn leave(&mut self, id: u64) {
        self.readers.retain(|reader| reader.id != id);
        self.let_go();
    }

    /// Returns whom to wake, once the lock is free.
    fn publish(&mut self, event: KernelEvent, capacity: usize) -> Vec<Waker> {
        if self.readers.is_empty() {
            return Vec::new();
        }
        if self.held.len() == capacity {
            self.held.pop_front();
            self.first += 1;
        }
        self.held.push_back(event);
        self.take_wakers()
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let readers = self.readers.iter_mut();
        readers.filter_map(|reader| reader.waker.take()).collect()
    }

    fn read(&mut self, id: u64, cx: &Context<'_>) -> Found {
        let (first, end) = (self.first, self.first + self.held.len() as u64);
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.id == id) else {
            return Found::Closed;
        };
        if reader.next < first {
            let lost = first - reader.next;
            reader.next = first;
            return Found::Lost(lost);
        }
        if reader.next == end {
            if self.closed {
                return Found::Closed;
            }
            reader.waker = Some(cx.waker().clone());
            return Found::Nothing;
        }
        let event = self.held[(reader.next - first) as usize].clone();
        reader.next += 1;
        self.let_go();
        Found::Event(event)
    }

    /// Forgets what everybody has read.
    fn let_go(&mut self) {
        let end = self.first + self.held.len() as u64;
        let slowest = self.readers.iter().map(|reader| reader.next).min();
        while self.first < slowest.unwrap_or(end) {
            self.held.pop_front();
            self.first += 1;
        }
        if self.held.is_empty() {
            self.held = VecDeque::new();
        }
    }
}

#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<Shared>,
    id: u64,
}

impl Subscriber {
    /// The next event, `None` once every `Bus` is gone. One that lagged goes on with the oldest event
    /// still held, so it has the newest ones in order. Cancel safe.
    pub async fn recv(&mut self) -> Option<KernelEvent> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    fn poll_recv(&mut self, cx: &Context<'_>) -> Poll<Option<KernelEvent>> {
        loop {
            let found = self.shared.lock().read(self.id, cx);
            match found {
                Found::Event(event) => return Poll::Ready(Some(event)),
                Found::Closed => return Poll::Ready(None),
                Found::Nothing => return Poll::Pending,
                Found::Lost(lost) => {
                    crate::sometimes!("bus.lagged");
                    self.shared.lagged.fetch_add(lost, Ordering::Relaxed);
                    tracing::warn!(lost, "a bus subscriber is too slow and lost events");
                }
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.shared.lock().leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn config(version: u64) -> KernelEvent {
        KernelEvent::ConfigUpdated { version }
    }

    fn drain(subscriber: &mut Subscriber) -> Vec<KernelEvent> {
        std::iter::from_fn(|| subscriber.recv().now_or_never().flatten()).collect()
    }

    // proves: KMS-3.4, KMS-8.4, EDG-8.4, DHT-8.4, RWD-3.5, RWD-8.4, ADM-3.9
    #[test]
    fn a_slow_subscriber_loses_the_oldest_and_every_loss_is_counted() {
        let bus = Bus::new();
        let (mut slow, mut slower) = (bus.subscribe(), bus.subscribe());
        for version in 0..1024 {
            bus.publish(config(version));
        }
        assert_eq!(drain(&mut slow).len(), 1024);
        assert_eq!(bus.lagged(), 0);
        for version in 1024..2051 {
            bus.publish(config(version));
        }
        let newest: Vec<_> = (1027..2051).map(config).collect();
        assert_eq!(drain(&mut slow), newest);
        assert_eq!(bus.lagged(), 3);
        assert_eq!(drain(&mut slower), newest);
        assert_eq!(bus.lagged(), 3 + 1027);
    }

    #[test]
    fn the_end_of_the_bus_ends_its_subscribers_after_the_last_event() {
        let bus = Bus::with_capacity(0);
        bus.publish(config(1));
        let mut late = bus.subscribe();
        bus.publish(config(2));
        drop(bus);
        assert_eq!(late.recv().now_or_never(), Some(Some(config(2))));
        assert_eq!(late.recv().now_or_never(), Some(None));
    }

    #[test]
    fn an_event_is_held_until_the_slowest_subscriber_has_read_it_and_no_longer() {
        let bus = Bus::new();
        let held = || bus.0.0.lock().held.len();
        bus.publish(config(0));
        assert_eq!(held(), 0, "nobody could read it");
        let (mut quick, mut slow) = (bus.subscribe(), bus.subscribe());
        for version in 1..=3 {
            bus.publish(config(version));
        }
        assert_eq!(drain(&mut quick).len(), 3);
        assert_eq!(held(), 3);
        assert_eq!(slow.recv().now_or_never(), Some(Some(config(1))));
        assert_eq!(held(), 2);
        drop(slow);
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_waiting_subscriber_is_woken_by_an_event_and_by_the_end() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let cx = &Context::from_waker(&waker);
        let count = || woken.0.load(Ordering::Relaxed);
        let bus = Bus::new();
        let mut subscriber = bus.subscribe();
        assert!(subscriber.poll_recv(cx).is_pending());
        bus.publish(config(1));
        bus.publish(config(2));
        assert_eq!(count(), 1, "once for each wait");
        assert_eq!(subscriber.poll_recv(cx), Poll::Ready(Some(config(1))));
        assert_eq!(subscriber.poll_recv(cx), Poll::Ready(Some(config(2))));
        assert!(subscriber.poll_recv(cx).is_pending());
        drop(bus);
        assert_eq!(count(), 2);
        assert_eq!(subscriber.poll_recv(cx), Poll::Ready(None));
    }

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
