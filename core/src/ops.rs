//! The endpoints that every process serves to those who run it: health, readiness, metrics, version, status;
//! and, off by default, reload and shutdown.
//!
//! They stand outside of admission, so that a service that refuses work still says how it is. What can
//! change the process needs a verified caller with the scope `ops:admin`, and leaves a log line and a count.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use axum::{
    Json, Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Env,
    auth::{AuthError, Gate, Identity},
    config::{ConfigErrors, ReloadReport},
    corr::CorrId,
    problem::Problem,
    readiness::ReadinessStatus,
    seam::BoxFuture,
    serve::Peer,
    telemetry::Telemetry,
    view::{QueueStats, TaskCounts},
};

/// The scope that may reload and shut down.
pub const ADMIN_SCOPE: &str = "ops:admin";

/// Paths that only tell how the process is. They are asked by address or by whatever name a prober knows, so they
/// answer under any.
pub const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// What a reload does; it may take a while.
pub type Reload =
    Arc<dyn Fn() -> BoxFuture<'static, Result<ReloadReport, ConfigErrors>> + Send + Sync>;

/// Built once per process; see [`router`].
#[derive(Clone)]
pub struct Ops(Arc<Inner>);

struct Inner {
    env: Env,
    telemetry: Telemetry,
    version: &'static str,
    started: Instant,
    readiness: Arc<Ask<ReadinessStatus>>,
    draining: Box<Ask<bool>>,
    admin: Option<Admin>,
}

type Ask<T> = dyn Fn() -> T + Send + Sync;

/// What an operator may do over HTTP. Absent by default, and then these paths do not exist.
pub struct Admin {
    pub gate: Arc<Gate>,
    pub reload: Option<Reload>,
    /// Starts the shutdown and returns at once; calling it again does nothing.
    pub shutdown: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Ops {
    pub fn new(
        env: &Env,
        telemetry: &Telemetry,
        version: &'static str,
        readiness: impl Fn() -> ReadinessStatus + Send + Sync + 'static,
        draining: impl Fn() -> bool + Send + Sync + 'static,
        admin: Option<Admin>,
    ) -> Self {
        let readiness: Arc<Ask<ReadinessStatus>> = Arc::new(readiness);
        let asked = readiness.clone();
        telemetry.watch_readiness(move || asked().degraded.len());
        Ops(Arc::new(Inner {
            env: env.clone(),
            telemetry: telemetry.clone(),
            version,
            started: env.now(),
            readiness,
            draining: Box::new(draining),
            admin,
        }))
    }
}

/// The routes; merged with the service's own, outside of its admission layer.
pub fn router(ops: Ops) -> Router {
    let mut routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .route("/api/v1/status", get(status));
    if let Some(admin) = &ops.0.admin {
        if admin.reload.is_some() {
            routes = routes.route("/api/v1/reload", post(reload));
        }
        if admin.shutdown.is_some() {
            routes = routes.route("/api/v1/shutdown", post(shutdown));
        }
    }
    routes.with_state(ops)
}

async fn readyz(State(ops): State<Ops>) -> Response {
    let readiness = (ops.0.readiness)();
    let code = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(readiness)).into_response()
}

async fn metrics(State(ops): State<Ops>) -> Response {
    let kind = [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)];
    (kind, ops.0.telemetry.render()).into_response()
}

async fn version(State(ops): State<Ops>) -> Json<Value> {
    Json(json!({ "service": ops.0.telemetry.service(), "version": ops.0.version }))
}

/// What svc-admin shows of a node.
#[derive(Debug, Serialize)]
struct Status {
    service: &'static str,
    version: &'static str,
    uptime_ms: u64,
    /// `running`, `degraded` while a condition holds, `not_ready` while a gate is missing, or `draining`.
    state: &'static str,
    readiness: ReadinessStatus,
    queues: Vec<Value>,
    tasks: BTreeMap<&'static str, Value>,
}

async fn status(State(ops): State<Ops>) -> Response {
    let ops = &*ops.0;
    let readiness = (ops.readiness)();
    let state = match ((ops.draining)(), readiness.ready) {
        (true, _) => "draining",
        (false, true) if !readiness.degraded.is_empty() => "degraded",
        (false, true) => "running",
        (false, false) => "not_ready",
    };
    Json(Status {
        service: ops.telemetry.service(),
        version: ops.version,
        uptime_ms: ops
            .env
            .now()
            .saturating_duration_since(ops.started)
            .as_millis() as u64,
        state,
        readiness,
        queues: ops.telemetry.queues().iter().map(queue_json).collect(),
        tasks: ops
            .telemetry
            .tasks()
            .iter()
            .map(|(kind, c)| (*kind, task_json(c)))
            .collect(),
    })
    .into_response()
}

