//! The configuration: every key with its default, range and unit; what contradicts itself is refused.

pub mod rules;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ron_core::{
    admission::{InflateLimits, Limits as AdmissionLimits},
    app::{AppSettings, ReloadConfig, TlsConfig, caller_rules},
    auth::AuthConfig,
    backoff::Backoff,
    config::Broken,
    serve::HttpConfig,
};

ron_core::settings! {
    /// How a lookup goes.
    pub struct LookupConfig {
        /// Nodes that hold a record, entries of a bucket, contacts of an answer.
        k: usize = 20 => 1..=64, restart;
        /// Probes under way while a lookup searches.
        alpha: usize = 3 => 1..=20;
        /// Probes beyond alpha for those that are overdue, at a time.
        beta: usize = 2 => 0..=20;
        /// How deep referrals may go.
        hop_budget: u32 = 5 => 1..=64;
        /// One probe.
        rpc_timeout_ms: u64 = 1_500 => 10..=60_000;
        /// When a probe counts as overdue, at the latest.
        hedge_after_ms: u64 = 250 => 1..=60_000;
        /// Hedges in a hundred requests.
        hedge_budget_percent: u32 = 10 => 0..=100, restart;
        /// The whole lookup.
        deadline_ms: u64 = 5_000 => 10..=600_000;
        /// Tries of a read that was refused or reset.
        retry_max: u32 = 3 => 1..=10;
        /// Least wait before the second try.
        retry_min_ms: u64 = 50 => 1..=10_000;
        /// Most wait before the second try.
        retry_max_ms: u64 = 100 => 1..=10_000;
        /// No wait is longer.
        retry_cap_ms: u64 = 2_000 => 1..=60_000;
        /// Answers with a value that end a value lookup.
        value_quorum: usize = 3 => 1..=20;
        /// Providers that end a search for providers.
        providers_wanted: usize = 20 => 1..=64;
        /// Nodes that must hold a record before a publication is acknowledged; all, if fewer are known.
        store_quorum: usize = 3 => 1..=20;
    }
}

ron_core::settings! {
    /// Connections to other nodes.
    pub struct LinkConfig {
        /// For a connection to be made, handshake included.
        connect_timeout_ms: u64 = 1_500 => 1..=60_000, restart;
        /// For the rest of a frame that has begun to arrive, and for the handshake of a peer.
        read_timeout_ms: u64 = 5_000 => 1..=600_000, restart;
        /// For a peer to take what was written.
        write_timeout_ms: u64 = 5_000 => 1..=600_000, restart;
        /// For a connection on which nothing happens.
        idle_timeout_ms: u64 = 60_000 => 1..=3_600_000, restart;
        /// Connections that this node opened, at once; the oldest idle one makes room.
        max_outbound: usize = 40 => 1..=65_536, restart;
        /// Connections that others opened, at once; more are closed.
        max_inbound: usize = 256 => 1..=65_536, restart;
        /// Largest frame; a longer one closes its stream.
        max_frame_bytes: u32 = 1_048_576 => 1_024..=16_777_216, restart;
        /// Consecutive timeouts that open a peer's circuit breaker; 0 for no breaker.
        breaker_after: u32 = 5 => 0..=1_000, restart;
        /// How long it stays open.
        breaker_open_ms: u64 = 5_000 => 1..=3_600_000, restart;
        /// Requests let through when it is half open.
        breaker_probes: u32 = 1 => 1..=3, restart;
    }
}

ron_core::settings! {
    /// What other nodes may ask of this one.
    pub struct LimitConfig {
        /// Requests answered in a second; more are refused as busy. 0 for no limit.
        rps: u32 = 5_000 => 0..=10_000_000, restart;
        /// Requests in flight at once.
        inflight: u32 = 512 => 1..=65_536, restart;
        /// Bytes received in a second. 0 for no limit.
        bytes_per_s: u32 = 33_554_432 => 0..=1_073_741_824, restart;
        /// The share of these that one peer may take.
        peer_share_percent: u32 = 25 => 1..=100, restart;
    }
}

