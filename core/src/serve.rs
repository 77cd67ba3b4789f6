//! Serves an axum [`Router`] over the seam: HTTP/1.1 and HTTP/2 (by prior knowledge or ALPN), with limits
//! on connections, on every wait, and on the time a stop may take.
//!
//! One task per connection (plus one per HTTP/2 stream). Always: each accepted connection is shut down,
//! whatever way it ends; when [`Env::serve`] returns, no task of any connection is alive.

mod alarm;
mod connection;
mod frames;
mod held;
mod host;
mod notes;
mod refusal;
mod request;
mod room;
mod settings;
mod streams;
mod watch;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::Router;
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

pub use host::Hosts;
pub use refusal::Refusal;
pub use request::{BadFraming, BodyReadTimeout, Peer};
pub use settings::HttpConfig;
pub use watch::Phase;

use crate::{
    Env, Shutdown,
    corr::{CorrId, CorrIds},
    seam::{BoxFuture, Conn, Listener},
};
use notes::{Notes, Wish};
use room::{Room, Verdict};

/// After an accept error such as "too many open files", which would repeat at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct ServeOptions {
    /// Under which names the server answers.
    pub hosts: Arc<Hosts>,
    /// Connections at once. The longest idle one makes room; while none is idle, more are answered 503.
    pub max_conns: usize,
    /// Of these, from one address; 0 for no limit. More are answered 429.
    pub max_conns_per_peer: usize,
    /// For the first byte, the TLS handshake, and each request head.
    pub header_read: Duration,
    /// For each next piece of a request body.
    pub body_read: Duration,
    /// For the peer to take some of what was written.
    pub write: Duration,
    /// Without a request in hand.
    pub idle: Duration,
    /// HTTP/2 frames that carry no request.
    pub http2_frames_per_s: u32,
    /// What open requests may take after the stop.
    pub close_grace: Duration,
    pub tls: Option<Arc<dyn TlsAccept>>,
    /// Where the server counts; keep a clone to read it.
    pub stats: Arc<ServeStats>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            hosts: Arc::default(),
            max_conns: 1024,
            max_conns_per_peer: 512,
            header_read: Duration::from_secs(5),
            body_read: Duration::from_secs(5),
            write: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            http2_frames_per_s: 1_000,
            close_grace: Duration::from_secs(3),
            tls: None,
            stats: Arc::default(),
        }
    }
}

/// Turns an accepted stream into an encrypted one.
pub trait TlsAccept: Send + Sync {
    fn accept(&self, conn: Conn) -> BoxFuture<'static, io::Result<(Conn, Option<ClientCert>)>>;
}

/// The verified certificate chain of a client, DER, its own certificate first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCert {
    pub chain: Vec<Bytes>,
}

/// What a server counts.
#[derive(Debug, Default)]
pub struct ServeStats {
    pub accepted: AtomicU64,
    pub accept_errors: AtomicU64,
    pub handshakes_failed: AtomicU64,
    /// Requests whose handler or response body panicked.
    pub panics: AtomicU64,
    /// Connections alive now.
    pub open: AtomicU64,
    /// Connections cut because they outlived the close grace.
    pub aborted_at_close: AtomicU64,
    /// Idle connections closed for somebody new.
    pub made_room: AtomicU64,
    timeouts: [AtomicU64; 4],
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl ServeStats {
    pub fn timeouts(&self, phase: Phase) -> u64 {
        self.timeouts[phase as usize].load(Relaxed)
    }

    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Relaxed)
    }

    fn count_refusal(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    fn count_timeout(&self, phase: Phase) {
        self.timeouts[phase as usize].fetch_add(1, Relaxed);
    }
}

/// How a run of [`Env::serve`] went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeReport {
    pub accepted: u64,
    pub refused_over_limit: u64,
    pub aborted_at_close: u64,
}

impl Env {
    /// Serves until `stop`: then accepts no more, closes idle connections at once, lets open requests
    /// finish within the close grace and cuts the rest. Dropped half-way, it cuts all connections.
    pub async fn serve(
        &self,
        listener: Box<dyn Listener>,
        app: Router,
        options: ServeOptions,
        stop: Shutdown,
    ) -> ServeReport {
        self.serve_with(listener, move || app.clone(), options, stop)
            .await
    }

