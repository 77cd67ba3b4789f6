//! What a process tells those who run it, in every state it can be in, and what it lets them do.
//!
//! Gates, queues, tasks and callers are drawn; the answers, field by field, and every count follow from a plain list of
//! what was drawn.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, response::Response};
use http::StatusCode;
use ron_core::{
    Queue, RejectNew,
    admission::{Admission, AdmissionConfig},
    bus::Bus,
    front::front,
    ops::{Ops, router},
    readiness::{Gate, Readiness},
    serve::Peer,
    telemetry::Telemetry,
    view::{TaskCounts, TaskView},
};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    Bench, Verdict, agree, demand,
    ops_parts::{Caller, Deeds, Tasks, Whole, broken},
    problem::Told,
    readiness::{GATES, REASONS},
};
use crate::metrics_page;

const PATHS: [&str; 8] = [
    "/healthz",
    "/readyz",
    "/metrics",
    "/version",
    "/api/v1/status",
    "/api/v1/reload",
    "/api/v1/shutdown",
    "/none",
];

pub async fn drill(bench: &mut Bench) -> Verdict {
    let mut house = House::draw(bench);
    for _ in 0..30 {
        house.change(bench);
        if bench.one_in(6) {
            let span = bench.ms(0, 3);
            bench.env.sleep(span).await;
        }
        let (method, path) = (bench.one_of(&["GET", "POST"]), bench.one_of(&PATHS));
        let caller = Caller::draw(bench);
        let answered = house.ask(bench, method, path, &caller).await;
        answered.map_err(|why| format!("{method} {path} by {caller:?}: {why}"))?;
    }
    house.counted()
}

struct House {
    router: Router,
    telemetry: Telemetry,
    readiness: Readiness,
    handles: Vec<(&'static str, Gate)>,
    draining: Arc<AtomicBool>,
    queue: Queue<u64, RejectNew>,
    tasks: Tasks,
    deeds: Deeds,
    started: Instant,
    /// Whether there is an operator's door at all, and whether anybody may come to it without a name.
    reload: bool,
    shutdown: bool,
    open: bool,
    // What is known.
    gates: BTreeMap<&'static str, Option<&'static str>>,
    jobs: BTreeMap<&'static str, u64>,
    counted: BTreeMap<String, u64>,
}

impl House {
    fn draw(bench: &mut Bench) -> Self {
        let env = bench.env.clone();
        let telemetry = Telemetry::new("drilled", "");
        let cap = bench.pick(1, 3);
        let queue = Queue::new("jobs", cap as usize, RejectNew);
        let tasks = Tasks::default();
        telemetry.watch_queue(Arc::new(queue.clone()));
        telemetry.watch_tasks(Arc::new(tasks.clone()));
        let readiness = Readiness::new(env.clone(), Bus::new());
        let (draining, deeds): (Arc<AtomicBool>, Deeds) = Default::default();
        let (reload, shutdown) = (bench.one_in(2), bench.one_in(2));
        let open = bench.one_in(4);
        let absent = bench.one_in(5);
        let admin = (!absent).then(|| deeds.admin(&telemetry, open, reload, shutdown));
        let (asked, drains) = (readiness.clone(), draining.clone());
        let ops = Ops::new(
            &env,
            &telemetry,
            "1.2.3",
            move || asked.status(),
            move || drains.load(Relaxed),
            admin,
        );
        let limits = AdmissionConfig::default().limits();
        // Whatever the API refuses, these answer.
        let admission = Admission::new(&env, &telemetry, limits).draining(|| true);
        House {
            router: front(&env, Router::new(), &Arc::new(admission), router(ops)),
            telemetry,
            readiness,
            handles: Vec::new(),
            draining,
            queue,
            tasks,
            deeds,
            started: env.now(),
            reload: reload && !absent,
            shutdown: shutdown && !absent,
            open,
            gates: BTreeMap::new(),
            jobs: BTreeMap::from([("cap", cap)]),
            counted: BTreeMap::new(),
        }
    }

    // -------------------------------------------------------------------------------- what changes

