//! The service's parts, each declared once: what is built from a declaration is what the docs tell.

use std::time::Duration;

use ron_core::{
    RejectNew, app,
    config::Settings,
    serve::ServeOptions,
    telemetry::Telemetry,
    topology::{QueueDecl, TaskDecl, TimeoutDecl, Topology},
};

use crate::{
    api, attester, auditor, config::Config, engine, journal, metrics::Metrics, nonces, ring,
};

pub const NAME: &str = "ron-kms";

/// The declarations that the wiring builds from.
pub struct Parts {
    pub sign: QueueDecl<RejectNew>,
    pub listener: TaskDecl,
    pub signer: TaskDecl,
    pub appender: TaskDecl,
    pub checkpointer: TaskDecl,
    pub attester: TaskDecl,
    pub keeper: TaskDecl,
    pub drain: TimeoutDecl,
    pub flush: TimeoutDecl,
    pub checkpoint: TimeoutDecl,
    pub close: TimeoutDecl,
    pub serve: ServeOptions,
}

pub fn declare(config: &Config) -> (Topology, Parts) {
    let mut topology = Topology::new(NAME);
    app::declare(&mut topology);
    let task = |name, count, does, on_failure| TaskDecl {
        name,
        kind: name,
        count,
        does,
        on_failure,
    };
    let (restarted, vital) = (app::RESTARTED, app::VITAL);
    let ms = Duration::from_millis;
    let serve = config.http.options(ms(900));
    let timeout = |name, after, key, on_expiry| TimeoutDecl {
        name,
        after,
        key,
        on_expiry,
    };
    let parts = Parts {
        sign: topology.queue(QueueDecl {
            name: "sign",
            cap: config.queue_cap,
            cap_key: Some("queue_cap"),
            policy: RejectNew,
            producers: "listener, after the tenant's quota",
            consumers: "signers",
            when_full: "429 `busy`, counted in `busy_rejections_total{queue=\"sign\"}`",
        }),
        listener: topology.task(task(
            "listener",
            "1",
            "HTTP: `/v1/kms`, health, readiness, metrics",
            vital,
        )),
        signer: topology.task(task(
            "signer",
            "`signers`",
            "uses and changes keys: sign, wrap, unwrap, create, rotate; tells the audit log",
            restarted,
        )),
        appender: topology.task(task(
            "appender",
            "1",
            "writes audit records in batches, each durable before the next",
            vital,
        )),
        checkpointer: topology.task(task(
            "checkpointer",
            "1",
            "publishes tiles and a signed checkpoint; late or failed, readiness goes off",
            restarted,
        )),
        attester: topology.task(task(
            "attester",
            "1",
            "renews the attestation evidence; failed, readiness goes off",
            restarted,
        )),
        keeper: topology.task(task(
            "keeper",
            "1",
            "keeps the backend's sessions alive, refreshes the verify cache, destroys and rotates what is due",
            restarted,
        )),
        drain: topology.timeout(timeout(
            "drain",
            config.drain_deadline(),
            Some("drain_deadline_ms"),
            "signers are aborted and counted; what they held is told as abandoned in the log",
        )),
        flush: topology.timeout(timeout(
            "flush",
            ms(1000),
            None,
            "the appender is aborted; the next start tells a restart gap",
        )),
        checkpoint: topology.timeout(timeout(
            "checkpoint",
            ms(config.audit.checkpoint_deadline_ms),
            Some("audit.checkpoint_deadline_ms"),
            "readiness off, `kms_audit_integrity_failed_total`; at the end of a drain: aborted and counted",
        )),
        close: topology.timeout(timeout(
            "close",
            ms(1000),
            None,
            "the listener is aborted and counted",
        )),
        serve: serve.clone(),
    };
    declare_rest(&mut topology, config, &serve);
    (topology, parts)
}

/// What other files build by themselves.
fn declare_rest(topology: &mut Topology, config: &Config, serve: &ServeOptions) {
    let ms = Duration::from_millis;
    topology.queue(QueueDecl {
        name: "audit",
        cap: config.audit.queue_cap,
        cap_key: Some("audit.queue_cap"),
        policy: AuditPolicy {
            wait: ms(config.audit.queue_wait_ms),
        },
        producers: "signers",
        consumers: "appender",
        when_full: "after the wait the oldest event that may be shed is dropped, counted in `audit_dropped_total` and told by a gap record",
    });
    let mut timeout = |name, after, key, on_expiry| {
        topology.timeout(TimeoutDecl {
            name,
            after,
            key,
            on_expiry,
        });
    };
    let deadline = &config.deadline;
    timeout(
        "sign",
        ms(deadline.sign_ms),
        Some("deadline.sign_ms"),
        "504 `timeout`, recorded as failed",
    );
    timeout(
        "wrap",
        ms(deadline.wrap_ms),
        Some("deadline.wrap_ms"),
        "504 `timeout`, recorded as failed",
    );
    timeout(
        "unwrap",
        ms(deadline.unwrap_ms),
        Some("deadline.unwrap_ms"),
        "504 `timeout`, recorded as failed",
    );
    timeout(
        "rotate",
        ms(deadline.rotate_ms),
        Some("deadline.rotate_ms"),
        "504 `timeout`; a change that the log has begun is finished all the same",
    );
    timeout(
        "attest",
        ms(deadline.attest_ms),
        Some("deadline.attest_ms"),
        "the gate `attestation` closes",
    );
    timeout(
        "backend_check",
        ms(deadline.check_ms),
        Some("deadline.check_ms"),
        "the gate `backend` closes, verify goes on by cache",
    );
    timeout(
        "append",
        ms(config.audit.append_deadline_ms),
        Some("audit.append_deadline_ms"),
        "counted; the queue's policy holds meanwhile",
    );
    timeout(
        "verify_cache_ttl",
        ms(config.verify.cache_ttl_ms),
        Some("verify.cache_ttl_ms"),
        "503 `verify_cache_expired` with `cache_age_ms`",
    );
    timeout(
        "http_header_read",
        serve.header_read,
        Some("http.read_timeout_ms"),
        "the connection is closed",
    );
    timeout(
        "http_body_read",
        serve.body_read,
        Some("http.read_timeout_ms"),
        "408 `body_timeout`",
    );
    timeout(
        "http_write",
        serve.write,
        Some("http.write_timeout_ms"),
        "the connection is closed",
    );
    timeout(
        "http_idle",
        serve.idle,
        Some("http.idle_timeout_ms"),
        "the connection is closed",
    );
    timeout(
        "http_close_grace",
        serve.close_grace,
        None,
        "open requests are cut and counted",
    );
    for lock in [
        nonces::NONCE_LOCK,
        ring::RING_LOCK,
        auditor::AUDIT_LOCK,
        engine::OP_IDS_LOCK,
        auditor::NOTE_LOCK,
        engine::VERIFY_LOCK,
        attester::EVIDENCE_LOCK,
        journal::JOURNAL_LOCK,
        journal::PUBLISH_LOCK,
    ] {
        topology.lock(lock);
    }
}

/// As the docs tell it.
#[derive(Debug)]
struct AuditPolicy {
    #[allow(dead_code, reason = "read by Debug, which writes the docs")]
    wait: Duration,
}

/// The service's page of generated docs.
pub fn page() -> (&'static str, String) {
    let telemetry = Telemetry::new(NAME, "");
    Metrics::new(&telemetry);
    api::refused_counters(&telemetry);
    (
        "ron-kms.md",
        declare(&Config::default())
            .0
            .markdown(&telemetry.declared(), &Config::keys()),
    )
}
