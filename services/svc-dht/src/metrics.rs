//! What the node counts, and the registry it is exported through.
//!
//! Counting costs an atomic add, or one short lock where a word tells cases apart. The registry with its
//! dozens of series is made when somebody first asks for `/metrics`: a node that nobody asks stays small.
//! Always: what was counted before that is exported too, and no family has more than [`MAX_WORDS`] words.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use prometheus::{IntCounter, IntGauge};
use ron_core::{
    lock::{LockDecl, RankedMutex},
    telemetry::{Counters, Telemetry},
};

/// Words of one family; the rest is counted as `other`.
pub const MAX_WORDS: usize = 32;

/// Rare events, told apart by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    IoTimeouts,
    IoErrors,
    BackoffRetries,
    BusyEndpoint,
    NotReady,
    QuotaReject,
    FramesRejected,
    HandshakesRejected,
    RecordsRejected,
    Lookups,
    LookupHops,
    PeersRemoved,
    Published,
}

/// Where a family is exported.
struct FamilyDecl {
    family: Family,
    name: &'static str,
    label: &'static str,
    help: &'static str,
    /// Exported as 0 before they happen.
    words: &'static [&'static str],
}

#[rustfmt::skip]
const FAMILIES: [FamilyDecl; 13] = [
    family(Family::IoTimeouts, "io_timeouts_total", "op", "",
        &["read", "write", "connect", "find_node", "find_value", "route"]),
    family(Family::IoErrors, "io_errors_total", "kind", "", &["table"]),
    family(Family::BackoffRetries, "backoff_retries_total", "op", "",
        &["find_node", "find_value", "bootstrap"]),
    family(Family::BusyEndpoint, "busy_rejections_total", "endpoint", "", &["store", "provide"]),
    family(Family::NotReady, "not_ready_total", "phase", "", &["bootstrap", "draining"]),
    family(Family::QuotaReject, "quota_reject_total", "kind", "", &["requests", "bytes", "in_flight"]),
    family(Family::FramesRejected, "frames_rejected_total", "code",
        "Frames that could not be read; each closed its stream.", &[]),
    family(Family::HandshakesRejected, "handshakes_rejected_total", "code",
        "Connections on which nobody proved who they are.", &["wrong_network"]),
    family(Family::RecordsRejected, "records_rejected_total", "code",
        "Records that were not stored.", &["bad_signature", "expired", "too_large", "quota", "stale"]),
    family(Family::Lookups, "lookups_total", "outcome",
        "Lookups ended, by what came of them.", &["found", "closest", "not_found", "timeout"]),
    family(Family::LookupHops, "lookup_hops_total", "hops",
        "Lookups by how many referrals away their answer stood.", &["0", "1", "2", "3", "4", "5"]),
    family(Family::PeersRemoved, "peers_removed_total", "why",
        "Peers taken out of the routing table.", &[]),
    family(Family::Published, "published_total", "outcome",
        "Records of this node sent to those who keep them.", &["stored", "not_stored"]),
];

const fn family(
    family: Family,
    name: &'static str,
    label: &'static str,
    help: &'static str,
    words: &'static [&'static str],
) -> FamilyDecl {
    FamilyDecl {
        family,
        name,
        label,
        help,
        words,
    }
}

macro_rules! hot {
    ($($field:ident: $name:literal, $help:literal;)+) => {
        /// What happens often: one atomic each.
        #[derive(Debug, Default)]
        pub struct Hot {
            $(pub $field: AtomicU64,)+
        }

        impl Hot {
            const NAMES: &'static [(&'static str, &'static str)] = &[$(($name, $help),)+];

            fn all(&self) -> Vec<u64> {
                vec![$(self.$field.load(Relaxed),)+]
            }
        }
    };
}

hot! {
    hedge_spawned: "hedge_spawned_total", "Probes started beside an overdue one.";
    hedge_canceled: "hedge_canceled_total", "Hedged probes given up because their lookup had ended.";
    probe_canceled: "probe_canceled_total", "Probes given up because their lookup had ended.";
    route_dropped: "route_dropped_total", "Changes of the routing table that found no room in time.";
    breaker_open: "breaker_open_total", "Circuit breakers of peers that opened.";
    lookup_requests: "lookup_requests_total", "Requests that lookups sent.";
    lookup_rounds: "lookup_rounds_total", "Rounds that lookups took.";
    lookup_ms: "lookup_ms_total", "Time that lookups took, in milliseconds.";
    requests_in: "requests_answered_total", "Requests of peers that were answered.";
    connections_in: "connections_accepted_total", "Connections of peers that were accepted.";
    connections_out: "connections_made_total", "Connections made to peers.";
    connections_refused: "connections_refused_total", "Connections of peers above the cap.";
    peers_added: "peers_added_total", "Peers taken into the routing table.";
    records_stored: "records_stored_total", "Records stored or renewed.";
    records_expired: "records_expired_total", "Records whose time was over.";
    republished: "republished_total", "Records published again.";
    journal_errors: "journal_errors_total", "Writes of the record journal that failed.";
    saves: "table_saves_total", "Saves of the routing table.";
}

