//! What a node serves over HTTP: the local API, with the registry made at the first request.

use std::sync::Arc;

use axum::Router;
use ron_core::{
    admission::Limits,
    app::{Serves, Views},
    auth::Mode,
    shutdown::Shutdown,
    telemetry::{Counters, Refusals, Telemetry},
    view::QueueView,
};

use crate::{api, dht::Dht, link_counts, node::Node};

pub struct Site {
    pub dht: Dht,
    pub views: Views,
    pub shutdown: Shutdown,
}

impl Serves for Site {
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn telemetry(&self) -> Telemetry {
        telemetry(self.dht.node(), &self.views)
    }

    fn limits(&self) -> Limits {
        self.dht.node().config().admission()
    }

    fn routes(&self, telemetry: &Telemetry, mode: &Mode) -> Router {
        api::router(self.dht.clone(), self.shutdown.clone(), telemetry, mode)
    }

    fn refusals(&self, telemetry: &Telemetry) -> Counters {
        api::refused_counters(telemetry)
    }

    fn export(&self) {
        let (node, peers) = (self.dht.node(), self.dht.peers());
        let counts = link_counts::counts(peers, &node.metrics);
        let gauges = link_counts::gauges(peers, node.gauges());
        node.metrics.export(gauges, &counts);
    }
}

/// Made now if this is the first time that somebody asks.
pub fn telemetry(node: &Arc<Node>, views: &Views) -> Telemetry {
    let watch = |telemetry: &Telemetry| {
        let queues: Vec<Arc<dyn QueueView>> =
            vec![Arc::new(node.work.clone()), Arc::new(node.records.clone())];
        views.watch(telemetry, queues);
        telemetry.watch_queue_as(node.routes.view(), Refusals::Dropped);
        // Weak: the node holds these metrics.
        let told = Arc::downgrade(node);
        telemetry.watch_bus("events", move || {
            told.upgrade().map_or(0, |node| node.events.lagged())
        });
    };
    node.metrics.telemetry(watch).clone()
}
