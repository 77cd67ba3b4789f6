//! A run as a picture: one HTML file that needs nothing else, with everything that happened in it.
//!
//! The page draws on a canvas from data that is embedded as JSON. Always: every event of the run is in it,
//! and no name or text of a run can end the element that holds the data.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    detail::Detail,
    explain::{Explanation, place},
    plan::{Fault, Planned},
    run::RunResult,
    trace::{Event, Outcome, What},
};

const PAGE: &str = include_str!("timeline/page.html");
const STYLE: &str = include_str!("timeline/page.css");
const SCRIPT: &str = include_str!("timeline/page.js");

/// The page for a run, with what is known of why it fails. `replay` is the line that runs it again.
pub fn html(explanation: &Explanation, replay: &str) -> String {
    page(&data(explanation, replay))
}

fn page(data: &Value) -> String {
    // Inside a string `<` can be written otherwise; elsewhere JSON has none.
    let data = data.to_string().replace('<', "\\u003c");
    PAGE.replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
        .replace("/*DATA*/", &data)
}

fn data(explanation: &Explanation, replay: &str) -> Value {
    let run = &explanation.run;
    let empty = Detail::default();
    let detail = run.record.detail.as_deref().unwrap_or(&empty);
    let end = detail.events.last().map_or(0.0, |e| micros(e.at));
    let verdict = run.violation().map(|v| {
        // A world that broke down as a whole knows no time.
        let at = if v.at.is_zero() { end } else { micros(v.at) };
        json!({ "oracle": v.oracle, "at": at, "why": v.why })
    });
    let parts = explanation.parts.as_ref().map(|parts| {
        json!({
            "event": parts.failing_at,
            "without": place(&explanation.needs[parts.lacks].planned),
            "passing": parts.passing,
        })
    });
    json!({
        "title": format!("{} seed {}", run.scenario, run.seed),
        "replay": replay,
        "hash": run.record.hash,
        "end": run.record.simulated.as_nanos().max(1) as f64 / 1000.0,
        "verdict": verdict,
        "report": if run.violation().is_some() { explanation.text() } else { String::new() },
        "parts": parts,
        "nodes": detail.nodes,
        "events": events(detail),
        "messages": messages(detail),
        "requests": requests(detail).iter().map(Request::json).collect::<Vec<_>>(),
        "faults": faults(run, detail).iter().map(Band::json).collect::<Vec<_>>(),
        "down": down(detail, run),
        "ready": readiness(detail),
        "depths": depths(detail),
    })
}

pub(crate) fn micros(at: std::time::Duration) -> f64 {
    at.as_nanos() as f64 / 1000.0
}

/// The kind of an event, as the page filters by it.
pub(crate) fn kind(what: &What) -> &'static str {
    match what {
        What::Request { .. } => "request",
        What::Outcome { .. } => "outcome",
        What::Fault { .. } | What::Healed { .. } => "fault",
        What::Started { .. } | What::Died { .. } | What::Stopped { .. } | What::ShutdownAsked => {
            "life"
        }
        What::Ready { .. } | What::ReadyUnexplained { .. } => "ready",
        What::Probe { event, .. } => event,
        What::Phase { .. } => "phase",
    }
}

/// In columns: times, nodes (-1 is the world), kinds by number, texts.
fn events(detail: &Detail) -> Value {
    let mut names: BTreeMap<&'static str, usize> = BTreeMap::new();
    for event in &detail.events {
        names.entry(kind(&event.what)).or_default();
    }
    for (number, (_, slot)) in names.iter_mut().enumerate() {
        *slot = number;
    }
    let column = |of: &dyn Fn(&Event) -> Value| detail.events.iter().map(of).collect::<Vec<_>>();
    json!({
        "kinds": names.keys().collect::<Vec<_>>(),
        "t": column(&|e| json!(micros(e.at))),
        "n": column(&|e| json!(e.node.map_or(-1, i64::from))),
        "k": column(&|e| json!(names[kind(&e.what)])),
        "x": column(&|e| json!(e.what.to_string())),
    })
}

/// In rows: from, to, sent, arrives (-1: held back), bytes, kind.
fn messages(detail: &Detail) -> Vec<Value> {
    let row = detail.messages.iter().map(|m| {
        let arrives = m.arrives.map_or(-1.0, micros);
        json!([m.from, m.to, micros(m.sent), arrives, m.bytes, m.kind])
    });
    row.collect()
}

/// A request with its end, if it has one.
pub(crate) struct Request {
    pub number: u64,
    pub op: &'static str,
    pub key: u64,
    pub from: u32,
    pub to: Option<u32>,
    pub sent: f64,
    pub ended: Option<f64>,
    pub outcome: String,
}