    fn change(&mut self, bench: &mut Bench) {
        match bench.pick(0, 7) {
            0 => {
                let name = bench.one_of(&GATES);
                self.handles.push((name, self.readiness.gate(name)));
                self.gates.entry(name).or_insert(Some("starting"));
            }
            1..=3 if !self.handles.is_empty() => {
                let (name, gate) = &self.handles[bench.index(self.handles.len())];
                let closed = bench.one_in(3).then(|| bench.one_of(&REASONS));
                match closed {
                    Some(reason) => gate.close(reason),
                    None => gate.open(),
                }
                self.gates.insert(name, closed);
            }
            4 if bench.one_in(3) => self.draining.store(bench.one_in(2), Relaxed),
            5..=6 => self.use_queue(bench),
            _ => {
                let n = |bench: &mut Bench| bench.pick(0, 9);
                let counts = TaskCounts {
                    alive: n(bench),
                    spawned: n(bench),
                    restarted: n(bench),
                    panicked: n(bench),
                    canceled: n(bench),
                    aborted: n(bench),
                };
                let kind = bench.one_of(&["worker", "listener"]);
                self.tasks.0.lock().unwrap().insert(kind, counts);
            }
        }
        self.deeds.fails.store(bench.one_in(3), Relaxed);
    }

    fn use_queue(&mut self, bench: &mut Bench) {
        let mut add = |what: &'static str, n: u64| *self.jobs.entry(what).or_default() += n;
        if bench.one_in(3) {
            add("delivered", u64::from(self.queue.try_pop().is_some()));
            return;
        }
        let fits = self.queue.push(1).is_ok();
        add("offered", 1);
        add(if fits { "accepted" } else { "refused" }, 1);
        let job = |what: &str| self.jobs.get(what).copied().unwrap_or(0);
        let highest = job("high_water").max(job("accepted") - job("delivered"));
        self.jobs.insert("high_water", highest);
    }

    // ------------------------------------------------------------------------------------ requests

