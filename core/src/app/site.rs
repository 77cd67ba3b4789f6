//! What a process serves over HTTP: the service's routes behind admission, and beside them what tells how it is.
//!
//! Made with the first connection: a process that nobody asks stays small.

use std::{
    future::ready,
    sync::{Arc, OnceLock},
};

use axum::{Router, extract::Request, middleware::map_request};

use super::Drain;
use crate::{
    Env,
    admission::{Admission, Limits, Reject},
    auth::{Gate, Mode},
    front::front,
    ops::{self, Admin, Ops, Reload},
    readiness::Readiness,
    serve::ServeStats,
    shutdown::Shutdown,
    telemetry::{Counters, Telemetry},
};

/// A service's own part of it.
pub trait Serves: Send + Sync + 'static {
    fn version(&self) -> &'static str;

    /// With a view of all that it counts.
    fn telemetry(&self) -> Telemetry;

    fn limits(&self) -> Limits;

    /// Its API, for callers identified in this mode.
    fn routes(&self, telemetry: &Telemetry, mode: &Mode) -> Router;

    /// Counts what is refused, by route and code; see [`refused_counters`](crate::api::refused_counters).
    fn refusals(&self, telemetry: &Telemetry) -> Counters;

    /// Called before `/metrics` is read, by who counts in a way of its own.
    fn export(&self) {}

    /// A request was refused at the door.
    fn refused(&self, reject: Reject) {
        let _ = reject;
    }
}

/// A service that needs no more than this.
pub struct Plain {
    pub version: &'static str,
    pub telemetry: Telemetry,
    pub limits: Limits,
    pub routes: Router,
}

impl Serves for Plain {
    fn version(&self) -> &'static str {
        self.version
    }

    fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn routes(&self, _: &Telemetry, _: &Mode) -> Router {
        self.routes.clone()
    }

    fn refusals(&self, telemetry: &Telemetry) -> Counters {
        crate::api::refused_counters(telemetry, "refused_total")
    }
}

#[derive(Clone)]
pub(super) struct Site(pub Arc<Parts>);

pub(super) struct Parts {
    pub env: Env,
    pub service: Arc<dyn Serves>,
    /// What its server counts.
    pub stats: Arc<ServeStats>,
    pub mode: Mode,
    pub readiness: Readiness,
    pub drain: Arc<Drain>,
    /// What an operator may do over HTTP, if anything.
    pub admin: Option<(Option<Reload>, Shutdown)>,
    pub gate: OnceLock<Arc<Gate>>,
    pub router: OnceLock<Router>,
}

impl Site {
    pub fn router(&self) -> Router {
        self.0.router.get_or_init(|| self.make()).clone()
    }

    pub fn gate(&self) -> &Arc<Gate> {
        let make = || Gate::new(self.0.mode.clone(), &self.0.service.telemetry());
        self.0.gate.get_or_init(make)
    }

    fn make(&self) -> Router {
        let parts = &*self.0;
        let (service, telemetry) = (parts.service.clone(), parts.service.telemetry());
        telemetry.watch_serve(parts.stats.clone());
        let draining = {
            let drain = parts.drain.clone();
            move || drain.is_begun()
        };
        let told = service.clone();
        let admission = Admission::new(&parts.env, &telemetry, service.limits())
            .draining(draining.clone())
            .auth(self.gate().clone())
            .counting(service.refusals(&telemetry))
            .on_reject(move |reject| told.refused(reject));
        let admin = parts.admin.clone().map(|(reload, stop)| Admin {
            gate: self.gate().clone(),
            reload,
            shutdown: Some(Arc::new(move || {
                stop.trigger();
            })),
        });
        let readiness = parts.readiness.clone();
        let ops = Ops::new(
            &parts.env,
            &telemetry,
            service.version(),
            move || readiness.status(),
            draining,
            admin,
        );
        let routes = service.routes(&telemetry, &parts.mode);
        let export = map_request(move |request: Request| {
            if request.uri().path() == "/metrics" {
                service.export();
            }
            ready(request)
        });
        let ops = ops::router(ops).layer(export);
        front(&parts.env, routes, &Arc::new(admission), ops)
    }
}
