//! The kernel's news: a bounded broadcast that every part may read and no reader can hold up.
//!
//! News are hints; the truth is in the latch, the snapshot or the gate they speak of. Always: to
//! publish never waits; a slow reader loses the oldest news, and each lost one is counted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::broadcast;

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
    ReadinessChanged { ready: bool, missing: Vec<String> },
}

#[derive(Clone, Debug)]
pub struct Bus {
    sender: broadcast::Sender<KernelEvent>,
    lagged: Arc<AtomicU64>,
}

impl Bus {
    pub fn new() -> Self {
        Bus::with_capacity(BUS_CAPACITY)
    }

    /// The buffer is allocated at once, at roughly 100 bytes an event. At least 1.
    pub fn with_capacity(capacity: usize) -> Self {
        Bus {
            sender: broadcast::Sender::new(capacity.max(1)),
            lagged: Arc::default(),
        }
    }

    /// Never waits; without a subscriber the event is gone.
    pub fn publish(&self, event: KernelEvent) {
        let _ = self.sender.send(event);
    }

    /// Sees what is published from now on.
    pub fn subscribe(&self) -> Subscriber {
        Subscriber {
            receiver: self.sender.subscribe(),
            lagged: self.lagged.clone(),
        }
    }

    /// Events lost by slow subscribers, all of them together.
    pub fn lagged(&self) -> u64 {
        self.lagged.load(Ordering::Relaxed)
    }
}

impl Default for Bus {
    fn default() -> Self {
        Bus::new()
    }
}

#[derive(Debug)]
pub struct Subscriber {
    receiver: broadcast::Receiver<KernelEvent>,
    lagged: Arc<AtomicU64>,
}

impl Subscriber {
    /// The next event, `None` once every `Bus` is gone. One that lagged goes on with the oldest event
    /// still held, so it has the newest ones in order. Cancel safe.
    pub async fn recv(&mut self) -> Option<KernelEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Closed) => return None,
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    crate::sometimes!("bus.lagged");
                    if !crate::mutant!("bus.lag_uncounted") {
                        self.lagged.fetch_add(lost, Ordering::Relaxed);
                    }
                    tracing::warn!(lost, "a bus subscriber is too slow and lost events");
                }
            }
        }
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
}