    /// The same, with a router that is made for each connection: while there is none, it costs nothing.
    pub async fn serve_with(
        &self,
        listener: Box<dyn Listener>,
        app: impl Fn() -> Router + Send + Sync,
        options: impl Into<Arc<ServeOptions>>,
        stop: Shutdown,
    ) -> ServeReport {
        let options: Arc<ServeOptions> = options.into();
        let server = Server(Arc::new(Shared {
            env: self.clone(),
            conns: Mutex::new(Room::new(options.max_conns, options.max_conns_per_peer)),
            options,
            bound: listener.local_addr().ok().map(|addr| addr.ip()),
            began: self.now(),
            left: Notify::new(),
            ids: AtomicU64::new(0),
            corr_ids: OnceLock::new(),
        }));
        let report = server.accept_until(&*listener, &app, &stop).await;
        drop(listener);
        // Boxed: it comes once, at the end.
        Box::pin(server.finish(report)).await
    }
}

/// What all connections of a server share.
struct Shared {
    env: Env,
    options: Arc<ServeOptions>,
    /// What the server listens on.
    bound: Option<IpAddr>,
    /// Idle times are compared by their distance from here.
    began: Instant,
    conns: Mutex<Room<Arc<Notes>>>,
    /// Told whenever a connection has gone.
    left: Notify,
    ids: AtomicU64,
    /// Made with the first refusal.
    corr_ids: OnceLock<CorrIds>,
}

impl Shared {
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    fn conns(&self) -> MutexGuard<'_, Room<Arc<Notes>>> {
        self.conns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal and gives it its id: the caller's own if it sent one.
    fn refuse(&self, refusal: Refusal, sent: Option<&http::HeaderMap>) -> CorrId {
        self.options.stats.count_refusal(refusal);
        let ids = self.corr_ids.get_or_init(|| CorrIds::new(&self.env));
        let id = ids.of(sent);
        tracing::debug!(
            reason = refusal.reason(),
            corr_id = id.as_str(),
            "refused by the server"
        );
        id
    }

    /// Asks every open connection, and says how many there are.
    fn ask_all(&self, wish: Wish) -> u64 {
        let conns = self.conns();
        conns.guests().for_each(|notes| notes.ask(wish));
        conns.guests().len() as u64
    }

    async fn all_gone(&self) {
        while self.conns().guests().len() > 0 {
            self.left.notified().await;
        }
    }

    /// An idle connection is closed: with nothing in hand, its task ends at once.
    async fn make_room(&self, id: u64) {
        let inside = || {
            self.conns()
                .get(id)
                .map(|notes| notes.ask(Wish::Abort))
                .is_some()
        };
        while inside() {
            self.left.notified().await;
        }
        self.options.stats.made_room.fetch_add(1, Relaxed);
    }
}

/// The running server; dropping it cuts its connections.
struct Server(Arc<Shared>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.ask_all(Wish::Abort);
    }
}

