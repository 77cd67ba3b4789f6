//! The service's parts, each declared once: what is built from a declaration is what the docs tell.

use std::time::Duration;

use ron_core::{
    RejectNew, WaitFor, app,
    config::Settings,
    serve::ServeOptions,
    telemetry::Telemetry,
    topology::{QueueDecl, TaskDecl, TimeoutDecl, Topology},
};

use crate::{
    api,
    config::Config,
    explained,
    identity::NetworkId,
    link::{line::mail_decl, rules::LinkRules},
    metrics,
    metrics::Metrics,
};

pub const NAME: &str = "svc-dht";

/// The declarations that the wiring builds from.
pub struct Parts {
    pub work: QueueDecl<RejectNew>,
    pub route: QueueDecl<WaitFor>,
    pub records: QueueDecl<RejectNew>,
    pub bucket_starts: QueueDecl<RejectNew>,
    pub listener: TaskDecl,
    pub worker: TaskDecl,
    pub bucket_writer: TaskDecl,
    pub record_keeper: TaskDecl,
    pub republisher: TaskDecl,
    pub bootstrapper: TaskDecl,
    pub refresher: TaskDecl,
    pub http: TaskDecl,
    pub drain: TimeoutDecl,
    pub flush: TimeoutDecl,
    pub close: TimeoutDecl,
    pub serve: ServeOptions,
}

pub fn declare(config: &Config) -> (Topology, Parts) {
    let mut topology = Topology::new(NAME);
    app::declare(&mut topology);
    let ms = Duration::from_millis;
    let queues = declare_queues(&mut topology, config);
    let mut task = |name, count, does, on_failure| {
        topology.task(TaskDecl {
            name,
            kind: name,
            count,
            does,
            on_failure,
        })
    };
    let (restarted, vital) = (app::RESTARTED, app::VITAL);
    let listener = task(
        "listener",
        "1",
        "accepts connections of other nodes, at most `link.max_inbound`; refuses them while draining",
        vital,
    );
    let worker = task(
        "worker",
        "`workers`",
        "runs lookups and verifies records on the CPU pool",
        restarted,
    );
    let bucket_writer = task(
        "bucket_writer",
        "1 per bucket, from its first use on",
        "the only one to change its bucket; pings whom it is about to evict, and publishes snapshots",
        vital,
    );
    let record_keeper = task(
        "record_keeper",
        "1",
        "the only one to change the record store; writes the journal in batches, each durable before its acks",
        vital,
    );
    let republisher = task(
        "republisher",
        "1",
        "publishes records again before their time is over; counts its lag",
        restarted,
    );
    let bootstrapper = task(
        "bootstrapper",
        "1, ends when the node has found its network",
        "dials seeds with backoff, looks up its own id, opens the gates `bootstrap_seeds` and `buckets_filled`",
        restarted,
    );
    let refresher = task(
        "refresher",
        "1",
        "starts bucket writers, looks up an id in buckets that were quiet for long, saves the table",
        restarted,
    );
    let http = task(
        "http",
        "1 if `api.enabled`",
        "the local API, health, readiness, metrics",
        vital,
    );
    let serve = config.http.options(ms(900));
    let timeouts = declare_timeouts(&mut topology, config, &serve);
    for lock in [
        metrics::META_LOCK,
        crate::routes::ROUTES_LOCK,
        crate::routing::table::ROUTING_LOCK,
        crate::record_keeper::KEEPER_LOCK,
        crate::node::PEER_STATS_LOCK,
        explained::EXPLAINED_LOCK,
        crate::link::hub::POOL_LOCK,
        crate::link::hub::BREAKERS_LOCK,
        metrics::COUNTERS_LOCK,
    ] {
        topology.lock(lock);
    }
    let parts = Parts {
        work: queues.0,
        route: queues.1,
        records: queues.2,
        bucket_starts: queues.3,
        listener,
        worker,
        bucket_writer,
        record_keeper,
        republisher,
        bootstrapper,
        refresher,
        http,
        drain: timeouts.0,
        flush: timeouts.1,
        close: timeouts.2,
        serve,
    };
    (topology, parts)
}

type Queues = (
    QueueDecl<RejectNew>,
    QueueDecl<WaitFor>,
    QueueDecl<RejectNew>,
    QueueDecl<RejectNew>,
);

