//! A run in the Chrome trace format, which Perfetto and `chrome://tracing` open.
//!
//! Nodes are processes. Requests are asynchronous slices, faults slices on a track of their own, queue depth
//! and readiness counters, everything else an instant. Times are microseconds of simulated time.

use serde_json::{Value, json};

use crate::{
    detail::Detail,
    run::RunResult,
    timeline::{faults, kind, micros, requests},
    trace::What,
};

/// Tracks of a node.
const EVENTS: u32 = 1;
const FAULTS: u32 = 2;
const WIRE: u32 = 3;

pub fn trace(run: &RunResult) -> Value {
    let empty = Detail::default();
    let detail = run.record.detail.as_deref().unwrap_or(&empty);
    let mut out = names(detail);
    for event in &detail.events {
        let pid = event.node.map_or(0, |n| n + 1);
        if !matches!(event.what, What::Request { .. } | What::Outcome { .. }) {
            out.push(json!({
                "ph": "i", "s": "t", "pid": pid, "tid": EVENTS, "ts": micros(event.at),
                "name": event.what.to_string(), "cat": kind(&event.what),
            }));
        }
        if let What::Probe {
            event: "readiness",
            id,
            ..
        } = &event.what
        {
            out.push(json!({
                "ph": "C", "pid": pid, "ts": micros(event.at), "name": "ready", "args": { "ready": id },
            }));
        }
    }
    for request in requests(detail) {
        let name = format!("{} {}", request.op, request.key);
        let part = |ph: &str, ts: f64| {
            json!({
                "ph": ph, "cat": "request", "id": request.number, "pid": request.from + 1, "tid": EVENTS, "ts": ts,
                "name": name, "args": { "outcome": request.outcome, "to": request.to },
            })
        };
        out.push(part("b", request.sent));
        out.push(part(
            "e",
            request.ended.unwrap_or(micros(run.record.simulated)),
        ));
    }
    for fault in faults(run, detail) {
        out.push(json!({
            "ph": "X", "pid": fault.node + 1, "tid": FAULTS, "ts": fault.from, "dur": (fault.to - fault.from).max(1.0),
            "name": fault.text, "cat": "fault",
        }));
    }
    messages(detail, &mut out);
    for depth in &detail.depths {
        out.push(json!({
            "ph": "C", "pid": depth.node + 1, "ts": micros(depth.at), "name": format!("queue {}", depth.queue),
            "args": { "depth": depth.depth },
        }));
    }
    if let Some(violation) = run.violation() {
        out.push(json!({
            "ph": "i", "s": "g", "pid": 0, "tid": EVENTS, "ts": micros(violation.at),
            "name": format!("FAILED {}", violation.oracle), "cat": "verdict", "args": { "why": violation.why },
        }));
    }
    json!({
        "displayTimeUnit": "ms",
        "otherData": { "scenario": run.scenario, "seed": run.seed, "trace": run.record.hash },
        "traceEvents": out,
    })
}

fn names(detail: &Detail) -> Vec<Value> {
    let mut out = Vec::new();
    let mut name = |pid: u32, what: &str, tid: u32, name: &str| {
        out.push(
            json!({ "ph": "M", "pid": pid, "tid": tid, "name": what, "args": { "name": name } }),
        );
    };
    name(0, "process_name", 0, "world");
    for (pid, node) in (1..).zip(&detail.nodes) {
        name(pid, "process_name", 0, node);
        name(pid, "thread_name", EVENTS, "events");
        name(pid, "thread_name", FAULTS, "faults");
        name(pid, "thread_name", WIRE, "wire");
    }
    out
}

/// Each message as a point at both ends with an arrow between them.
fn messages(detail: &Detail, out: &mut Vec<Value>) {
    for (id, message) in detail.messages.iter().enumerate() {
        let Some(arrives) = message.arrives else {
            continue;
        };
        let name = format!("{} {} B", message.kind, message.bytes);
        let ends = [
            (message.from, micros(message.sent), "s"),
            (message.to, micros(arrives), "f"),
        ];
        for (node, ts, flow) in ends {
            let (pid, tid) = (node + 1, WIRE);
            out.push(json!({ "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": 1, "name": name, "cat": "message" }));
            out.push(json!({
                "ph": flow, "bp": "e", "id": id, "pid": pid, "tid": tid, "ts": ts, "name": "message", "cat": "message",
            }));
        }
    }
}