/// What is so at the moment of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub peers: u64,
    pub buckets: u64,
    pub connections: u64,
    pub records: u64,
    pub record_bytes: u64,
    pub network_size: u64,
    pub republish_lag_ms: u64,
}

const GAUGES: [(&str, &str); 7] = [
    ("routing_peers", "Peers in the routing table."),
    ("routing_buckets", "Buckets that hold somebody."),
    ("connections", "Connections open now."),
    ("records", "Records held."),
    ("record_bytes", "Bytes of the records held."),
    (
        "network_size_estimate",
        "How many nodes the network seems to have.",
    ),
    (
        "republish_lag_ms",
        "How late the republisher is with the record that waits longest.",
    ),
];

impl Gauges {
    fn all(self) -> [u64; 7] {
        [
            self.peers,
            self.buckets,
            self.connections,
            self.records,
            self.record_bytes,
            self.network_size,
            self.republish_lag_ms,
        ]
    }
}

/// The node's counters.
pub struct Metrics {
    pub hot: Hot,
    words: RankedMutex<BTreeMap<(Family, &'static str), u64>>,
    registry: OnceLock<Box<Registry>>,
}

/// The third and last of the service's locks.
pub const COUNTERS_LOCK: LockDecl = LockDecl {
    name: "counters",
    rank: 30,
    guards: "counts that a word tells apart, and what the rate limiter has given out",
};

/// Taken before every other one, by whoever sets up or exports the registry.
pub const META_LOCK: LockDecl = LockDecl {
    name: "state_meta",
    rank: 10,
    guards: "what of the counts has been exported",
};

struct Registry {
    telemetry: Telemetry,
    families: Vec<Counters>,
    hot: Vec<IntCounter>,
    gauges: Vec<IntGauge>,
    exported: RankedMutex<Exported>,
}

#[derive(Default)]
struct Exported {
    words: BTreeMap<(Family, &'static str), u64>,
    hot: Vec<u64>,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics {
            hot: Hot::default(),
            words: RankedMutex::new(COUNTERS_LOCK, BTreeMap::new()),
            registry: OnceLock::new(),
        }
    }

    pub fn count(&self, family: Family, word: &'static str) {
        self.count_many(family, word, 1);
    }

    pub fn count_many(&self, family: Family, word: &'static str, by: u64) {
        let mut words = self.words.lock();
        if let Some(count) = words.get_mut(&(family, word)) {
            *count += by;
            return;
        }
        let known = words
            .range((family, "")..)
            .take_while(|((f, _), _)| *f == family);
        let word = if known.count() < MAX_WORDS {
            word
        } else {
            "other"
        };
        *words.entry((family, word)).or_default() += by;
    }

    pub fn inc(&self, counter: impl Fn(&Hot) -> &AtomicU64) {
        counter(&self.hot).fetch_add(1, Relaxed);
    }

    pub fn add(&self, counter: impl Fn(&Hot) -> &AtomicU64, by: u64) {
        counter(&self.hot).fetch_add(by, Relaxed);
    }

    /// How often this was counted.
    pub fn counted(&self, family: Family, word: &'static str) -> u64 {
        self.words.lock().get(&(family, word)).copied().unwrap_or(0)
    }

    /// The registry, made now if this is the first time that somebody asks. `watch` adds what others count.
    pub fn telemetry(&self, watch: impl FnOnce(&Telemetry)) -> &Telemetry {
        let registry = self.registry.get_or_init(|| {
            let telemetry = Telemetry::new(crate::topology::NAME, "");
            watch(&telemetry);
            Box::new(Registry::new(telemetry))
        });
        &registry.telemetry
    }

