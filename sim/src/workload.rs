//! Workloads: what clients do to a world. Most are drawn as operations ([`crate::ops`]) before it begins; some
//! only watch. Each request is noted when it is sent and once when its outcome is known, or known to be
//! unknowable.

mod kinds;

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use ron_core::{Env, seam::BoxFuture, seam::HttpError};
use serde::Deserialize;

use crate::{
    net::NodeId,
    ops::Draft,
    plan::matches,
    problems,
    scenario::{Span, WorkloadSpec},
    seed::{self, SimRng},
    services, timer,
    trace::{Outcome, What},
    world::World,
};

pub use kinds::{ANY_SERVICE, KEYED, PACED, burst, paced, with_keys};

/// A workload kind of the catalogue.
pub struct WorkloadKind {
    pub name: &'static str,
    /// The service it talks to; empty: any.
    pub service: &'static str,
    pub keys: &'static [&'static str],
    pub work: Work,
}

#[derive(Clone, Copy)]
pub enum Work {
    /// Drawn beforehand, as part of the plan.
    Operations(fn(&mut Draft<'_>)),
    /// Looks on and changes nothing: no part of the plan.
    Watch(fn(Job) -> BoxFuture<'static, ()>),
}

pub fn find(kind: &str) -> Option<&'static WorkloadKind> {
    services::workloads().find(|k| k.name == kind)
}

/// What all workloads of a run share.
#[derive(Clone)]
pub struct Clients {
    world: World,
    node: NodeId,
    env: Env,
    /// By node: where its service listens.
    addresses: Arc<BTreeMap<String, String>>,
    next_request: Arc<AtomicU64>,
    next_key: Arc<AtomicU64>,
    /// What the clients of each service have learnt, by the type that holds it.
    known: Arc<Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

/// A request of a service's own, with its method and body.
pub struct Asked<'a> {
    /// What it is called in the trace.
    pub op: &'static str,
    pub key: u64,
    pub method: &'static str,
    pub path: &'a str,
    pub body: Bytes,
    /// Headers besides the content types: who asks, and by what right.
    pub headers: &'a [(&'static str, &'a str)],
}

/// Keys of what is stored outside the plan, to see whether a node serves.
const FIRST_KEY_OUTSIDE: u64 = 1 << 40;

impl Clients {
    pub fn new(world: &World, node: NodeId) -> Self {
        let env = world.env(node).expect("the client node is up");
        let addresses = world.service_nodes().into_iter().map(|(id, port)| {
            let name = world.name(id);
            let address = format!("{name}:{port}");
            (name, address)
        });
        Clients {
            world: world.clone(),
            node,
            env,
            addresses: Arc::new(addresses.collect()),
            next_request: Arc::default(),
            next_key: Arc::new(AtomicU64::new(FIRST_KEY_OUTSIDE)),
            known: Arc::default(),
        }
    }

    /// The same clients, with none of the connections they have opened so far.
    pub fn with_new_connections(&self) -> Self {
        let env = self.world.second_env(self.node);
        Clients {
            env: env.expect("the client node is up"),
            ..self.clone()
        }
    }

    /// What the clients of a service have learnt in this run, in a type of the service's own.
    pub fn known<K: Any + Default + Send + Sync>(&self) -> Arc<K> {
        let mut known = self.known.lock().unwrap();
        let held = known
            .entry(TypeId::of::<K>())
            .or_insert_with(|| Arc::new(K::default()));
        held.clone().downcast().expect("held by its type")
    }

    /// The world they live in, to look at: what a token is worth depends on its clocks.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// One request to a node's service, noted with its outcome.
    pub async fn ask(&self, on: &str, asked: Asked<'_>, timeout: Duration) -> (Outcome, Bytes) {
        let to = &self.addresses[on];
        let mut message = http::Request::builder()
            .method(asked.method)
            .uri(format!("http://{to}{}", asked.path))
            .header("content-type", "application/json")
            .header("accept", "application/json");
        for (name, value) in asked.headers {
            message = message.header(*name, *value);
        }
        let message = message.body(asked.body).expect("a valid request");
        let (outcome, _, body) = self
            .ask_whole((asked.op, asked.key), message, timeout)
            .await;
        (outcome, body.unwrap_or_default())
    }

    /// The same for a request as it is, with all of its answer; there is no body if it broke off.
    pub async fn ask_whole(
        &self,
        (op, key): (&'static str, u64),
        message: http::Request<Bytes>,
        timeout: Duration,
    ) -> (Outcome, http::HeaderMap, Option<Bytes>) {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        self.note(What::Request { request, op, key });
        if let Some(to) = message.uri().authority() {
            self.world.recorder().aim(request, to.as_str());
        }
        let answer = self.carry(message, timeout).await;
        let (outcome, headers, body) = &answer;
        self.judge(outcome, headers, body.as_ref());
        let outcome = outcome.clone();
        self.note(What::Outcome { request, outcome });
        answer
    }

    /// Where a node's service listens.
    pub fn address(&self, on: &str) -> &str {
        &self.addresses[on]
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// A key that no operation of the plan has.
    pub fn fresh_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the oracles what a client saw.
    pub fn tell(&self, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        let detail = detail.to_string();
        self.note(What::Probe { event, id, detail });
    }

    /// One exchange, with the body read to its end so that the connection can be used again.
    pub async fn exchange(
        &self,
        to: &str,
        path: &str,
        method: &str,
        timeout: Duration,
    ) -> (Outcome, Bytes) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{to}{path}"))
            .body(Bytes::from_static(b"{}"))
            .expect("a valid request");
        self.send(request, timeout).await
    }

    async fn send(&self, request: http::Request<Bytes>, timeout: Duration) -> (Outcome, Bytes) {
        let (outcome, _, body) = self.carry(request, timeout).await;
        (outcome, body.unwrap_or_default())
    }

    fn judge(&self, outcome: &Outcome, headers: &http::HeaderMap, body: Option<&Bytes>) {
        if let (Outcome::Answered(status @ 400..), Some(body)) = (outcome, body)
            && let Some(fault) = problems::fault(*status, headers, body)
        {
            self.tell("client.unsound_problem", 0, format_args!("{fault}"));
        }
    }

    /// The body is `None` if it broke off.
    async fn carry(
        &self,
        request: http::Request<Bytes>,
        timeout: Duration,
    ) -> (Outcome, http::HeaderMap, Option<Bytes>) {
        let deadline = self.env.now() + timeout;
        match self.env.http(request, deadline).await {
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                let body = self.env.timeout_at(deadline, body.collect()).await;
                let body = body.ok().and_then(Result::ok).map(|b| b.to_bytes());
                (
                    Outcome::Answered(parts.status.as_u16()),
                    parts.headers,
                    body,
                )
            }
            Err(error) => (outcome_of(&error), http::HeaderMap::new(), None),
        }
    }

    fn note(&self, what: What) {
        self.world.recorder().record(Some(self.node), what);
    }
}

fn outcome_of(error: &HttpError) -> Outcome {
    if error.outcome_unknown() {
        Outcome::Unknown
    } else {
        Outcome::NotSent
    }
}

/// A workload that watches, drawn for a seed.
pub struct Job {
    clients: Clients,
    targets: Vec<(NodeId, String)>,
    drawn: Drawn,
}

/// What a seed drew for a workload.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub clients: u64,
    /// Of each client.
    pub rate_per_s: f64,
    pub at: Duration,
    pub for_: Duration,
    pub requests: Option<u64>,
    pub timeout: Duration,
    pub every: Duration,
    /// Ranges that each operation draws from by itself.
    pub bytes: Span,
    pub within_ms: Span,
    pub slots: Span,
}

/// The generator of a scenario's workload.
pub fn stream(seed: u64, index: usize, spec: &WorkloadSpec) -> SimRng {
    seed::stream(seed, &format!("workload {index} {}", spec.kind))
}

/// What the seed drew for a workload, as text.
pub fn describe(spec: &WorkloadSpec, index: usize, seed: u64) -> String {
    let kind = find(&spec.kind).expect("validated");
    Drawn::from(spec, &mut stream(seed, index, spec)).describe(kind)
}

/// The workload's own task, if it watches.
pub fn watcher(
    clients: &Clients,
    spec: &WorkloadSpec,
    index: usize,
    seed: u64,
) -> Option<BoxFuture<'static, ()>> {
    let Work::Watch(run) = find(&spec.kind).expect("validated").work else {
        return None;
    };
    let drawn = Drawn::from(spec, &mut stream(seed, index, spec));
    let on = spec.on.as_deref().unwrap_or("*");
    let targets = clients
        .world
        .service_nodes()
        .into_iter()
        .filter_map(|(id, port)| {
            let name = clients.world.name(id);
            matches(on, &name).then(|| (id, format!("{name}:{port}")))
        });
    Some(run(Job {
        clients: clients.clone(),
        targets: targets.collect(),
        drawn,
    }))
}