fn queue_json(q: &QueueStats) -> Value {
    json!({
        "name": q.name, "cap": q.cap, "depth": q.depth, "high_water": q.high_water,
        "offered": q.offered, "accepted": q.accepted, "refused": q.refused,
        "delivered": q.delivered, "dropped": q.dropped,
    })
}

fn task_json(c: &TaskCounts) -> Value {
    json!({
        "alive": c.alive, "spawned": c.spawned, "restarted": c.restarted,
        "panicked": c.panicked, "canceled": c.canceled, "aborted": c.aborted,
    })
}

// -------------------------------------------------------------------------------------- operators

async fn reload(State(ops): State<Ops>, request: Request) -> Result<Response, Problem> {
    let (admin, caller) = ops.authorise("reload", &request)?;
    let Some(reload) = &admin.reload else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found"));
    };
    match reload().await {
        Ok(report) => {
            ops.audit("reload", "done", &caller, request.extensions().get());
            Ok(Json(report).into_response())
        }
        Err(errors) => {
            ops.audit("reload", "failed", &caller, request.extensions().get());
            let lines: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            Err(
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "config_invalid")
                    .detail("the configuration in force was kept")
                    .with("errors", lines),
            )
        }
    }
}

async fn shutdown(State(ops): State<Ops>, request: Request) -> Result<Response, Problem> {
    let (admin, caller) = ops.authorise("shutdown", &request)?;
    let Some(shutdown) = &admin.shutdown else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found"));
    };
    ops.audit("shutdown", "done", &caller, request.extensions().get());
    shutdown();
    Ok((StatusCode::ACCEPTED, Json(json!({ "state": "draining" }))).into_response())
}

impl Ops {
    fn authorise(&self, action: &str, request: &Request) -> Result<(&Admin, Identity), Problem> {
        let Some(admin) = &self.0.admin else {
            return Err(Problem::new(StatusCode::NOT_FOUND, "not_found"));
        };
        let peer = request
            .extensions()
            .get::<Peer>()
            .map(|peer| peer.addr.ip());
        let caller = self.identify(admin, request.headers(), peer);
        caller.map(|caller| (admin, caller)).map_err(|error| {
            self.0
                .telemetry
                .kernel()
                .ops_actions
                .with(&[action, "refused"])
                .inc();
            tracing::warn!(
                action,
                reason = error.reason(),
                ?peer,
                "operator action refused"
            );
            error.problem()
        })
    }

    fn identify(
        &self,
        admin: &Admin,
        headers: &HeaderMap,
        peer: Option<std::net::IpAddr>,
    ) -> Result<Identity, AuthError> {
        let caller = admin.gate.check(headers, peer, self.0.env.wall())?;
        // Mode `none` has every scope, but nobody vouched for it.
        let allowed = if caller.is_authenticated() {
            caller.require(ADMIN_SCOPE)
        } else {
            Err(AuthError::MissingCredentials)
        };
        allowed.inspect_err(|error| admin.gate.count(*error))?;
        Ok(caller)
    }