impl Request {
    fn json(&self) -> Value {
        json!({
            "id": self.number, "op": self.op, "key": self.key, "n": self.from, "to": self.to,
            "t": self.sent, "e": self.ended, "outcome": self.outcome,
        })
    }
}

pub(crate) fn requests(detail: &Detail) -> Vec<Request> {
    let mut found: BTreeMap<u64, Request> = BTreeMap::new();
    for event in &detail.events {
        match &event.what {
            What::Request { request, op, key } => {
                let request = Request {
                    number: *request,
                    op,
                    key: *key,
                    from: event.node.unwrap_or(0),
                    to: detail.aims.get(request).copied(),
                    sent: micros(event.at),
                    ended: None,
                    outcome: "none".to_owned(),
                };
                found.insert(request.number, request);
            }
            What::Outcome { request, outcome } => {
                if let Some(request) = found.get_mut(request) {
                    request.ended = Some(micros(event.at));
                    request.outcome = match outcome {
                        Outcome::Answered(status) => status.to_string(),
                        Outcome::NotSent => "not sent".to_owned(),
                        Outcome::Unknown => "unknown".to_owned(),
                    };
                }
            }
            _ => {}
        }
    }
    found.into_values().collect()
}

/// A fault from its strike to its end.
pub(crate) struct Band {
    pub node: u32,
    pub text: String,
    pub from: f64,
    pub to: f64,
}

impl Band {
    fn json(&self) -> Value {
        json!({ "n": self.node, "x": self.text, "t": self.from, "e": self.to })
    }
}

/// Each fault ends when it is told to have healed, or else after the time that the plan gives it.
pub(crate) fn faults(run: &RunResult, detail: &Detail) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    let mut planned = run.plan.faults.iter().peekable();
    for event in &detail.events {
        let Some(node) = event.node else { continue };
        match &event.what {
            What::Fault { text } => {
                let from = micros(event.at);
                let of_plan = |p: &&Planned| p.fault.to_string() == *text;
                let lasts = planned.next_if(of_plan).map_or(0.0, |p| lasts_us(&p.fault));
                let (text, to) = (text.clone(), from + lasts);
                bands.push(Band {
                    node,
                    text,
                    from,
                    to,
                });
            }
            What::Healed { text } => {
                let open = bands
                    .iter_mut()
                    .rfind(|b| b.node == node && b.text == *text);
                if let Some(band) = open {
                    band.to = micros(event.at);
                }
            }
            _ => {}
        }
    }
    bands
}

/// What a fault says of its own duration, whatever its kind.
fn lasts_us(fault: &Fault) -> f64 {
    let fault = serde_json::to_value(fault).unwrap_or_default();
    let ms = ["for_ms", "down_ms", "restart_after_ms"]
        .iter()
        .find_map(|key| fault.get(key)?.as_f64());
    ms.unwrap_or(0.0) * 1000.0
}

/// When a node had no process: node, from, to.
fn down(detail: &Detail, run: &RunResult) -> Vec<Value> {
    let mut since: BTreeMap<u32, f64> = BTreeMap::new();
    let mut spans = Vec::new();
    for event in &detail.events {
        let Some(node) = event.node else { continue };
        match event.what {
            What::Died { .. } | What::Stopped { .. } => {
                since.insert(node, micros(event.at));
            }
            What::Started { .. } => {
                if let Some(from) = since.remove(&node) {
                    spans.push(json!([node, from, micros(event.at)]));
                }
            }
            _ => {}
        }
    }
    let end = micros(run.record.simulated);
    spans.extend(since.iter().map(|(node, from)| json!([node, from, end])));
    spans
}

/// Changes of readiness as the service itself tells them: node, time, ready, why.
fn readiness(detail: &Detail) -> Vec<Value> {
    let change = |event: &Event| match &event.what {
        What::Probe {
            event: "readiness",
            id,
            detail,
        } => Some(json!([event.node?, micros(event.at), *id == 1, detail])),
        What::Died { .. } | What::Stopped { .. } => {
            Some(json!([event.node?, micros(event.at), false, "no process"]))
        }
        _ => None,
    };
    detail.events.iter().filter_map(change).collect()
}

fn depths(detail: &Detail) -> Vec<Value> {
    let mut by_queue: BTreeMap<(u32, &str), (usize, Vec<Value>)> = BTreeMap::new();
    for depth in &detail.depths {
        let (cap, points) = by_queue.entry((depth.node, depth.queue)).or_default();
        *cap = depth.cap;
        points.push(json!([micros(depth.at), depth.depth]));
    }
    let row = |((node, queue), (cap, points))| json!({ "n": node, "queue": queue, "cap": cap, "points": points });
    by_queue.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
