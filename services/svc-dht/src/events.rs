//! What happens in the node, told to whoever listens: a bounded broadcast that no listener can hold up.
//!
//! Always: to tell never waits; a slow listener loses the oldest events, is told how many, and each is
//! counted; while nobody ever listened, there is no buffer.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::error::DhtError;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    PeerAdded {
        id: String,
        addr: String,
        bucket: u8,
    },
    PeerRemoved {
        id: String,
        bucket: u8,
        why: &'static str,
    },
    LookupDone {
        lookup: u64,
        target: String,
        outcome: &'static str,
        hops: u32,
        requests: u32,
        took_ms: u64,
    },
    RecordStored {
        key: String,
        kind: &'static str,
        seq: u64,
    },
    RecordExpired {
        key: String,
        kind: &'static str,
    },
    Published {
        key: String,
        replicas: usize,
    },
    Readiness {
        gate: &'static str,
        open: bool,
    },
    Draining,
}

impl Event {
    /// The name of the server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            Event::PeerAdded { .. } => "peer_added",
            Event::PeerRemoved { .. } => "peer_removed",
            Event::LookupDone { .. } => "lookup_done",
            Event::RecordStored { .. } => "record_stored",
            Event::RecordExpired { .. } => "record_expired",
            Event::Published { .. } => "published",
            Event::Readiness { .. } => "readiness",
            Event::Draining => "draining",
        }
    }
}

/// The node's bus.
pub struct Events {
    cap: usize,
    sender: OnceLock<broadcast::Sender<Event>>,
    lagged: AtomicU64,
}

impl Events {
    pub fn new(cap: usize) -> Events {
        Events {
            cap: cap.max(1),
            sender: OnceLock::new(),
            lagged: AtomicU64::new(0),
        }
    }

    /// Never waits. The event is made only if somebody listens.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(sender) = self.sender.get()
            && sender.receiver_count() > 0
        {
            let _ = sender.send(event());
        }
    }

    /// Hears what is told from now on.
    pub fn listen(&self) -> Listener {
        let sender = self.sender.get_or_init(|| broadcast::Sender::new(self.cap));
        Listener {
            receiver: sender.subscribe(),
        }
    }

    /// Events that slow listeners lost, all of them together.
    pub fn lagged(&self) -> u64 {
        self.lagged.load(Relaxed)
    }
}

pub struct Listener {
    receiver: broadcast::Receiver<Event>,
}

impl Listener {
    /// The next event; [`DhtError::Lagging`] once if some were lost, after which the oldest that is still
    /// held comes. `None` when the node is gone. Cancel safe.
    pub async fn next(&mut self, events: &Events) -> Option<Result<Event, DhtError>> {
        match self.receiver.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(RecvError::Closed) => None,
            Err(RecvError::Lagged(lost)) => {
                events.lagged.fetch_add(lost, Relaxed);
                tracing::warn!(lag = lost, "a listener of events is too slow and lost some");
                Some(Err(DhtError::Lagging { lost }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn expired(n: usize) -> Event {
        Event::RecordExpired {
            key: n.to_string(),
            kind: "value",
        }
    }

    // proves: DHT-3.3, DHT-8.4, DHT-13.1
    #[test]
    fn a_slow_listener_loses_the_oldest_is_told_and_counted_and_hears_the_newest() {
        let events = Events::new(4);
        let mut listener = events.listen();
        for n in 0..10 {
            events.tell(|| expired(n));
        }
        let next = |l: &mut Listener| l.next(&events).now_or_never().unwrap().unwrap();
        assert_eq!(next(&mut listener), Err(DhtError::Lagging { lost: 6 }));
        assert_eq!(events.lagged(), 6);
        for n in 6..10 {
            assert_eq!(next(&mut listener), Ok(expired(n)));
        }
        assert!(listener.next(&events).now_or_never().is_none());
    }

    #[test]
    fn nothing_is_made_while_nobody_listens() {
        let events = Events::new(1024);
        events.tell(|| panic!("nobody listens"));
        drop(events.listen());
        events.tell(|| panic!("nobody listens any more"));
        assert_eq!(events.lagged(), 0);
    }
}