impl Drawn {
    pub fn from(spec: &WorkloadSpec, rng: &mut SimRng) -> Self {
        let or = |span: Option<Span>, default: f64| span.unwrap_or(Span::fixed(default));
        Drawn {
            clients: or(spec.clients, 1.0).draw_count(rng).max(1),
            rate_per_s: or(spec.rate_per_s, 20.0).draw(rng).max(0.001),
            at: spec.at_s.draw_secs(rng),
            for_: or(spec.for_s, 5.0).draw_secs(rng),
            requests: spec.requests.map(|span| span.draw_count(rng)),
            timeout: or(spec.timeout_ms, 2000.0).draw_millis(rng),
            every: or(spec.every_ms, 50.0)
                .draw_millis(rng)
                .max(Duration::from_millis(1)),
            bytes: or(spec.bytes, 2.0),
            within_ms: or(spec.within_ms, 500.0),
            slots: spec.slots.unwrap_or(Span { lo: 0.0, hi: 3.0 }),
        }
    }

    fn describe(&self, kind: &WorkloadKind) -> String {
        let mut text = kind.name.to_owned();
        let has = |key: &str| kind.keys.contains(&key);
        if has("clients") {
            let _ = write!(
                text,
                " clients={} rate={:.1}/s each for {:.1}s",
                self.clients,
                self.rate_per_s,
                self.for_.as_secs_f64()
            );
        }
        if let Some(requests) = self.requests {
            let _ = write!(text, " requests={requests}");
        }
        if has("every_ms") {
            let _ = write!(text, " every {:?}", self.every);
        }
        text
    }
}