    /// Brings the registry up to what was counted until now.
    /// `others` is what connections have counted.
    pub fn export(&self, gauges: Gauges, others: &[(Family, &'static str, u64)]) {
        let Some(registry) = self.registry.get() else {
            return;
        };
        let mut exported = registry.exported.lock();
        let mut words = self.words.lock().clone();
        for (family, word, count) in others {
            *words.entry((*family, word)).or_default() += count;
        }
        for (decl, counters) in FAMILIES.iter().zip(&registry.families) {
            let family = decl.family;
            for ((_, word), now) in words
                .range((family, "")..)
                .take_while(|((f, _), _)| *f == family)
            {
                let before = exported.words.insert((family, word), *now).unwrap_or(0);
                let labels: &[&str] = match family {
                    Family::BusyEndpoint => &[word, ""],
                    _ => &[word],
                };
                counters.with(labels).inc_by(now.saturating_sub(before));
            }
        }
        let hot = self.hot.all();
        exported.hot.resize(hot.len(), 0);
        for ((counter, now), before) in registry.hot.iter().zip(&hot).zip(&exported.hot) {
            counter.inc_by(now.saturating_sub(*before));
        }
        exported.hot = hot;
        for (gauge, now) in registry.gauges.iter().zip(gauges.all()) {
            gauge.set(i64::try_from(now).unwrap_or(i64::MAX));
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Registry {
    fn new(telemetry: Telemetry) -> Registry {
        let families = FAMILIES.iter().map(|decl| make(&telemetry, decl));
        let families = families.collect();
        let hot = Hot::NAMES.iter();
        let hot = hot.map(|(name, help)| telemetry.counter(name, help));
        let gauges = GAUGES.iter();
        let gauges = gauges.map(|(name, help)| telemetry.gauge(name, help));
        Registry {
            hot: hot.collect(),
            gauges: gauges.collect(),
            families,
            exported: RankedMutex::new(META_LOCK, Exported::default()),
            telemetry,
        }
    }
}

/// The kernel has some of them already.
fn make(telemetry: &Telemetry, decl: &FamilyDecl) -> Counters {
    let kernel = telemetry.kernel();
    let counters = match decl.family {
        Family::IoTimeouts => kernel.io_timeouts.clone(),
        Family::IoErrors => kernel.io_errors.clone(),
        Family::BackoffRetries => kernel.backoff_retries.clone(),
        Family::BusyEndpoint => kernel.busy_rejections.clone(),
        Family::NotReady => kernel.not_ready.clone(),
        Family::QuotaReject => kernel.quota_reject.clone(),
        _ => telemetry.counters(decl.name, decl.help, &[decl.label], MAX_WORDS + 1),
    };
    for word in decl.words {
        match decl.family {
            Family::BusyEndpoint => counters.with(&[word, ""]),
            _ => counters.with(&[word]),
        };
    }
    counters
}

/// The word for a number of hops.
pub fn hops_word(hops: u32) -> &'static str {
    const WORDS: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
    WORDS.get(hops as usize).copied().unwrap_or("more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, start: &str) -> Option<f64> {
        let line = text.lines().find(|l| l.starts_with(start))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    // proves: DHT-9.2, DHT-9.3, DHT-9.4, DHT-9.5, DHT-9.6, DHT-9.7, DHT-4.1
    #[test]
    fn the_registry_tells_what_was_counted_before_it_was_made_and_after() {
        let metrics = Metrics::new();
        metrics.count(Family::IoTimeouts, "find_node");
        metrics.inc(|hot| &hot.hedge_spawned);
        let telemetry = metrics.telemetry(|_| {}).clone();
        metrics.export(Gauges::default(), &[]);
        metrics.count(Family::IoTimeouts, "find_node");
        metrics.count(Family::BackoffRetries, "find_value");
        metrics.count(Family::BusyEndpoint, "store");
        metrics.add(|hot| &hot.hedge_canceled, 3);
        let gauges = Gauges {
            peers: 7,
            ..Gauges::default()
        };
        metrics.export(gauges, &[]);
        metrics.export(gauges, &[(Family::IoTimeouts, "read", 4)]);
        let text = telemetry.render();
        for (start, value) in [
            ("io_timeouts_total{op=\"find_node\"}", 2.0),
            ("io_timeouts_total{op=\"read\"}", 4.0),
            ("io_timeouts_total{op=\"write\"}", 0.0),
            ("io_timeouts_total{op=\"connect\"}", 0.0),
            ("io_timeouts_total{op=\"find_value\"}", 0.0),
            ("backoff_retries_total{op=\"find_value\"}", 1.0),
            ("busy_rejections_total{endpoint=\"store\",queue=\"\"}", 1.0),
            ("hedge_spawned_total", 1.0),
            ("hedge_canceled_total", 3.0),
            ("routing_peers", 7.0),
        ] {
            assert_eq!(line(&text, start), Some(value), "{start}\n{text}");
        }
    }

    #[test]
    fn a_family_has_no_more_words_than_it_may() {
        let metrics = Metrics::new();
        for i in 0..200_usize {
            let word: &'static str = Box::leak(i.to_string().into_boxed_str());
            metrics.count(Family::FramesRejected, word);
        }
        metrics.count(Family::Lookups, "found");
        let words = metrics.words.lock();
        let frames = words.keys().filter(|(f, _)| *f == Family::FramesRejected);
        assert_eq!(frames.count(), MAX_WORDS + 1);
        let all: u64 = words.values().sum();
        assert_eq!(all, 201);
    }
}
