//! Requests as the pedant sends them, to the byte, and all of their answers.
//!
//! Answers carry what the node's own clock showed around them, because times in them must lie in between. Always: one
//! request after the other; what differs is told with what was asked, what was expected and what came.

use std::{fmt::Display, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::refusal::Refusal;
use crate::{
    kms::calls::WRONG, net::NodeId, ops::Op, timer, trace::Outcome, workload::Clients, world::World,
};

/// `Err` tells the first difference; nothing is asked after it.
pub type Verdict<T = ()> = Result<T, String>;

pub struct Wire<'a> {
    clients: &'a Clients,
    op: &'a Op,
    pub node: NodeId,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

pub struct Answer {
    asked: String,
    pub route: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
    pub json: Value,
    /// What the node's clock showed when the request left and when the answer was there, in milliseconds.
    pub began_ms: u64,
    pub ended_ms: u64,
}

const JSON: &str = "application/json";
/// Headers that mean something: one that is not expected must not be there.
const WATCHED: &[&str] = &["content-type", "cache-control", "location", "retry-after"];
const SHOWN: usize = 400;
const READY_TRIES: u32 = 250;
const READY_PAUSE: Duration = Duration::from_millis(20);

impl Ask {
    pub fn get(path: impl Into<String>) -> Ask {
        Ask {
            method: "GET",
            path: path.into(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub fn post(path: impl Into<String>, body: &Value) -> Ask {
        Ask::raw("POST", path, body.to_string())
    }

    pub fn raw(method: &'static str, path: impl Into<String>, body: impl Into<Bytes>) -> Ask {
        Ask {
            method,
            path: path.into(),
            headers: vec![("content-type", JSON.to_owned())],
            body: body.into(),
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Ask {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    pub fn bare(mut self) -> Ask {
        self.headers.clear();
        self
    }

    fn describe(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let shown: String = body.chars().take(SHOWN).collect();
        format!("{} {} {shown}", self.method, self.path)
    }
}

impl<'a> Wire<'a> {
    pub fn new(clients: &'a Clients, op: &'a Op) -> Wire<'a> {
        let node = clients.world().find(&op.on).expect("validated");
        Wire { clients, op, node }
    }

    pub fn world(&self) -> &World {
        self.clients.world()
    }

    /// What the node's wall clock shows.
    pub fn shown(&self) -> Duration {
        self.world().node_parts(self.node).clock.shown()
    }

    pub fn now_ms(&self) -> u64 {
        self.shown().as_millis() as u64
    }

    pub async fn wait_ms(&self, ms: u64) {
        timer::sleep(Duration::from_millis(ms)).await;
    }

    /// Waits until a node that was started says that it is ready.
    pub async fn ready(&self) -> Verdict {
        let to = self.clients.address(&self.op.on);
        for _ in 0..READY_TRIES {
            let asking = self
                .clients
                .exchange(to, "/readyz", "GET", READY_PAUSE * 10);
            if asking.await.0 == Outcome::Answered(200) {
                return Ok(());
            }
            timer::sleep(READY_PAUSE).await;
        }
        Err("the node was started again, and is not ready".to_owned())
    }

    /// A request that is right is one that everybody else must be served, too.
    pub async fn send(&self, ask: &Ask, right: bool) -> Verdict<Answer> {
        let to = self.clients.address(&self.op.on);
        let mut message = http::Request::builder()
            .method(ask.method)
            .uri(format!("http://{to}{}", ask.path));
        for (name, value) in &ask.headers {
            message = message.header(*name, value);
        }
        let message = message.body(ask.body.clone()).expect("a valid request");
        let name = if right { "kms.pedant" } else { WRONG };
        let timeout = Duration::from_millis(self.op.timeout_ms);
        let began_ms = self.now_ms();
        let named = (name, self.op.key);
        let (outcome, headers, body) = self.clients.ask_whole(named, message, timeout).await;
        let asked = ask.describe();
        let (Outcome::Answered(status), Some(bytes)) = (&outcome, body) else {
            return Err(format!("{asked}: an answer was expected, {outcome:?} came"));
        };
        let answer = Answer {
            route: route(&ask.path),
            asked,
            status: *status,
            headers,
            json: serde_json::from_slice(&bytes).unwrap_or_default(),
            bytes,
            began_ms,
            ended_ms: self.now_ms(),
        };
        answer.is_named(ask)?;
        Ok(answer)
    }
}

impl Answer {
    pub fn differs<T>(&self, expected: impl Display, came: impl Display) -> Verdict<T> {
        let asked = &self.asked;
        Err(format!("{asked}: {expected} was expected, {came} came"))
    }

    pub fn must(&self, holds: bool, expected: impl Display) -> Verdict {
        match holds {
            true => Ok(()),
            false => self.differs(expected, self.text()),
        }
    }

    /// Refused, with this document and nothing else in it.
    pub fn refused(&self, refusal: &Refusal) -> Verdict {
        let expected = refusal.document(&self.json);
        let code = refusal.code;
        self.is(refusal.status(), &expected, code)?;
        let words = expected["detail"].as_str().unwrap_or_default();
        self.must(!words.is_empty(), "a refusal in words")?;
        let mut headers = vec![("content-type", "application/problem+json")];
        headers.extend(refusal.passes().then_some(("retry-after", "1")));
        self.has(&headers)
    }

    /// Answered with this JSON, and these headers besides its type.
    pub fn done(&self, status: u16, expected: &Value, headers: &[(&str, &str)]) -> Verdict {
        self.is(status, expected, "success")?;
        let kind = [("content-type", JSON)];
        let headers: Vec<_> = kind.iter().chain(headers).copied().collect();
        self.has(&headers)
    }

    pub fn is(&self, status: u16, expected: &Value, what: &str) -> Verdict {
        if self.status != status {
            return self.differs(format_args!("{status} {what}"), self.text());
        }
        match difference("", expected, &self.json) {
            None => Ok(()),
            Some(found) => Err(format!("{} ({status} {what}): {found}", self.asked)),
        }
    }

    /// Exactly these of the headers that mean something.
    pub fn has(&self, expected: &[(&str, &str)]) -> Verdict {
        for name in WATCHED {
            let came = self
                .headers
                .get(*name)
                .map(|v| v.to_str().unwrap_or("?").to_owned());
            let wanted = expected.iter().find(|(known, _)| known == name);
            let wanted = wanted.map(|(_, value)| (*value).to_owned());
            if came != wanted {
                let (wanted, came) = (format!("{name} {wanted:?}"), format!("{came:?}"));
                return self.differs(wanted, came);
            }
        }
        Ok(())
    }

    /// A moment of this request, by the node's clock.
    pub fn at(&self, ms: &Value, what: &str) -> Verdict<u64> {
        let (from, to) = (self.began_ms, self.ended_ms);
        match ms.as_u64().filter(|ms| (from..=to).contains(ms)) {
            Some(ms) => Ok(ms),
            None => self.differs(format_args!("{what} in {from}..={to}"), ms),
        }
    }

    pub fn text(&self) -> String {
        let body = String::from_utf8_lossy(&self.bytes);
        let shown: String = body.chars().take(SHOWN).collect();
        format!("{} {shown}", self.status)
    }

    /// Every answer names its request, by the caller's own name if there was one.
    fn is_named(&self, ask: &Ask) -> Verdict {
        let came = self.headers.get("x-corr-id").and_then(|v| v.to_str().ok());
        let came = came.unwrap_or_default();
        let given = ask.headers.iter().find(|(name, _)| *name == "x-corr-id");
        let right = given.map_or(!came.is_empty(), |(_, value)| value == came);
        match right {
            true => Ok(()),
            false => self.differs("its correlation id", format_args!("{came:?}")),
        }
    }
}

/// The route that a path is one of, as the counts name it.
fn route(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let tiles = "/v1/kms/audit/tile/";
    if path.starts_with(tiles) {
        return format!("{tiles}{{*path}}");
    }
    let mut before = "";
    let parts = path.split('/').map(|part| {
        let named = match before {
            "keys" => "{kid}",
            "versions" => "{n}",
            "proof" => "{index}",
            _ => part,
        };
        before = part;
        named
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The first place where two documents differ.
pub fn difference(path: &str, expected: &Value, came: &Value) -> Option<String> {
    let at = |name: &str| format!("{path}/{name}");
    match (expected, came) {
        (Value::Object(expected), Value::Object(came)) => {
            let mut known = expected.iter();
            let within = known.find_map(|(name, value)| match came.get(name) {
                None => Some(format!("{} is missing, {value} was expected", at(name))),
                Some(came) => difference(&at(name), value, came),
            });
            let more = || {
                let extra = came.iter().find(|(name, _)| !expected.contains_key(*name));
                extra.map(|(name, value)| format!("{} was not expected: {value}", at(name)))
            };
            within.or_else(more)
        }
        (Value::Array(expected), Value::Array(came)) => {
            let mut pairs = expected.iter().zip(came).enumerate();
            let within = pairs.find_map(|(n, (a, b))| difference(&at(&n.to_string()), a, b));
            let (wanted, found) = (expected.len(), came.len());
            let count =
                || (wanted != found).then(|| format!("{path} has {found} of {wanted} elements"));
            within.or_else(count)
        }
        _ if expected == came => None,
        _ => Some(format!("{path} is {came}, {expected} was expected")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_difference_is_found_and_named_by_its_place() {
        let expected = json!({ "a": [1, { "b": null }], "c": "x" });
        assert_eq!(difference("", &expected, &expected), None);
        for (came, says) in [
            (json!({ "a": [1, { "b": 2 }], "c": "x" }), "/a/1/b is 2"),
            (json!({ "a": [1, {}], "c": "x" }), "/a/1/b is missing"),
            (json!({ "a": [1], "c": "x" }), "/a has 1 of 2"),
            (
                json!({ "a": [1, { "b": null }], "c": "x", "d": 1 }),
                "/d was not expected",
            ),
            (json!(null), " is null"),
        ] {
            let found = difference("", &expected, &came).unwrap_or_default();
            assert!(found.starts_with(says), "{found:?} should say {says:?}");
        }
    }
}
