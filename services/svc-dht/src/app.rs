//! What serves the local API and the operator's endpoints: router, admission and registry, made at the first
//! request. A node that nobody asks stays small.

use std::sync::{Arc, OnceLock, atomic::Ordering::Relaxed};

use axum::{Router, extract::Request};
use ron_core::{
    admission::Admission,
    auth::{Gate, Mode},
    front::front,
    ops::{self, Admin, Ops},
    readiness::Readiness,
    shutdown::Shutdown,
    supervisor::SupervisorView,
    telemetry::{Refusals, Telemetry},
};
use tower_service::Service;

use crate::{api, dht::Dht, link_counts, metrics::Family};

/// Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    dht: Dht,
    readiness: Readiness,
    view: SupervisorView,
    shutdown: Shutdown,
    router: OnceLock<Router>,
}

impl App {
    pub fn new(dht: Dht, readiness: Readiness, view: SupervisorView, shutdown: Shutdown) -> App {
        App(Arc::new(Inner {
            dht,
            readiness,
            view,
            shutdown,
            router: OnceLock::new(),
        }))
    }

    /// All that exists before the first request.
    pub fn outer(&self) -> Router {
        let app = self.clone();
        Router::new().fallback(move |request: Request| {
            let app = app.clone();
            async move {
                let mut router = app.0.router.get_or_init(|| app.router()).clone();
                if request.uri().path() == "/metrics" {
                    app.export();
                }
                router.call(request).await
            }
        })
    }

    fn export(&self) {
        let node = self.0.dht.node();
        let counts = link_counts::counts(self.0.dht.peers(), &node.metrics);
        let gauges = link_counts::gauges(self.0.dht.peers(), node.gauges());
        node.metrics.export(gauges, &counts);
    }

    fn telemetry(&self) -> Telemetry {
        let Inner { dht, view, .. } = &*self.0;
        let node = dht.node().clone();
        let watch = |telemetry: &Telemetry| {
            telemetry.watch_env(&node.env);
            telemetry.watch_queue(Arc::new(node.work.clone()));
            telemetry.watch_queue(Arc::new(node.records.clone()));
            telemetry.watch_queue_as(node.routes.view(), Refusals::Dropped);
            telemetry.watch_tasks(Arc::new(view.clone()));
            // Weak: the node holds these metrics.
            let told = Arc::downgrade(&node);
            telemetry.watch_bus("events", move || {
                told.upgrade().map_or(0, |node| node.events.lagged())
            });
        };
        node.metrics.telemetry(watch).clone()
    }

    fn router(&self) -> Router {
        let Inner {
            dht,
            readiness,
            shutdown,
            ..
        } = &*self.0;
        let node = dht.node().clone();
        let telemetry = self.telemetry();
        let mode = node.config.auth.to_mode().unwrap_or(Mode::None);
        let auth = Gate::new(mode, &telemetry);
        let draining = {
            let node = node.clone();
            move || node.draining.load(Relaxed)
        };
        let metrics = node.metrics.clone();
        let admission = Admission::new(&node.env, &telemetry, node.config.admission())
            .draining(draining.clone())
            .auth(auth.clone())
            .on_reject(move |reject| metrics.count(Family::ApiRejected, reject.reason()));
        let stop = shutdown.clone();
        let admin = node.config.api.admin.then(|| Admin {
            gate: auth,
            reload: None,
            shutdown: Some(Arc::new(move || {
                stop.trigger();
            })),
        });
        let readiness = readiness.clone();
        let version = env!("CARGO_PKG_VERSION");
        let ops = Ops::new(
            &node.env,
            &telemetry,
            version,
            move || readiness.status(),
            draining,
            admin,
        );
        let api = api::router(dht.clone(), shutdown.clone());
        front(&node.env, api, &Arc::new(admission), ops::router(ops))
    }
}