ron_core::settings! {
    /// The routing table.
    pub struct RoutingConfig {
        /// Newcomers that wait for a place in a full bucket.
        replacements: usize = 3 => 0..=64, restart;
        /// Whether peers of one subnet are limited.
        diversity: bool = true, restart;
        /// Peers of one /24 or /48 in a bucket.
        diversity_bucket: usize = 2 => 1..=64, restart;
        /// Peers of one /24 or /48 in the table.
        diversity_table: usize = 10 => 1..=10_000, restart;
        /// Failures in a row after which a peer counts as dead.
        dead_after: u32 = 2 => 1..=10, restart;
        /// A bucket that was quiet for so long is refreshed; a peer that was, is pinged before it keeps a newcomer out.
        refresh_ms: u64 = 3_600_000 => 1_000..=86_400_000, restart;
        /// Time between two saves of the table.
        save_ms: u64 = 300_000 => 100..=86_400_000, restart;
    }
}

ron_core::settings! {
    /// What is stored for the network.
    pub struct RecordConfig {
        /// Life of a record that names none.
        ttl_ms: u64 = 86_400_000 => 1_000..=86_400_000;
        /// Longest life of a record.
        ttl_max_ms: u64 = 86_400_000 => 1_000..=604_800_000, restart;
        /// How far the clocks of publisher and keeper may be apart.
        clock_skew_ms: u64 = 60_000 => 0..=3_600_000, restart;
        /// Largest value.
        value_bytes: usize = 16_384 => 1..=16_384, restart;
        /// Records kept of one publisher.
        per_publisher: usize = 256 => 1..=1_000_000, restart;
        /// Providers kept of one key.
        providers_per_key: usize = 64 => 1..=1_000, restart;
        /// Bytes kept in all; when full, what is farthest from this node gives way.
        total_bytes: usize = 67_108_864 => 1_024..=1_073_741_824, restart;
        /// A record is published again after this share of its life.
        republish_percent: u32 = 33 => 1..=66;
        /// Time between two looks for records that are due.
        republish_check_ms: u64 = 60_000 => 100..=86_400_000, restart;
    }
}

ron_core::settings! {
    /// How a node finds the network.
    pub struct BootstrapConfig {
        /// Nodes to begin with, as `host:port`; none for the first node of a network.
        seeds: Vec<String> = vec![], restart;
        /// Seeds that must have answered before the node is ready; all, if fewer are named.
        seeds_needed: usize = 1 => 1..=1_000, restart;
        /// Share of the buckets that a network of the estimated size fills, before the node is ready.
        fill_percent: u32 = 50 => 0..=100, restart;
        /// Least wait before seeds are tried again.
        retry_min_ms: u64 = 500 => 1..=60_000, restart;
        /// Most wait before the first repetition.
        retry_max_ms: u64 = 1_000 => 1..=60_000, restart;
        /// No wait is longer.
        retry_cap_ms: u64 = 60_000 => 1..=600_000, restart;
    }
}

ron_core::settings! {
    /// The local API over HTTP.
    pub struct ApiConfig {
        /// Whether there is one.
        enabled: bool = true, restart;
        /// Where it listens.
        bind: SocketAddr = ([127, 0, 0, 1], 7491).into(), restart;
        /// Deadline of a request that names none.
        timeout_secs: u64 = 10 => 1..=300, restart;
        /// Requests served at once; more are answered 429.
        max_inflight: usize = 512 => 1..=65_536, restart;
        /// Requests let in per second; more are answered 429. 0 for no limit.
        rps_limit: u32 = 0 => 0..=1_000_000, restart;
        /// Lookups whose course is kept for `GET /v1/dht/lookups/{id}`.
        explained: usize = 64 => 0..=10_000, restart;
        /// `POST /api/v1/reload` and `/shutdown` exist.
        admin: bool = false, restart;
    }
}