    async fn ask(&mut self, bench: &Bench, method: &str, path: &str, caller: &Caller) -> Verdict {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("x-corr-id", "mine");
        for (name, value) in [("x-user", caller.user), ("x-groups", caller.groups)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let mut request = request.body(Body::empty()).expect("a sound request");
        if let Some(ip) = caller.peer {
            let addr = (ip, 5).into();
            request.extensions_mut().insert(Peer { addr, cert: None });
        }
        let least = bench.env.now() - self.started;
        let answer = match self.router.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let most = bench.env.now() - self.started;
        let id = answer.headers().get("x-corr-id").cloned();
        agree(
            "the id of the answer",
            id,
            Some("mine".parse().expect("a value")),
        )?;
        match (path, method) {
            ("/api/v1/reload", "POST") if self.reload => self.reloaded(answer, caller).await,
            ("/api/v1/shutdown", "POST") if self.shutdown => self.stopped(answer, caller).await,
            ("/none", _) => no_such(answer).await,
            ("/api/v1/reload", _) if !self.reload => no_such(answer).await,
            ("/api/v1/shutdown", _) if !self.shutdown => no_such(answer).await,
            ("/api/v1/reload" | "/api/v1/shutdown", _) | (_, "POST") => {
                let told = Told::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
                told.check(answer, "mine").await
            }
            _ => self.told(path, Whole::read(answer).await?, least, most),
        }
    }

    fn told(&self, path: &str, answer: Whole, least: Duration, most: Duration) -> Verdict {
        let ready = self.ready();
        match path {
            "/healthz" => agree("health", (answer.status, &*answer.text), (200, "ok\n")),
            "/readyz" => {
                let status = if ready["ready"] == true { 200 } else { 503 };
                agree("readiness", (answer.status, answer.json()), (status, ready))
            }
            "/version" => {
                let version = json!({"service": "drilled", "version": "1.2.3"});
                agree("version", (answer.status, answer.json()), (200, version))
            }
            "/metrics" => {
                let kind = answer.headers.get("content-type");
                let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
                demand(kind.starts_with("text/plain"), || {
                    format!("metrics as {kind}")
                })?;
                let page = (answer.status, answer.text);
                agree("metrics", page, (200, self.telemetry.render()))
            }
            _ => {
                let mut came = answer.json();
                let uptime = came["uptime_ms"].take().as_u64().unwrap_or(u64::MAX);
                let span = least.as_millis() as u64..=most.as_millis() as u64;
                demand(span.contains(&uptime), || {
                    format!("uptime: expected {span:?}, came {uptime}")
                })?;
                agree("status", (answer.status, came), (200, self.status(ready)))
            }
        }
    }

    fn ready(&self) -> Value {
        let gates = self.gates.iter();
        let closed = gates.filter_map(|(gate, closed)| Some((gate, (*closed)?)));
        let closed = closed.map(|(gate, why)| json!({"gate": gate, "reason": why}));
        let mut missing: Vec<Value> = closed.collect();
        if self.gates.is_empty() {
            missing.push(json!({"gate": "any", "reason": "no gate is declared"}));
        }
        json!({"ready": missing.is_empty(), "missing": missing, "degraded": []})
    }

    fn status(&self, ready: Value) -> Value {
        let state = match (self.draining.load(Relaxed), ready["ready"] == true) {
            (true, _) => "draining",
            (false, true) => "running",
            (false, false) => "not_ready",
        };
        let job = |what: &str| self.jobs.get(what).copied().unwrap_or(0);
        let queue = json!({
            "name": "jobs", "cap": job("cap"), "depth": job("accepted") - job("delivered"),
            "high_water": job("high_water"), "offered": job("offered"),
            "accepted": job("accepted"), "refused": job("refused"),
            "delivered": job("delivered"), "dropped": 0,
        });
        let tasks = self.tasks.tasks();
        let tasks = tasks.iter().map(|(kind, c)| {
            let counts = json!({
                "alive": c.alive, "spawned": c.spawned, "restarted": c.restarted,
                "panicked": c.panicked, "canceled": c.canceled, "aborted": c.aborted,
            });
            ((*kind).to_owned(), counts)
        });
        json!({
            "service": "drilled", "version": "1.2.3", "uptime_ms": null, "state": state,
            "readiness": ready, "queues": [queue], "tasks": Value::Object(tasks.collect()),
        })
    }

    // ------------------------------------------------------------------------------------- actions

    fn count(&mut self, metric: &str, labels: &[(&str, &str)]) {
        *self
            .counted
            .entry(metrics_page::key(metric, labels))
            .or_default() += 1;
    }

    fn count_action(&mut self, action: &str, result: &str) {
        self.count(
            "ops_actions_total",
            &[("action", action), ("result", result)],
        );
    }

    /// `Some` if the caller may; else the refusal was as it should be.
    async fn allowed(
        &mut self,
        action: &str,
        answer: Response,
        caller: &Caller,
    ) -> Result<Option<Response>, String> {
        let Some((status, reason)) = caller.refused(self.open) else {
            return Ok(Some(answer));
        };
        self.count_action(action, "refused");
        self.count("auth_failures_total", &[("reason", reason)]);
        let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
        let mut told = Told::new(status, reason);
        told.challenge = (status == 401).then(|| "Bearer".to_owned());
        told.check(answer, "mine").await.map(|()| None)
    }

    async fn reloaded(&mut self, answer: Response, caller: &Caller) -> Verdict {
        let before = self.deeds.reloads.swap(0, Relaxed);
        let Some(answer) = self.allowed("reload", answer, caller).await? else {
            return agree("reloads by one who may not", before, 0);
        };
        agree("reloads", before, 1)?;
        if self.deeds.fails.load(Relaxed) {
            self.count_action("reload", "failed");
            let mut told = Told::new(StatusCode::UNPROCESSABLE_ENTITY, "config_invalid");
            told.detail = Some("the configuration in force was kept".to_owned());
            let lines = broken().0;
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            told.extra.insert("errors", json!(lines));
            return told.check(answer, "mine").await;
        }
        self.count_action("reload", "done");
        let answer = Whole::read(answer).await?;
        let report = json!({"applied": ["a"], "needs_restart": ["b"]});
        agree("reload", (answer.status, answer.json()), (200, report))
    }

    async fn stopped(&mut self, answer: Response, caller: &Caller) -> Verdict {
        let before = self.deeds.shutdowns.swap(0, Relaxed);
        let Some(answer) = self.allowed("shutdown", answer, caller).await? else {
            return agree("shutdowns by one who may not", before, 0);
        };
        agree("shutdowns", before, 1)?;
        self.count_action("shutdown", "done");
        let answer = Whole::read(answer).await?;
        let draining = json!({"state": "draining"});
        agree("shutdown", (answer.status, answer.json()), (202, draining))
    }

    /// Each action and each refusal once, and nothing else.
    fn counted(&self) -> Verdict {
        let page = metrics_page::all(&self.telemetry.render());
        let ours = |name: &str| name.starts_with("ops_") || name.starts_with("auth_");
        let came = page.into_iter().filter(|(name, _)| ours(name));
        let came: BTreeMap<String, u64> = came.map(|(name, n)| (name, n as u64)).collect();
        agree("actions counted", &came, &self.counted)
    }
}

async fn no_such(answer: Response) -> Verdict {
    let told = Told::new(StatusCode::NOT_FOUND, "not_found");
    told.check(answer, "mine").await
}