#[derive(Deserialize)]
struct ReadyBody {
    ready: bool,
    #[serde(default)]
    missing: Vec<Missing>,
}

#[derive(Deserialize)]
struct Missing {
    gate: String,
    reason: String,
}

impl ReadyBody {
    /// The closed ones; there are none if it is ready.
    fn gates(&self) -> Vec<String> {
        self.missing.iter().map(|m| m.gate.clone()).collect()
    }
}

/// Asks `/readyz` as an orchestrator would and notes each change.
async fn poll_readiness(job: Job) {
    timer::sleep(job.drawn.at).await;
    let end = timer::now() + job.drawn.for_;
    let mut last: Vec<Option<Vec<String>>> = vec![None; job.targets.len()];
    while timer::now() < end {
        for (index, (node, to)) in job.targets.iter().enumerate() {
            let (outcome, body) = job
                .clients
                .exchange(to, "/readyz", "GET", Duration::from_millis(500))
                .await;
            let Outcome::Answered(status) = outcome else {
                if last[index].take().is_some() {
                    unknown(&job, *node);
                }
                continue;
            };
            let ready = status == 200;
            let parsed = serde_json::from_slice::<ReadyBody>(&body)
                .ok()
                .filter(|b| b.ready == ready);
            let recorder = job.clients.world.recorder();
            match parsed {
                Some(body) if last[index] != Some(body.gates()) => {
                    last[index] = Some(body.gates());
                    let missing = body
                        .missing
                        .iter()
                        .map(|m| format!("{} ({})", m.gate, m.reason));
                    recorder.record(
                        Some(*node),
                        What::Ready {
                            ready,
                            missing: missing.collect(),
                        },
                    );
                }
                Some(_) => {}
                None if status == 503 => {
                    let body = String::from_utf8_lossy(&body).into_owned();
                    recorder.record(Some(*node), What::ReadyUnexplained { body });
                }
                None => {}
            }
        }
        timer::sleep(job.drawn.every).await;
    }
    job.targets
        .iter()
        .for_each(|(node, _)| unknown(&job, *node));
}

/// Nobody knows any more whether it is ready.
fn unknown(job: &Job, node: NodeId) {
    let what = What::Probe {
        event: "ready.unknown",
        id: 0,
        detail: String::new(),
    };
    job.clients.world.recorder().record(Some(node), what);
}
