//! The pool's parts, each declared once: what is built from a declaration is what the docs tell.

use std::time::Duration;

use ron_core::{
    RejectNew,
    config::Settings,
    serve::{Hosts, ServeOptions},
    telemetry::Telemetry,
    topology::{QueueDecl, TaskDecl, TimeoutDecl, Topology},
};

use super::{NAME, config::PoolConfig, store::STORE_LOCK};

/// The declarations that the wiring builds from.
pub struct Parts {
    pub work: QueueDecl<RejectNew>,
    pub worker: TaskDecl,
    pub listener: TaskDecl,
    pub ticker: TaskDecl,
    pub drills: TaskDecl,
    pub drills_disk: TaskDecl,
    pub late: TaskDecl,
    pub request: TimeoutDecl,
    pub drain: TimeoutDecl,
    pub close: TimeoutDecl,
    pub serve: ServeOptions,
}

pub fn declare(config: &PoolConfig) -> (Topology, Parts) {
    let mut topology = Topology::new(NAME);
    let task = |name, count, does, on_failure| TaskDecl {
        name,
        kind: name,
        count,
        does,
        on_failure,
    };
    let restarted = "restarted with backoff, 10 times a minute; then readiness off";
    let ms = Duration::from_millis;
    let serve = ServeOptions {
        hosts: Hosts::any().into(),
        close_grace: ms(900),
        ..ServeOptions::default()
    };
    let timeout = |name, after, key, on_expiry| TimeoutDecl {
        name,
        after,
        key,
        on_expiry,
    };
    let parts = Parts {
        work: topology.queue(QueueDecl {
            name: "work",
            cap: config.queue_cap,
            cap_key: Some("queue_cap"),
            policy: RejectNew,
            producers: "listener",
            consumers: "workers",
            when_full: "429 `busy`, counted in `busy_rejections_total{queue=\"work\"}`",
        }),
        worker: topology.task(task(
            "worker",
            "`workers`",
            "stores one item at a time, synced",
            restarted,
        )),
        listener: topology.task(task(
            "listener",
            "1",
            "HTTP: items, health, readiness, metrics",
            restarted,
        )),
        ticker: topology.task(task(
            "ticker",
            "1 if `ticker`",
            "sleeps and tells how long it slept",
            restarted,
        )),
        drills: topology.task(task(
            "drills",
            "1 if `drills`",
            "compares parts of the kernel with plain references",
            restarted,
        )),
        drills_disk: topology.task(task(
            "drills_disk",
            "1 if `drills` or `drills_of_disk`",
            "writes numbered values and looks for them at its start",
            restarted,
        )),
        late: topology.task(task(
            "late",
            "1 if `late_ms`",
            "asks for the shutdown signal late",
            restarted,
        )),
        request: topology.timeout(timeout(
            "request",
            ms(config.request_deadline_ms),
            Some("request_deadline_ms"),
            "504 `deadline_exceeded`; its job is finished all the same",
        )),
        drain: topology.timeout(timeout(
            "drain",
            ms(config.drain_deadline_ms),
            Some("drain_deadline_ms"),
            "workers are aborted and counted, queued jobs counted as lost",
        )),
        close: topology.timeout(timeout(
            "close",
            ms(1000),
            None,
            "the listener is aborted and counted",
        )),
        serve: serve.clone(),
    };
    topology.timeout(timeout(
        "http_header_read",
        serve.header_read,
        None,
        "the connection is closed",
    ));
    topology.timeout(timeout(
        "http_body_read",
        serve.body_read,
        None,
        "408 `body_timeout`",
    ));
    topology.timeout(timeout(
        "http_write",
        serve.write,
        None,
        "the connection is closed",
    ));
    topology.timeout(timeout(
        "http_idle",
        serve.idle,
        None,
        "the connection is closed",
    ));
    topology.timeout(timeout(
        "http_close_grace",
        serve.close_grace,
        None,
        "open requests are cut and counted",
    ));
    topology.lock(STORE_LOCK);
    (topology, parts)
}

/// The pool's page of generated docs.
pub fn page() -> (&'static str, String) {
    let telemetry = Telemetry::new(NAME, "");
    (
        "pool.md",
        declare(&PoolConfig::default())
            .0
            .markdown(&telemetry.declared(), &PoolConfig::keys()),
    )
}
