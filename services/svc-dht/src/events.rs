//! What happens in the node, told to whoever listens at `GET /v1/dht/events`.

use ron_core::api::events;
use schemars::JsonSchema;
use serde::Serialize;

/// The node's bus.
pub type Events = events::Events<Event>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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

impl events::Event for Event {
    fn name(&self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::error::DhtError;

    // proves: DHT-3.3, DHT-8.4, DHT-13.1
    #[test]
    fn a_slow_listener_loses_the_oldest_is_told_and_counted_and_hears_the_newest() {
        let expired = |n: usize| Event::RecordExpired {
            key: n.to_string(),
            kind: "value",
        };
        let events = Events::new(4);
        let mut listener = events.listen();
        (0..10).for_each(|n| events.tell(|| expired(n)));
        let mut next = || {
            let heard = listener.next().now_or_never().flatten();
            heard.map(|heard| heard.map_err(DhtError::from))
        };
        assert_eq!(next(), Some(Err(DhtError::Lagging { lost: 6 })));
        assert_eq!(events.lagged(), 6);
        (6..10).for_each(|n| assert_eq!(next(), Some(Ok(expired(n)))));
        assert_eq!(next(), None);
    }
}
