//! Workloads: what clients do to a world. Each request is noted when it is sent and once when its
//! outcome is known, or known to be unknowable.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use ron_core::{Env, seam::BoxFuture, seam::HttpError};
use serde::Deserialize;

use crate::{
    net::NodeId,
    plan::matches,
    scenario::{Span, WorkloadSpec},
    seed::{self, SimRng},
    timer,
    trace::{Outcome, What},
    world::World,
};

/// A workload kind of the catalogue.
pub struct WorkloadKind {
    pub name: &'static str,
    /// The service it talks to; empty: any.
    pub service: &'static str,
    pub keys: &'static [&'static str],
    run: fn(Job) -> BoxFuture<'static, ()>,
}

pub const WORKLOAD_KINDS: &[WorkloadKind] = &[
    WorkloadKind {
        name: "pool.put",
        service: "pool",
        keys: &[
            "on",
            "clients",
            "rate_per_s",
            "at_s",
            "for_s",
            "requests",
            "timeout_ms",
        ],
        run: |job| Box::pin(paced(job)),
    },
    WorkloadKind {
        name: "pool.burst",
        service: "pool",
        keys: &["on", "at_s", "requests", "timeout_ms"],
        run: |job| Box::pin(burst(job)),
    },
    WorkloadKind {
        name: "ready.poll",
        service: "",
        keys: &["on", "every_ms", "at_s", "for_s"],
        run: |job| Box::pin(poll_readiness(job)),
    },
];

pub fn find(kind: &str) -> Option<&'static WorkloadKind> {
    WORKLOAD_KINDS.iter().find(|k| k.name == kind)
}

/// What all workloads of a run share.
#[derive(Clone)]
pub struct Clients {
    world: World,
    node: NodeId,
    env: Env,
    next_request: Arc<AtomicU64>,
    forgetful: bool,
}

impl Clients {
    /// `forgetful` plants a client that never notes one of its outcomes.
    pub fn new(world: &World, node: NodeId, forgetful: bool) -> Self {
        let env = world.env(node).expect("the client node is up");
        Clients {
            world: world.clone(),
            node,
            env,
            next_request: Arc::default(),
            forgetful,
        }
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Stores a new item through the node and notes the outcome.
    pub async fn put(&self, to: &str, timeout: Duration) -> Outcome {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        self.note(What::Request {
            request,
            op: "pool.put",
            key: request,
        });
        self.world.recorder().aim(request, to);
        let outcome = self
            .exchange(to, &format!("/items/{request}"), "PUT", timeout)
            .await
            .0;
        if !(self.forgetful && request == 3) {
            self.note(What::Outcome {
                request,
                outcome: outcome.clone(),
            });
        }
        outcome
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
        let deadline = self.env.now() + timeout;
        match self.env.http(request, deadline).await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let body = self
                    .env
                    .timeout_at(deadline, answer.into_body().collect())
                    .await;
                let body = body
                    .ok()
                    .and_then(Result::ok)
                    .map(|b| b.to_bytes())
                    .unwrap_or_default();
                (Outcome::Answered(status), body)
            }
            Err(error) => (outcome_of(&error), Bytes::new()),
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

/// One workload of a scenario, drawn for a seed.
pub struct Job {
    clients: Clients,
    targets: Vec<(NodeId, String)>,
    drawn: Drawn,
    rng: SimRng,
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    clients: u64,
    rate_per_s: f64,
    at: Duration,
    for_: Duration,
    requests: Option<u64>,
    timeout: Duration,
    every: Duration,
}

/// Starts a scenario's workload; the returned text tells what the seed drew.
pub fn start(
    clients: &Clients,
    spec: &WorkloadSpec,
    index: usize,
    seed: u64,
) -> (String, impl Future<Output = ()> + use<>) {
    let kind = find(&spec.kind).expect("validated");
    let mut rng = seed::stream(seed, &format!("workload {index} {}", spec.kind));
    let drawn = Drawn::from(spec, &mut rng);
    let on = spec.on.as_deref().unwrap_or("*");
    let targets = clients
        .world
        .service_nodes()
        .into_iter()
        .filter_map(|(id, port)| {
            let name = clients.world.name(id);
            matches(on, &name).then(|| (id, format!("{name}:{port}")))
        });
    let job = Job {
        clients: clients.clone(),
        targets: targets.collect(),
        drawn,
        rng,
    };
    (drawn.describe(kind), (kind.run)(job))
}

impl Drawn {
    fn from(spec: &WorkloadSpec, rng: &mut SimRng) -> Self {
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

/// Every client sends one request after the other, at its own jittered pace.
async fn paced(job: Job) {
    timer::sleep(job.drawn.at).await;
    let left = Arc::new(AtomicI64::new(
        job.drawn.requests.map_or(i64::MAX, |n| n as i64),
    ));
    let end = timer::now() + job.drawn.for_;
    let mut rng = job.rng;
    let running: Vec<_> = (0..job.drawn.clients)
        .map(|client| {
            let mut rng = seed::stream(seed::pick(&mut rng, 0, u64::MAX), "client");
            let (clients, left, drawn) = (job.clients.clone(), left.clone(), job.drawn);
            let targets = job.targets.clone();
            madsim::task::spawn(async move {
                let mut next = timer::now();
                let pace = Duration::from_secs_f64(1.0 / drawn.rate_per_s);
                for turn in client as usize.. {
                    next = timer::now()
                        .max(next + seed::pick_duration(&mut rng, (pace / 2, pace * 3 / 2)));
                    timer::sleep_until(next).await;
                    if timer::now() >= end || left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                        return;
                    }
                    let (_, to) = &targets[turn % targets.len()];
                    clients.put(to, drawn.timeout).await;
                }
            })
        })
        .collect();
    for client in running {
        let _ = client.await;
    }
}

/// All requests at once: a queue that was never full proves nothing about being full.
async fn burst(job: Job) {
    timer::sleep(job.drawn.at).await;
    let count = job.drawn.requests.unwrap_or(100) as usize;
    let running: Vec<_> = (0..count)
        .map(|n| {
            let (clients, timeout) = (job.clients.clone(), job.drawn.timeout);
            let to = job.targets[n % job.targets.len()].1.clone();
            madsim::task::spawn(async move { clients.put(&to, timeout).await })
        })
        .collect();
    for request in running {
        let _ = request.await;
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

/// Asks `/readyz` as an orchestrator would and notes each change.
async fn poll_readiness(job: Job) {
    timer::sleep(job.drawn.at).await;
    let end = timer::now() + job.drawn.for_;
    let mut last: Vec<Option<bool>> = vec![None; job.targets.len()];
    while timer::now() < end {
        for (index, (node, to)) in job.targets.iter().enumerate() {
            let (outcome, body) = job
                .clients
                .exchange(to, "/readyz", "GET", Duration::from_millis(500))
                .await;
            let Outcome::Answered(status) = outcome else {
                last[index] = None;
                continue;
            };
            let ready = status == 200;
            let parsed = serde_json::from_slice::<ReadyBody>(&body)
                .ok()
                .filter(|b| b.ready == ready);
            let recorder = job.clients.world.recorder();
            match parsed {
                Some(body) if last[index] != Some(ready) => {
                    last[index] = Some(ready);
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
}
