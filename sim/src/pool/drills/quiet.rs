//! The node's Env without its voice and without its disk.
//!
//! A gate, a queue or a supervisor that a drill builds tells the run of itself as the pool's own do; the oracles would
//! judge it by what the pool promises. Everything else is passed on.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::body::Body;
use ron_core::{
    Env,
    outbound::Egress,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};

struct Quiet(Env);

pub fn quiet(env: &Env) -> Env {
    Env::new(Quiet(env.clone()))
}

impl Clock for Quiet {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> SystemTime {
        self.0.wall()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }
}

impl Net for Quiet {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(self.0.listen(addr))
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(self.0.connect(addr))
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(self.0.resolve(host, port))
    }
}

impl Http for Quiet {
    fn request(
        &self,
        request: http::Request<Body>,
        egress: Egress,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        Box::pin(async move { self.0.http_via(&egress, request, deadline).await })
    }
}

impl Tasks for Quiet {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.0.launch(name, task)
    }

    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let running = self.0.offload(pool, job);
        Box::pin(async move {
            // A job that panicked told so by what it dropped.
            let _ = running.await;
        })
    }
}

impl Entropy for Quiet {
    fn fill(&self, buf: &mut [u8]) {
        self.0.fill_random(buf);
    }
}

impl Probe for Quiet {}

impl Runtime for Quiet {
    fn disk(&self) -> Arc<dyn Disk> {
        unreachable!("what survives a crash is drilled with the node's own Env")
    }
}
