//! What the service must have counted since it was started, since nobody else asks it.
//!
//! Compared with its page of metrics and its status at moments of rest. Always: in a calm world whatever counts trouble
//! is zero.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Session,
    wire::{Answer, Ask, Verdict, difference},
};

#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By action and code.
    operations: BTreeMap<(String, String), u64>,
    /// By route and code.
    refused: BTreeMap<(String, String), u64>,
    pub missing_scope: u64,
    /// Operations that took a place in the sign queue.
    pub queued: u64,
    /// Events that were put into the audit queue.
    pub told: u64,
}

/// Metrics of trouble, whatever their labels.
const TROUBLE: &[&str] = &[
    "audit_dropped_total",
    "backoff_retries_total",
    "bus_lagged_total",
    "busy_rejections_total",
    "deadline_header_malformed_total",
    "io_errors_total",
    "io_timeouts_total",
    "kms_audit_integrity_failed_total",
    "kms_keys_full",
    "not_ready_total",
    "offload_abandoned_total",
    "ops_actions_total",
    "queue_depth",
    "queue_dropped_total",
    "quota_reject_total",
    "service_restarts_total",
    "tasks_aborted_total",
    "tasks_canceled_total",
    "verify_cache_age_ms",
    "verify_cache_expired_total",
];

/// A plain event is in the queue for so long at most.
const REST_MS: u64 = 80;

impl Counts {
    pub fn operation(&mut self, action: &str, code: &str) {
        let labels = (action.to_owned(), code.to_owned());
        *self.operations.entry(labels).or_default() += 1;
    }

    pub fn refuse(&mut self, route: &str, code: &str) {
        let labels = (route.to_owned(), code.to_owned());
        *self.refused.entry(labels).or_default() += 1;
    }

    /// Every line that the page must have, and that is not zero.
    fn lines(&self) -> BTreeMap<String, u64> {
        let operations = self.operations.iter().map(|((action, code), n)| {
            let line = format!("kms_operations_total{{action=\"{action}\",code=\"{code}\"}}");
            (line, *n)
        });
        let refused = self.refused.iter();
        let refused = refused.map(|((route, code), n)| {
            let line = format!("kms_refused_total{{code=\"{code}\",route=\"{route}\"}}");
            (line, *n)
        });
        let scopes = "auth_failures_total{reason=\"missing_scope\"}".to_owned();
        let all = operations.chain(refused);
        all.chain(
            [(scopes, self.missing_scope)]
                .into_iter()
                .filter(|(_, n)| *n > 0),
        )
        .collect()
    }
}

/// The page, the status and the other doors of an operator, at rest.
pub async fn compare(s: &mut Session<'_>) -> Verdict {
    s.wire.wait_ms(REST_MS).await;
    metrics(s).await?;
    status(s).await?;
    let ready = s.wire.send(&Ask::get("/readyz"), true).await?;
    ready.done(
        200,
        &json!({ "ready": true, "missing": [], "degraded": [] }),
        &[],
    )?;
    let healthy = s.wire.send(&Ask::get("/healthz"), true).await?;
    healthy.must(healthy.status == 200 && healthy.bytes == "ok\n", "ok")?;
    let version = s.wire.send(&Ask::get("/version"), true).await?;
    let known = json!({ "service": "ron-kms", "version": env!("CARGO_PKG_VERSION") });
    version.done(200, &known, &[])
}

async fn metrics(s: &Session<'_>) -> Verdict {
    let answer = s.wire.send(&Ask::get("/metrics"), true).await?;
    answer.must(answer.status == 200, "200")?;
    let page = String::from_utf8_lossy(&answer.bytes).into_owned();
    let read = page.lines().filter(|line| !line.starts_with('#'));
    let read = read.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
    });
    let read: BTreeMap<String, u64> = read.collect();
    let family = |line: &str| line.split('{').next().unwrap_or_default().to_owned();
    for (line, value) in &read {
        if TROUBLE.contains(&family(line).as_str()) && *value != 0 {
            return answer.differs(format_args!("{line} 0"), value);
        }
    }
    let counted = [
        "kms_operations_total",
        "kms_refused_total",
        "auth_failures_total",
    ];
    let came = read.iter().filter(|(line, value)| {
        let family = family(line);
        **value > 0 && counted.contains(&family.as_str())
    });
    let came: BTreeMap<String, u64> = came.map(|(line, value)| (line.clone(), *value)).collect();
    let (expected, came) = (json!(s.it.counts.lines()), json!(came));
    match difference("metrics", &expected, &came) {
        None => Ok(()),
        Some(found) => Err(format!("GET /metrics: {found}")),
    }
}

async fn status(s: &Session<'_>) -> Verdict {
    let answer = s.wire.send(&Ask::get("/api/v1/status"), true).await?;
    let came = &answer.json;
    let expected = json!({
        "service": "ron-kms",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": came["uptime_ms"],
        "state": "running",
        "readiness": { "ready": true, "missing": [], "degraded": [] },
        "queues": queues(s, came),
        "tasks": tasks(s),
    });
    answer.done(200, &expected, &[])?;
    at_rest(&answer)
}

fn queues(s: &Session<'_>, came: &Value) -> Value {
    let (settings, counts) = (&s.it.settings, &s.it.counts);
    let queue = |at: usize, name: &str, cap: u64, count: u64| {
        json!({
            "name": name, "cap": cap, "depth": 0, "high_water": came["queues"][at]["high_water"],
            "offered": count, "accepted": count, "refused": 0, "delivered": count, "dropped": 0,
        })
    };
    json!([
        queue(0, "sign", settings.queue_cap, counts.queued),
        queue(1, "audit", settings.audit_cap, counts.told),
    ])
}

fn tasks(s: &Session<'_>) -> Value {
    let kinds = [
        "appender",
        "attester",
        "checkpointer",
        "config_watch",
        "keeper",
        "listener",
        "signer",
    ];
    let tasks = kinds.map(|kind| {
        let alive = match kind {
            "signer" => s.it.settings.signers,
            _ => 1,
        };
        let counts = json!({
            "alive": alive, "spawned": alive, "restarted": 0, "panicked": 0, "canceled": 0, "aborted": 0,
        });
        (kind, counts)
    });
    json!(BTreeMap::from(tasks))
}

/// One client that waits for its answers never has two things in the sign queue.
fn at_rest(answer: &Answer) -> Verdict {
    let most = answer.json["queues"][0]["high_water"].as_u64();
    answer.must(
        most.is_some_and(|most| most <= 1),
        "one operation at a time",
    )
}