    fn audit(&self, action: &str, result: &str, caller: &Identity, corr_id: Option<&CorrId>) {
        self.0
            .telemetry
            .kernel()
            .ops_actions
            .with(&[action, result])
            .inc();
        let corr_id = corr_id.map_or("", CorrId::as_str);
        tracing::info!(action, result, subject = %caller.subject, corr_id, "operator action");
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        time::Duration,
    };

    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        auth::{Ingress, Mode},
        config::{ConfigError, Origin},
        problem::{read_body, with_fallbacks},
        readiness::{Degraded, Missing},
        test_env::World,
        view::{QueueView, TaskView},
    };

    struct Fixed;

    impl QueueView for Fixed {
        fn stats(&self) -> QueueStats {
            QueueStats {
                name: "sign",
                cap: 512,
                depth: 3,
                ..QueueStats::default()
            }
        }
    }

    impl TaskView for Fixed {
        fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
            let counts = TaskCounts {
                alive: 2,
                ..TaskCounts::default()
            };
            BTreeMap::from([("signer", counts)])
        }
    }

    struct Bench {
        world: World,
        telemetry: Telemetry,
        app: Router,
        ready: Arc<AtomicBool>,
        degraded: Arc<AtomicBool>,
        draining: Arc<AtomicBool>,
        shutdowns: Arc<AtomicUsize>,
        reload_fails: Arc<AtomicBool>,
    }

    fn ingress() -> Mode {
        Mode::Ingress(Ingress {
            user_header: "x-user".parse().unwrap(),
            groups_header: "x-groups".parse().unwrap(),
            tenant_header: "x-tenant".parse().unwrap(),
            trusted: vec!["10.0.0.1".parse().unwrap()],
        })
    }

    fn bench(admin_mode: Option<Mode>) -> Bench {
        let (world, telemetry) = (World::new(), Telemetry::new("ron-kms", ""));
        telemetry.watch_queue(Arc::new(Fixed));
        telemetry.watch_tasks(Arc::new(Fixed));
        let ready = Arc::new(AtomicBool::new(true));
        let (draining, reload_fails): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let shutdowns = Arc::new(AtomicUsize::new(0));
        let (count, fails) = (shutdowns.clone(), reload_fails.clone());
        let reload = move || -> BoxFuture<'static, _> {
            let error = ConfigError {
                origin: Origin::Cli,
                key: "low".into(),
                value: "9".into(),
                reason: "too high".into(),
            };
            let fails = fails.load(Ordering::Relaxed);
            Box::pin(async move {
                if fails {
                    Err(ConfigErrors(vec![error]))
                } else {
                    Ok(ReloadReport::default())
                }
            })
        };
        let admin = admin_mode.map(|mode| Admin {
            gate: Gate::new(mode, &telemetry),
            reload: Some(Arc::new(reload)),
            shutdown: Some(Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })),
        });
        let (is_ready, is_draining) = (ready.clone(), draining.clone());
        let degraded: Arc<AtomicBool> = Arc::default();
        let is_degraded = degraded.clone();
        let readiness = move || {
            let ready = is_ready.load(Ordering::Relaxed);
            let gate = Missing {
                gate: "audit".into(),
                reason: "checkpoint overdue".into(),
            };
            let missing = if ready { vec![] } else { vec![gate] };
            let condition = Degraded {
                condition: "disk".into(),
                reason: "nearly full".into(),
            };
            let degraded = match is_degraded.load(Ordering::Relaxed) {
                true => vec![condition],
                false => vec![],
            };
            ReadinessStatus {
                ready,
                missing,
                degraded,
            }
        };
        let drains = move || is_draining.load(Ordering::Relaxed);
        let ops = Ops::new(&world.env(), &telemetry, "1.2.3", readiness, drains, admin);
        let app = with_fallbacks(router(ops));
        Bench {
            world,
            telemetry,
            app,
            ready,
            degraded,
            draining,
            shutdowns,
            reload_fails,
        }
    }

    impl Bench {
        fn ask(&self, method: &str, path: &str, user: &str, groups: &str) -> (u16, String, Value) {
            let mut request = Request::builder()
                .method(method)
                .uri(path)
                .header("x-user", user)
                .header("x-groups", groups)
                .body(Body::empty())
                .unwrap();
            let addr = "10.0.0.1:5".parse().unwrap();
            request.extensions_mut().insert(Peer { addr, cert: None });
            self.world.run(async {
                let response = self.app.clone().oneshot(request).await.unwrap();
                let (parts, body) = response.into_parts();
                let text = String::from_utf8(read_body(body).await.unwrap().to_vec()).unwrap();
                let json = serde_json::from_str(&text).unwrap_or_default();
                (parts.status.as_u16(), text, json)
            })
        }

        fn get(&self, path: &str) -> (u16, String, Value) {
            self.ask("GET", path, "", "")
        }
    }

    // proves: KMS-2.9, RWD-2.9, EDG-2.6
    #[test]
    fn every_process_tells_how_it_is() {
        let bench = bench(None);
        bench.world.advance(Duration::from_millis(1500));
        assert_eq!(bench.get("/healthz").0, 200);
        assert_eq!(
            bench.get("/version").2,
            json!({"service": "ron-kms", "version": "1.2.3"})
        );
        assert!(
            bench
                .get("/metrics")
                .1
                .contains(r#"queue_depth{queue="sign"} 3"#)
        );
        let (code, _, status) = bench.get("/api/v1/status");
        assert_eq!(code, 200);
        assert_eq!(
            (&status["service"], &status["version"]),
            (&json!("ron-kms"), &json!("1.2.3"))
        );
        assert_eq!(
            (&status["uptime_ms"], &status["state"]),
            (&json!(1500), &json!("running"))
        );
        assert_eq!(
            (&status["queues"][0]["name"], &status["queues"][0]["cap"]),
            (&json!("sign"), &json!(512))
        );
        assert_eq!(status["tasks"]["signer"]["alive"], 2);
    }

    #[test]
    fn a_degraded_process_is_ready_and_says_why() {
        let bench = bench(None);
        let gauge = |n: u8| format!("readyz_degraded {n}\n");
        assert!(bench.get("/metrics").1.contains(&gauge(0)));
        bench.degraded.store(true, Ordering::Relaxed);
        let (code, _, readiness) = bench.get("/readyz");
        let why = json!([{"condition": "disk", "reason": "nearly full"}]);
        let expected = json!({"ready": true, "missing": [], "degraded": why});
        assert_eq!((code, readiness), (200, expected));
        let (_, _, status) = bench.get("/api/v1/status");
        assert_eq!(
            (&status["state"], &status["readiness"]["degraded"]),
            (&json!("degraded"), &why)
        );
        assert!(bench.get("/metrics").1.contains(&gauge(1)));
        bench.ready.store(false, Ordering::Relaxed);
        assert_eq!(bench.get("/readyz").0, 503, "a condition opens no gate");
        assert_eq!(bench.get("/api/v1/status").2["state"], "not_ready");
    }

    #[test]
    fn readyz_is_503_and_names_the_missing_gates() {
        let bench = bench(None);
        assert_eq!(
            bench.get("/readyz").2,
            json!({"ready": true, "missing": [], "degraded": []})
        );
        bench.ready.store(false, Ordering::Relaxed);
        let (code, _, readiness) = bench.get("/readyz");
        let missing = json!([{"gate": "audit", "reason": "checkpoint overdue"}]);
        assert_eq!(
            (code, readiness),
            (
                503,
                json!({"ready": false, "missing": missing, "degraded": []})
            )
        );
        assert_eq!(bench.get("/healthz").0, 200, "alive all the same");
        assert_eq!(bench.get("/api/v1/status").2["state"], "not_ready");
        bench.draining.store(true, Ordering::Relaxed);
        assert_eq!(bench.get("/api/v1/status").2["state"], "draining");
    }

    #[test]
    fn operator_actions_do_not_exist_unless_turned_on() {
        let bench = bench(None);
        for path in ["/api/v1/reload", "/api/v1/shutdown"] {
            assert_eq!(bench.ask("POST", path, "ada", ADMIN_SCOPE).0, 404);
        }
    }

    // proves: ADM-2.12
    #[test]
    fn operator_actions_need_the_scope_and_are_counted() {
        let bench = bench(Some(ingress()));
        let cases = [
            (
                "GET",
                "/api/v1/shutdown",
                "ada",
                ADMIN_SCOPE,
                405,
                "method_not_allowed",
            ),
            (
                "POST",
                "/api/v1/shutdown",
                "",
                "",
                401,
                "missing_credentials",
            ),
            (
                "POST",
                "/api/v1/shutdown",
                "ada",
                "dev",
                403,
                "missing_scope",
            ),
            ("POST", "/api/v1/reload", "ada", "dev", 403, "missing_scope"),
        ];
        for (method, path, user, groups, status, code) in cases {
            let (got, _, problem) = bench.ask(method, path, user, groups);
            assert_eq!(
                (got, &problem["code"]),
                (status, &json!(code)),
                "{path} {user}"
            );
        }
        assert_eq!(bench.shutdowns.load(Ordering::Relaxed), 0);
        assert_eq!(
            bench.ask("POST", "/api/v1/shutdown", "ada", ADMIN_SCOPE).0,
            202
        );
        assert_eq!(bench.shutdowns.load(Ordering::Relaxed), 1);
        let (code, _, report) = bench.ask("POST", "/api/v1/reload", "ada", ADMIN_SCOPE);
        assert_eq!(
            (code, report),
            (200, json!({"applied": [], "needs_restart": []}))
        );
        bench.reload_fails.store(true, Ordering::Relaxed);
        let (code, _, problem) = bench.ask("POST", "/api/v1/reload", "ada", ADMIN_SCOPE);
        assert_eq!((code, &problem["code"]), (422, &json!("config_invalid")));
        assert_eq!(problem["errors"], json!(["--set: `low` = 9: too high"]));
        let text = bench.telemetry.render();
        for line in [
            r#"ops_actions_total{action="shutdown",result="refused"} 2"#,
            r#"ops_actions_total{action="shutdown",result="done"} 1"#,
            r#"ops_actions_total{action="reload",result="refused"} 1"#,
            r#"ops_actions_total{action="reload",result="done"} 1"#,
            r#"ops_actions_total{action="reload",result="failed"} 1"#,
            r#"auth_failures_total{reason="missing_scope"} 2"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn mode_none_vouches_for_nobody_and_so_allows_no_action() {
        let bench = bench(Some(Mode::None));
        let (code, _, problem) = bench.ask("POST", "/api/v1/shutdown", "ada", ADMIN_SCOPE);
        assert_eq!(
            (code, &problem["code"]),
            (401, &json!("missing_credentials"))
        );
        assert_eq!(bench.shutdowns.load(Ordering::Relaxed), 0);
    }
}
