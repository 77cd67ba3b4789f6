//! What clients ask of svc-dht over its local API, and what they remember of the answers.
//!
//! A client knows what it has put and what was acknowledged; after the heal every acknowledged record that has not
//! expired is asked for again. What a client learns is told to the oracles.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::Value;

use crate::{
    calls::{CallKind, call},
    ops::Op,
    trace::Outcome,
    workload::{Asked, Clients},
};

pub const CALLS: &[CallKind] = &[
    call("dht.put", "puts a value named `arg`", |c, op| {
        Box::pin(put(c, op, None))
    }),
    call(
        "dht.put_brief",
        "puts a value named `arg` that lives for 8 s",
        |c, op| Box::pin(put(c, op, Some(BRIEF_MS))),
    ),
    call(
        "dht.get",
        "gets one of the values that were acknowledged",
        |c, op| Box::pin(get(c, op)),
    ),
    call(
        "dht.provide",
        "announces the node as a provider of content `arg`",
        |c, op| Box::pin(provide(c, op)),
    ),
    call(
        "dht.providers",
        "asks who provides content `arg`",
        |c, op| Box::pin(providers(c, op)),
    ),
    call(
        "dht.closest",
        "asks for the nodes that are closest to a key of its own",
        |c, op| Box::pin(closest(c, op)),
    ),
];

/// The life of a value that is to expire within the run.
const BRIEF_MS: u64 = 8_000;
/// A record that ends so soon need not be found any more: clocks differ.
const ENDS_SOON_MS: u64 = 3_000;

/// What the clients of a run know of the network's records.
#[derive(Default)]
pub struct Known {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Acknowledged values by key.
    values: BTreeMap<String, AckedValue>,
    /// Acknowledged providers by key: whose record, and when it ends.
    providers: BTreeMap<String, BTreeMap<String, u64>>,
    /// Which node is called by which name, as far as it was learnt.
    ids: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct AckedValue {
    seq: u64,
    ends_ms: u64,
}

impl Known {
    fn put(&self, key: &str, acked: AckedValue) {
        let mut inner = self.inner.lock().unwrap();
        let known = inner
            .values
            .entry(key.to_owned())
            .or_insert_with(|| acked.clone());
        if acked.seq > known.seq {
            *known = acked;
        }
    }

    fn nth_value(&self, n: u64) -> Option<String> {
        let inner = self.inner.lock().unwrap();
        let len = inner.values.len();
        let mut keys = inner.values.keys();
        keys.nth((n as usize).checked_rem(len)?).cloned()
    }