ron_core::settings! {
    /// Everything that can be set.
    pub struct Config {
        /// The network's name: nodes of another one are refused.
        network: String = "ron".to_owned(), restart;
        /// Where other nodes reach this one.
        bind: SocketAddr = ([127, 0, 0, 1], 7490).into(), restart;
        /// The address under which others are told to reach it; if absent, where it listens, or where they see it.
        advertise_ip: Option<IpAddr> = None, restart;
        /// Where the key, the table and the records are kept.
        data_dir: String = "svc-dht-data".to_owned(), restart;
        /// File with the node's secret key (32 bytes, mode 0600); made at the first start.
        identity_file: String = "identity.key".to_owned(), restart;
        /// Tasks that run lookups and verify records.
        workers: u32 = 8 => 1..=256, restart;
        /// Lookups and records that may wait for a worker; one more is answered `busy`.
        work_cap: usize = 512 => 1..=65_536, restart;
        /// Changes that may wait for a bucket's writer.
        route_cap: usize = 1_024 => 1..=65_536, restart;
        /// Records that may wait to be written; one more is answered `busy`.
        records_cap: usize = 512 => 1..=65_536, restart;
        /// Events that a subscriber may fall behind.
        bus_cap: usize = 1_024 => 1..=65_536, restart;
        /// How long a change waits for room in a bucket's queue.
        route_send_ms: u64 = 100 => 1..=10_000, restart;
        /// What lookups in flight may take when the process is asked to stop.
        drain_deadline_ms: u64 = 5_000 => 1..=600_000, restart;
        lookup: LookupConfig;
        link: LinkConfig;
        limits: LimitConfig;
        routing: RoutingConfig;
        records: RecordConfig;
        bootstrap: BootstrapConfig;
        api: ApiConfig;
        http: HttpConfig;
        auth: AuthConfig;
        tls: TlsConfig;
        reload: ReloadConfig;
    }
}

impl AppSettings for Config {
    fn rules(&self) -> Vec<Broken> {
        let mut broken = self.tls.rules();
        broken.extend(caller_rules(&self.auth, self.api.bind));
        broken.extend(self.http.rules());
        let mut say = |key, reason: &str| {
            let reason = reason.to_owned();
            broken.push(Broken { key, reason });
        };
        if self.network.is_empty() || self.network.len() > 255 {
            say("network", "a name of 1 to 255 bytes is allowed");
        }
        if self.lookup.alpha > self.lookup.k {
            say("lookup.alpha", "may not be above lookup.k");
        }
        if self.lookup.store_quorum > self.lookup.k {
            say("lookup.store_quorum", "may not be above lookup.k");
        }
        if self.lookup.retry_min_ms > self.lookup.retry_max_ms {
            say(
                "lookup.retry_min_ms",
                "may not be above lookup.retry_max_ms",
            );
        }
        if self.lookup.rpc_timeout_ms > self.lookup.deadline_ms {
            say(
                "lookup.rpc_timeout_ms",
                "may not be above lookup.deadline_ms",
            );
        }
        if self.bootstrap.retry_min_ms > self.bootstrap.retry_max_ms {
            let reason = "may not be above bootstrap.retry_max_ms";
            say("bootstrap.retry_min_ms", reason);
        }
        if self.records.ttl_ms > self.records.ttl_max_ms {
            say("records.ttl_ms", "may not be above records.ttl_max_ms");
        }
        if self.bootstrap.seeds.iter().any(|s| split_seed(s).is_none()) {
            say("bootstrap.seeds", "each is written host:port");
        }
        let (bytes, frame) = (self.limits.bytes_per_s, self.link.max_frame_bytes);
        if bytes != 0 && bytes < frame {
            let reason = "may not be below link.max_frame_bytes: such a frame could never pass";
            say("limits.bytes_per_s", reason);
        }
        if self.api.enabled && self.api.bind == self.bind && self.bind.port() != 0 {
            say("api.bind", "is where other nodes are listened to");
        }
        broken
    }

    fn data_dir(&self) -> Option<&str> {
        Some(&self.data_dir)
    }

    fn binds(&self) -> Vec<SocketAddr> {
        let api = self.api.enabled.then_some(self.api.bind);
        [self.bind].into_iter().chain(api).collect()
    }

    ron_core::app_sections!(api.admin);
}

impl Config {
    /// Hosts and ports to begin with.
    pub fn seeds(&self) -> impl Iterator<Item = (&str, u16)> {
        self.bootstrap.seeds.iter().filter_map(|s| split_seed(s))
    }

