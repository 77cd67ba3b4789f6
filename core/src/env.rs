//! `Env`: the one handle to the outside world that service code holds.
//!
//! Cheap to clone, no generic parameter, and nothing in it tells production from simulation.

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use rand_chacha::{ChaCha12Rng, rand_core::SeedableRng};
use tokio::sync::oneshot;

use crate::{
    outbound::{AddressPolicy, Egress, IdentityError, TlsIdentity},
    seam::{Abort, BoxFuture, Conn, Disk, HttpError, Listener, Pool, Runtime},
};

/// The generator that all logic draws from.
pub type Rng = ChaCha12Rng;

#[derive(Clone)]
pub struct Env {
    runtime: Arc<dyn Runtime>,
    stats: Arc<EnvStats>,
}

/// What the seam itself counts; exported by telemetry.
#[derive(Debug, Default)]
pub struct EnvStats {
    /// Offloaded calls whose caller went away before they finished.
    pub offload_abandoned: AtomicU64,
}

/// The time given to [`Env::timeout`] ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline has elapsed")]
pub struct Elapsed;

pin_project_lite::pin_project! {
    /// Work with a deadline. A type of its own, because an `async fn` would hold the work twice, and one such
    /// often holds another.
    #[must_use = "futures do nothing unless polled"]
    pub struct Timeout<'a, F> {
        env: &'a Env,
        at: Instant,
        // Much work is ready at once, and then costs no timer.
        timer: Option<BoxFuture<'static, ()>>,
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Timeout<'_, F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.work.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        let (env, at) = (*this.env, *this.at);
        let timer = this.timer.get_or_insert_with(|| env.sleep_until(at));
        ready!(timer.as_mut().poll(cx));
        crate::sometimes!("env.timed_out");
        Poll::Ready(Err(Elapsed))
    }
}

/// The task or offloaded call ended without a value: aborted, panicked, or its process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task ended without a result")]
pub struct Lost;

impl Env {
    pub fn new(runtime: impl Runtime) -> Self {
        Env {
            runtime: Arc::new(runtime),
            stats: Arc::default(),
        }
    }

    // ------------------------------------------------------------------------------------ clock

    pub fn now(&self) -> Instant {
        self.runtime.now()
    }

    pub fn wall(&self) -> SystemTime {
        self.runtime.wall()
    }

    /// Wall time as Unix milliseconds, the form in which it travels.
    pub fn wall_ms(&self) -> u64 {
        self.wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64)
    }

    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(self.now() + duration)
    }

    pub fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        // A timer promises not to be early, and no more.
        let late = if crate::buggify!("timer.late") {
            Duration::from_millis(1)
        } else {
            Duration::ZERO
        };
        self.runtime.sleep_until(at + late)
    }

    pub fn timeout<F: Future>(&self, limit: Duration, work: F) -> Timeout<'_, F> {
        self.timeout_at(self.now() + limit, work)
    }

    /// The work is polled first: a result that is ready at the deadline still counts.
    pub fn timeout_at<F: Future>(&self, at: Instant, work: F) -> Timeout<'_, F> {
        Timeout {
            env: self,
            at,
            timer: None,
            work,
        }
    }

    // ---------------------------------------------------------------------------------- network

    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.runtime.listen(addr).await
    }

    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Conn> {
        self.runtime.connect(addr).await
    }

    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.runtime.resolve(host, port).await
    }

    /// One request to whatever address it names, with the system's authorities. See [`Http`](crate::seam::Http).
    pub async fn http(
        &self,
        request: http::Request<impl Into<Body>>,
        deadline: Instant,
    ) -> Result<http::Response<Body>, HttpError> {
        self.http_via(&Egress::default(), request, deadline).await
    }

    pub async fn http_via(
        &self,
        egress: &Egress,
        request: http::Request<impl Into<Body>>,
        deadline: Instant,
    ) -> Result<http::Response<Body>, HttpError> {
        let request = request.map(Into::into);
        self.runtime
            .request(request, egress.clone(), deadline)
            .await
    }

    /// A way out with a TLS identity. One that could never be used is refused here, when it is configured.
    pub fn egress(
        &self,
        addresses: AddressPolicy,
        identity: TlsIdentity,
    ) -> Result<Egress, IdentityError> {
        self.runtime.check_identity(&identity)?;
        Ok(Egress::new(addresses, identity))
    }

    // ------------------------------------------------------------------------------------ tasks

    /// Spawns a task. Services use the [`Supervisor`](crate::supervisor::Supervisor) instead, so that
    /// every task is joined; this is for what lives and dies with a single request or connection.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Join<T> {
        let (done, result) = oneshot::channel();
        let abort = self.runtime.spawn(
            name,
            Box::pin(async move {
                let _ = done.send(task.await);
            }),
        );
        Join { result, abort }
    }

    /// Starts a task whose end nobody waits for; it costs nothing beside its future. It goes on if what is returned is
    /// dropped.
    pub fn launch(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.runtime.spawn(name, task)
    }

    /// Runs blocking or CPU-bound work on a bounded pool of threads. See [`Tasks::offload`](crate::seam::Tasks::offload)
    /// for what happens when the returned future is dropped.
    pub fn offload<T, F>(
        &self,
        pool: Pool,
        job: F,
    ) -> impl Future<Output = Result<T, Lost>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let running = self.runtime.offload(
            pool,
            Box::new(move || {
                let _ = done.send(job());
            }),
        );
        let guard = AbandonGuard {
            stats: Some(self.stats.clone()),
        };
        // A thread that was not scheduled for a while: its result is there, nobody tells yet.
        let held_up = crate::buggify!("offload.slow").then(|| self.sleep(Duration::from_millis(5)));
        async move {
            running.await;
            if let Some(held_up) = held_up {
                held_up.await;
            }
            guard.disarm();
            result.await.map_err(|_| Lost)
        }
    }

    /// Runs file operations on the disk pool: the only way to reach the [`Disk`].
    pub fn disk<T, F>(
        &self,
        job: F,
    ) -> impl Future<Output = Result<T, Lost>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<dyn Disk>) -> T + Send + 'static,
    {
        let runtime = self.runtime.clone();
        self.offload(Pool::DISK, move || job(&runtime.disk()))
    }

    // ---------------------------------------------------------------------------------- entropy

    pub fn fill_random(&self, buf: &mut [u8]) {
        self.runtime.fill(buf);
    }

    /// A fresh generator, independent of every other one.
    pub fn rng(&self) -> Rng {
        let mut seed = [0; 32];
        self.fill_random(&mut seed);
        Rng::from_seed(seed)
    }

    // ------------------------------------------------------------------------------------ probe

    /// Tells the observer of a simulated run; costs nothing in production.
    pub fn probe(&self, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        self.runtime.probe(event, id, detail);
    }

    pub fn stats(&self) -> &EnvStats {
        &self.stats
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

/// Counts an offloaded call as abandoned unless it is disarmed first.
struct AbandonGuard {
    stats: Option<Arc<EnvStats>>,
}

impl AbandonGuard {
    fn disarm(mut self) {
        self.stats = None;
    }
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(stats) = &self.stats {
            crate::sometimes!("env.offload_abandoned");
            stats.offload_abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A spawned task's result. Dropping it lets the task run on; [`Join::abort`] stops it.
pub struct Join<T> {
    result: oneshot::Receiver<T>,
    abort: Box<dyn Abort>,
}

impl<T> Join<T> {
    pub fn abort(&self) {
        self.abort.abort();
    }
}

impl<T> Future for Join<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(cx).map_err(|_| Lost)
    }
}