    fn values(&self) -> Vec<(String, AckedValue)> {
        let inner = self.inner.lock().unwrap();
        let values = inner.values.iter();
        values.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn all_providers(&self) -> Vec<(String, BTreeMap<String, u64>)> {
        let inner = self.inner.lock().unwrap();
        let providers = inner.providers.iter();
        providers.map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

struct Client<'a> {
    clients: &'a Clients,
    on: &'a str,
    key: u64,
    timeout: Duration,
}

impl<'a> Client<'a> {
    fn of(clients: &'a Clients, op: &'a Op) -> Client<'a> {
        Client {
            clients,
            on: &op.on,
            key: op.key,
            timeout: Duration::from_millis(op.timeout_ms),
        }
    }

    async fn send(
        &self,
        op: &'static str,
        method: &'static str,
        path: &str,
        body: Bytes,
    ) -> (Outcome, Bytes) {
        let asked = Asked {
            op,
            key: self.key,
            method,
            path,
            body,
            headers: &[],
        };
        self.clients.ask(self.on, asked, self.timeout).await
    }

    /// `None` unless the answer is a success.
    async fn ask(
        &self,
        op: &'static str,
        method: &'static str,
        path: &str,
        body: Bytes,
    ) -> Option<Value> {
        match self.send(op, method, path, body).await {
            (Outcome::Answered(200), bytes) => serde_json::from_slice(&bytes).ok(),
            _ => None,
        }
    }

    fn known(&self) -> Arc<Known> {
        self.clients.known()
    }

    /// The id of the node it talks to.
    async fn id(&self) -> Option<String> {
        let known = self.known().inner.lock().unwrap().ids.get(self.on).cloned();
        if known.is_some() {
            return known;
        }
        let path = "/v1/dht/routing";
        let told = self.ask("dht.routing", "GET", path, Bytes::new()).await?;
        let id = told["id"].as_str()?.to_owned();
        let known = self.known();
        let mut inner = known.inner.lock().unwrap();
        inner.ids.insert(self.on.to_owned(), id.clone());
        Some(id)
    }
}

/// Whether the node stores, for `serves`.
pub async fn serves(clients: &Clients, on: &str, timeout: Duration) -> (Outcome, Bytes) {
    let key = clients.fresh_key();
    let client = Client {
        clients,
        on,
        key,
        timeout,
    };
    let body = Bytes::from(format!("{on} {key}"));
    clients.tell("client.dht_putting", key, format_args!("{on} {key}"));
    client
        .send("dht.put", "PUT", "/v1/dht/values/serves", body)
        .await
}

/// Whether what was acknowledged is found from this node, for `finds`: its share of all records.
pub async fn finds(
    clients: &Clients,
    on: &str,
    share: (usize, usize),
    timeout: Duration,
) -> (Outcome, Bytes) {
    let found = (Outcome::Answered(200), Bytes::new());
    let client = Client {
        clients,
        on,
        key: clients.fresh_key(),
        timeout,
    };
    let (index, all) = share;
    let soon = clients.env().wall_ms() + ENDS_SOON_MS;
    let mine = |n: usize| n % all == index;
    for (n, (key, acked)) in client.known().values().into_iter().enumerate() {
        if !mine(n) || acked.ends_ms < soon {
            continue;
        }
        let path = format!("/v1/dht/values/{key}");
        let answer = client.send("dht.get", "GET", &path, Bytes::new()).await;
        let Some(told) = answered(&answer) else {
            return said(&answer, &format!("value {key}"));
        };
        tell_value(clients, &told);
        if told["seq"].as_u64() < Some(acked.seq) {
            let why = format!("value {key} is older than {}: {told}", acked.seq);
            return (Outcome::Answered(404), Bytes::from(why));
        }
    }
    for (n, (key, owners)) in client.known().all_providers().into_iter().enumerate() {
        if !mine(n) {
            continue;
        }
        let path = format!("/v1/dht/providers/{key}");
        let answer = client
            .send("dht.providers", "GET", &path, Bytes::new())
            .await;
        let Some(told) = answered(&answer) else {
            return said(&answer, &format!("providers {key}"));
        };
        let ids = provider_ids(&told);
        let missing = owners
            .iter()
            .find(|(id, ends)| **ends >= soon && !ids.contains(*id));
        if let Some((id, _)) = missing {
            let why = format!(
                "provider {id} of {key} is not among {} that were told",
                ids.len()
            );
            return (Outcome::Answered(404), Bytes::from(why));
        }
    }
    found
}

fn answered(answer: &(Outcome, Bytes)) -> Option<Value> {
    match answer {
        (Outcome::Answered(200), bytes) => serde_json::from_slice(bytes).ok(),
        _ => None,
    }
}

fn said(answer: &(Outcome, Bytes), what: &str) -> (Outcome, Bytes) {
    let text = String::from_utf8_lossy(&answer.1);
    let outcome = match &answer.0 {
        Outcome::Answered(200) => Outcome::Unknown,
        other => other.clone(),
    };
    (outcome, Bytes::from(format!("{what}: {text}")))
}

async fn put(clients: Clients, op: Op, ttl_ms: Option<u64>) {
    let client = Client::of(&clients, &op);
    let life = ttl_ms.map_or_else(String::new, |ms| format!("?ttl_ms={ms}"));
    let path = format!("/v1/dht/values/slot-{}{life}", op.arg);
    let value = format!("{} {}", op.on, op.key);
    // It may take effect from now on, whatever is answered.
    clients.tell("client.dht_putting", op.key, format_args!("{value}"));
    let answer = client.ask("dht.put", "PUT", &path, Bytes::from(value));
    let Some(told) = answer.await else { return };
    let key = told["key"].as_str().unwrap_or_default();
    let acked = AckedValue {
        seq: told["seq"].as_u64().unwrap_or(0),
        ends_ms: told["expires_ms"].as_u64().unwrap_or(0),
    };
    let replicas = told["replicas"].as_u64().unwrap_or(0);
    clients.tell(
        "client.dht_put",
        acked.seq,
        format_args!("{key} value {} {replicas} -", acked.ends_ms),
    );
    client.known().put(key, acked);
}

async fn get(clients: Clients, op: Op) {
    let client = Client::of(&clients, &op);
    let Some(key) = client.known().nth_value(op.key) else {
        return closest(clients.clone(), op).await;
    };
    let path = format!("/v1/dht/values/{key}");
    let answer = client.send("dht.get", "GET", &path, Bytes::new()).await;
    match answered(&answer) {
        Some(told) => tell_value(&clients, &told),
        None => {
            let what = match answer.0 {
                Outcome::Answered(status) => status,
                _ => 0,
            };
            clients.tell("client.dht_not_got", what.into(), format_args!("{key}"));
        }
    }
}

/// Of a value that was found: its number, its key and what it says.
fn tell_value(clients: &Clients, told: &Value) {
    let value = told["value"].as_str().unwrap_or_default();
    let value = STANDARD.decode(value).unwrap_or_default();
    let value = String::from_utf8_lossy(&value).into_owned();
    let seq = told["seq"].as_u64().unwrap_or(0);
    let key = told["key"].as_str().unwrap_or_default();
    clients.tell("client.dht_got", seq, format_args!("{key} {value}"));
}

/// The key of a piece of content.
pub(super) fn content_key(n: u64) -> String {
    blake3::hash(&n.to_be_bytes()).to_hex().to_string()
}

async fn provide(clients: Clients, op: Op) {
    let client = Client::of(&clients, &op);
    let Some(id) = client.id().await else { return };
    let key = content_key(op.arg);
    clients.tell("client.dht_providing", op.arg, format_args!("{key} {id}"));
    let path = format!("/v1/dht/providers/{key}");
    let answer = client.ask("dht.provide", "POST", &path, Bytes::new());
    let Some(told) = answer.await else { return };
    let ends_ms = told["expires_ms"].as_u64().unwrap_or(0);
    let seq = told["seq"].as_u64().unwrap_or(0);
    let replicas = told["replicas"].as_u64().unwrap_or(0);
    clients.tell(
        "client.dht_put",
        seq,
        format_args!("{key} provider {ends_ms} {replicas} {id}"),
    );
    let known = client.known();
    let mut inner = known.inner.lock().unwrap();
    let owners = inner.providers.entry(key).or_default();
    owners.insert(id, ends_ms);
}

async fn providers(clients: Clients, op: Op) {
    let client = Client::of(&clients, &op);
    let key = content_key(op.arg);
    let path = format!("/v1/dht/providers/{key}");
    let answer = client.ask("dht.providers", "GET", &path, Bytes::new());
    let Some(told) = answer.await else { return };
    for id in provider_ids(&told) {
        clients.tell("client.dht_provider", op.arg, format_args!("{key} {id}"));
    }
}

fn provider_ids(told: &Value) -> BTreeSet<String> {
    let all = told["providers"].as_array();
    let ids = all.into_iter().flatten().filter_map(|p| p["id"].as_str());
    ids.map(str::to_owned).collect()
}

async fn closest(clients: Clients, op: Op) {
    let client = Client::of(&clients, &op);
    let key = content_key(op.key);
    let path = format!("/v1/dht/closest/{key}");
    let answer = client.ask("dht.closest", "GET", &path, Bytes::new());
    let Some(told) = answer.await else { return };
    let ids = told["closest"].as_array().map_or(0, Vec::len);
    clients.tell(
        "client.dht_closest",
        ids as u64,
        format_args!("{}", told["hops"]),
    );
}