fn declare_queues(topology: &mut Topology, config: &Config) -> Queues {
    let work = topology.queue(QueueDecl {
        name: "work",
        cap: config.work_cap,
        cap_key: Some("work_cap"),
        policy: RejectNew,
        producers: "http, connections, republisher, bootstrapper, refresher",
        consumers: "workers",
        when_full: "`busy` at once, counted in `busy_rejections_total{queue=\"work\"}`",
    });
    let route = topology.queue(QueueDecl {
        name: "route",
        cap: config.route_cap,
        cap_key: Some("route_cap"),
        policy: WaitFor(Duration::from_millis(config.route_send_ms)),
        producers: "connections, workers, bootstrapper",
        consumers: "the bucket's writer (one queue each)",
        when_full: "after the wait the change is dropped, counted in `route_dropped_total`; a refresh brings it back",
    });
    let records = topology.queue(QueueDecl {
        name: "records",
        cap: config.records_cap,
        cap_key: Some("records_cap"),
        policy: RejectNew,
        producers: "workers, http",
        consumers: "record keeper",
        when_full: "`busy` at once, counted in `busy_rejections_total{queue=\"records\"}`",
    });
    let starts = topology.queue(QueueDecl {
        name: "bucket_starts",
        cap: crate::id::BUCKETS,
        cap_key: None,
        policy: RejectNew,
        producers: "whoever first uses a bucket",
        consumers: "refresher",
        when_full: "never: each bucket is put in once",
    });
    topology.queue(mail_decl(
        LinkRules::new(NetworkId([0; 16]), 0).max_in_flight,
    ));
    topology.queue(QueueDecl {
        name: "events",
        cap: config.bus_cap,
        cap_key: Some("bus_cap"),
        policy: Broadcast,
        producers: "all tasks",
        consumers: "`GET /v1/dht/events`",
        when_full: "a slow listener loses the oldest and is told, counted in `bus_lagged_total{bus=\"events\"}`; made with the first listener",
    });
    (work, route, records, starts)
}

fn declare_timeouts(
    topology: &mut Topology,
    config: &Config,
    serve: &ServeOptions,
) -> (TimeoutDecl, TimeoutDecl, TimeoutDecl) {
    let ms = Duration::from_millis;
    let mut timeout = |name, after, key, on_expiry| {
        topology.timeout(TimeoutDecl {
            name,
            after,
            key,
            on_expiry,
        })
    };
    let drain = timeout(
        "drain",
        ms(config.drain_deadline_ms),
        Some("drain_deadline_ms"),
        "workers are aborted and counted; who waits for them is answered `canceled`",
    );
    let flush = timeout(
        "flush",
        ms(2_000),
        None,
        "bucket writers, record keeper and refresher are aborted and counted; nothing acknowledged is lost",
    );
    let close = timeout(
        "close",
        ms(1_500),
        None,
        "the listener, connections and http are aborted and counted",
    );
    let (lookup, link) = (&config.lookup, &config.link);
    #[rustfmt::skip]
    let rest = [
        ("lookup", lookup.deadline_ms, Some("lookup.deadline_ms"),
            "the lookup ends with what it has, or with `timeout`"),
        ("rpc", lookup.rpc_timeout_ms, Some("lookup.rpc_timeout_ms"),
            "the probe has failed, `io_timeouts_total{op}`"),
        ("hedge", lookup.hedge_after_ms, Some("lookup.hedge_after_ms"),
            "the probe is overdue: one more may start, a late answer still counts"),
        ("route_send", config.route_send_ms, Some("route_send_ms"),
            "the change is dropped, `route_dropped_total`"),
        ("connect", link.connect_timeout_ms, Some("link.connect_timeout_ms"),
            "the peer has failed, `io_timeouts_total{op=\"connect\"}`"),
        ("read", link.read_timeout_ms, Some("link.read_timeout_ms"),
            "the stream is closed, `io_timeouts_total{op=\"read\"}`"),
        ("write", link.write_timeout_ms, Some("link.write_timeout_ms"),
            "the stream is closed, `io_timeouts_total{op=\"write\"}`"),
        ("idle", link.idle_timeout_ms, Some("link.idle_timeout_ms"), "the stream is closed"),
        ("breaker", link.breaker_open_ms, Some("link.breaker_open_ms"),
            "the breaker is half open: `link.breaker_probes` requests are let through"),
        ("http_request", config.api.timeout_secs * 1_000, Some("api.timeout_secs"),
            "504 `deadline_exceeded`"),
    ];
    for (name, after, key, on_expiry) in rest {
        timeout(name, ms(after), key, on_expiry);
    }
    for (name, after, key) in [
        ("http_read", serve.header_read, "http.read_timeout_ms"),
        ("http_write", serve.write, "http.write_timeout_ms"),
        ("http_idle", serve.idle, "http.idle_timeout_ms"),
    ] {
        timeout(name, after, Some(key), "the connection is closed");
    }
    timeout(
        "http_close_grace",
        serve.close_grace,
        None,
        "open requests are cut and counted",
    );
    (drain, flush, close)
}

/// As the docs tell it.
#[derive(Debug)]
struct Broadcast;

/// The service's page of generated docs.
pub fn page() -> (&'static str, String) {
    let metrics = Metrics::new();
    let telemetry = metrics.telemetry(|_: &Telemetry| {});
    api::refused_counters(telemetry);
    (
        "svc-dht.md",
        declare(&Config::default())
            .0
            .markdown(&telemetry.declared(), &Config::keys()),
    )
}