impl Server {
    async fn accept_until(
        &self,
        listener: &dyn Listener,
        app: &(dyn Fn() -> Router + Send + Sync),
        stop: &Shutdown,
    ) -> ServeReport {
        let (env, options) = (&self.0.env, &self.0.options);
        let mut report = ServeReport::default();
        let mut stopped = pin!(stop.wait());
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stopped => return report,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((conn, peer)) => {
                    let verdict = self.0.conns().ask(peer.ip(), |notes| notes.idle_since());
                    let refusal = match verdict {
                        Verdict::Full => Some(Refusal::Connections),
                        Verdict::PeerFull => Some(Refusal::PeerConnections),
                        Verdict::Enters | Verdict::Replaces(_) => None,
                    };
                    if let Some(refusal) = refusal {
                        report.refused_over_limit += 1;
                        let id = self.0.refuse(refusal, None);
                        let answer = refusal.answer(id.as_str());
                        refuse(conn, options.tls.is_none().then_some(&answer));
                        continue;
                    }
                    if let Verdict::Replaces(id) = verdict {
                        crate::sometimes!("serve.made_room");
                        tokio::select! {
                            biased;
                            () = &mut stopped => return report,
                            () = self.0.make_room(id) => {}
                        }
                    }
                    if crate::buggify!("serve.accept_late") {
                        env.sleep(Duration::from_millis(2)).await;
                    }
                    report.accepted += 1;
                    options.stats.accepted.fetch_add(1, Relaxed);
                    self.start(app(), conn, peer);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(_) => {
                    options.stats.accept_errors.fetch_add(1, Relaxed);
                    tokio::select! {
                        biased;
                        () = &mut stopped => return report,
                        () = env.sleep(ACCEPT_BACKOFF) => {}
                    }
                }
            }
        }
    }

    fn start(&self, app: Router, conn: Conn, peer: SocketAddr) {
        let open = Open::register(self.0.clone(), peer.ip());
        let notes = open.notes.clone();
        drop(self.0.env.spawn("http-conn", async move {
            let _open = open;
            connection::run(notes, app, conn, peer).await;
        }));
    }

    async fn finish(&self, mut report: ServeReport) -> ServeReport {
        let (env, options) = (&self.0.env, &self.0.options);
        self.0.ask_all(Wish::Finish);
        if env
            .timeout(options.close_grace, self.0.all_gone())
            .await
            .is_err()
        {
            crate::sometimes!("serve.cut_at_close");
            report.aborted_at_close = self.0.ask_all(Wish::Abort);
            tracing::warn!(
                connections = report.aborted_at_close,
                "requests outlived the close grace and are cut"
            );
            options
                .stats
                .aborted_at_close
                .fetch_add(report.aborted_at_close, Relaxed);
            self.0.all_gone().await;
        }
        report
    }
}

/// A connection's entry in the server, while its task lives.
struct Open {
    id: u64,
    notes: Arc<Notes>,
}

impl Open {
    fn register(shared: Arc<Shared>, peer: IpAddr) -> Self {
        let id = shared.next_id();
        let notes = Arc::new(Notes::new(shared.clone()));
        shared.conns().enter(id, peer, notes.clone());
        shared.options.stats.open.fetch_add(1, Relaxed);
        Open { id, notes }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let shared = &self.notes.shared;
        shared.options.stats.open.fetch_sub(1, Relaxed);
        shared.conns().leave(self.id);
        shared.left.notify_one();
    }
}

/// Says so as far as that needs no waiting. Under TLS it could not be read, so there is no answer.
fn refuse(mut conn: Conn, answer: Option<&Vec<u8>>) {
    if let Some(answer) = answer {
        // Bytes left unread would turn the close into a reset, and the answer might be lost.
        let _ = conn.read(&mut [0; 4096]).now_or_never();
        let _ = conn.write_all(answer).now_or_never();
    }
    let _ = conn.shutdown().now_or_never();
}

/// The peer gave up between its connect and our accept: the next accept is not affected.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any instant will do: the decisions under test only compare.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn some_instant() -> std::time::Instant {
        std::time::Instant::now()
    }

    #[test]
    fn a_body_timeout_is_found_beneath_other_errors() {
        let plain = axum::Error::new(io::Error::other("broken"));
        assert!(!BodyReadTimeout::caused(&plain));
        let wrapped = axum::Error::new(axum::Error::new(BodyReadTimeout));
        assert!(BodyReadTimeout::caused(&wrapped));
        assert!(BodyReadTimeout::caused(&BodyReadTimeout));
    }

    #[test]
    fn only_errors_of_a_single_connection_are_passed_over() {
        use io::ErrorKind::{ConnectionAborted, Other, OutOfMemory, PermissionDenied};
        for (kind, expected) in [
            (ConnectionAborted, true),
            (Other, false),
            (OutOfMemory, false),
            (PermissionDenied, false),
        ] {
            assert_eq!(concerns_one_connection(&kind.into()), expected, "{kind:?}");
        }
    }
}