    pub fn admission(&self) -> AdmissionLimits {
        let timeout = Duration::from_secs(self.api.timeout_secs);
        let body_cap = self.records.value_bytes as u64;
        AdmissionLimits {
            timeout,
            max_in_flight: self.api.max_inflight,
            rate_per_s: (self.api.rps_limit > 0).then_some(self.api.rps_limit),
            body_cap,
            body_timeout: timeout,
            inflate: InflateLimits {
                max_ratio: 10,
                max_bytes: body_cap,
            },
        }
    }

    pub fn bootstrap_backoff(&self) -> Backoff {
        let ms = Duration::from_millis;
        let b = &self.bootstrap;
        Backoff::band(ms(b.retry_min_ms), ms(b.retry_max_ms), ms(b.retry_cap_ms))
    }

    pub fn rpc_timeout(&self) -> Duration {
        Duration::from_millis(self.lookup.rpc_timeout_ms)
    }

    pub fn lookup_deadline(&self) -> Duration {
        Duration::from_millis(self.lookup.deadline_ms)
    }
}

fn split_seed(seed: &str) -> Option<(&str, u16)> {
    let (host, port) = seed.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use ron_core::config::{Reloadable, Settings, Sources};

    use super::*;

    fn load(cli: &[&str]) -> Result<Config, String> {
        let sources = Sources {
            file: None,
            env: Vec::new(),
            cli: cli.iter().map(ToString::to_string).collect(),
        };
        Reloadable::load(&sources, "SVC_DHT_", Config::rules)
            .map(|loaded| (*loaded.current()).clone())
            .map_err(|errors| errors.to_string())
    }

    // proves: DHT-12.1, DHT-12.2, DHT-12.3, DHT-12.4, DHT-12.5, DHT-5.1, DHT-5.2, DHT-5.5
    #[test]
    fn what_the_source_names_can_be_set_and_has_the_sources_default() {
        let keys = Config::keys();
        for (key, default, other) in [
            ("work_cap", "512", "7"),
            ("route_cap", "1024", "7"),
            ("bus_cap", "1024", "7"),
            ("lookup.rpc_timeout_ms", "1500", "700"),
            ("lookup.hedge_after_ms", "250", "70"),
            ("link.read_timeout_ms", "5000", "70"),
            ("link.write_timeout_ms", "5000", "70"),
            ("link.idle_timeout_ms", "60000", "70"),
            ("limits.inflight", "512", "7"),
            ("limits.rps", "5000", "7"),
            ("drain_deadline_ms", "5000", "70"),
            ("route_send_ms", "100", "7"),
            ("lookup.alpha", "3", "4"),
            ("lookup.beta", "2", "4"),
            ("lookup.hop_budget", "5", "4"),
            ("lookup.k", "20", "8"),
            ("link.max_frame_bytes", "1048576", "2048"),
        ] {
            let declared = keys.iter().find(|k| k.name == key);
            let declared = declared.unwrap_or_else(|| panic!("no key {key}"));
            assert_eq!(declared.default, default, "{key}");
            let set = load(&[&format!("{key}={other}")]).unwrap();
            assert_ne!(set, Config::default(), "{key}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_the_key_that_does() {
        for (set, key) in [
            (["lookup.alpha=5", "lookup.k=4"], "lookup.alpha"),
            (
                ["records.ttl_ms=2000", "records.ttl_max_ms=1000"],
                "records.ttl_ms",
            ),
            (["network=", "work_cap=1"], "network"),
            (["bind=127.0.0.1:9", "api.bind=127.0.0.1:9"], "api.bind"),
            (["api.bind=0.0.0.0:9", "work_cap=1"], "auth.mode"),
            (
                ["bootstrap.seeds=[\"nowhere\"]", "work_cap=1"],
                "bootstrap.seeds",
            ),
        ] {
            let said = load(&set).unwrap_err();
            assert!(said.contains(key), "{set:?}: {said}");
        }
    }

    #[test]
    fn a_seed_is_a_host_and_a_port() {
        for (seed, wanted) in [
            ("a.example:7490", Some(("a.example", 7490))),
            ("127.0.0.1:1", Some(("127.0.0.1", 1))),
            ("[::1]:1", Some(("::1", 1))),
            ("a.example", None),
            (":1", None),
            ("a:0", None),
            ("a:99999", None),
        ] {
            assert_eq!(split_seed(seed), wanted, "{seed}");
        }
    }
}
