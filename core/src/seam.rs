//! The seam: everything a service may ask of the outside world, as six small object-safe traits.
//!
//! `ron-io` implements them on Tokio, `sim` on a virtual clock. Service code never sees an implementation,
//! only [`Env`](crate::Env). The contract suite runs one body of tests against both sides, so that
//! a rule written here is a rule in production and in simulation alike.

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::outbound::{Egress, Forbidden, IdentityError, TlsIdentity};

/// A boxed, sendable future: what an object-safe async method returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

// ---------------------------------------------------------------------------------------- clock

/// Time. `now` only moves forward; `wall` may jump, as real clocks do.
pub trait Clock {
    fn now(&self) -> Instant;
    fn wall(&self) -> SystemTime;
    /// Resolves once `now() >= at`. Dropping it cancels the timer.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;
}

// -------------------------------------------------------------------------------------- network

/// A byte stream: ordered, with back-pressure, each direction closed on its own.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub type Conn = Box<dyn Duplex>;

pub trait Listener: Send + Sync {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>>;
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

pub trait Net {
    /// Port 0 asks for a free port; an address in use fails with `AddrInUse`.
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;
    /// Has no timeout of its own: a host that answers nothing hangs until the caller gives up.
    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>>;
    /// Addresses of a host name (or literal) in a stable order; never empty on success.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// One request out, one streamed answer back. It follows no redirect, uses no proxy and retries
/// nothing: policy belongs to the caller.
pub trait Http {
    /// `deadline` bounds connecting, sending and the response head. The answer's body is bounded by
    /// whoever reads it; every error says whether the request can have reached the other side. The
    /// request's body is asked for as the other side takes it, and is announced by its length if that is
    /// known. The addresses of `egress` are asked about the very address that is dialled, literals
    /// included, and a connection is used for requests of one egress only.
    fn request(
        &self,
        request: http::Request<Body>,
        egress: Egress,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>>;

    /// Whether connections can be made with this identity at all.
    fn check_identity(&self, identity: &TlsIdentity) -> Result<(), IdentityError> {
        identity.check_pem()
    }
}

/// Why an outbound request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is no absolute http(s) URL, or a header cannot be sent.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// No connection was made: the request was certainly not seen.
    #[error("cannot connect to {to}")]
    Connect { to: String, source: io::Error },
    /// The way out forbids every address of the host: the request was certainly not sent.
    #[error("{to} must not be asked")]
    Forbidden { to: String, source: Forbidden },
    /// The deadline passed. `sent` tells whether the outcome is unknown.
    #[error("deadline exceeded (request {})", if *sent { "may have been seen" } else { "was not sent" })]
    Timeout { sent: bool },
    /// The connection broke after the request was, or may have been, sent: outcome unknown.
    #[error("connection lost before the answer")]
    Lost {
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl HttpError {
    /// True if the other side may have acted on the request.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            HttpError::Invalid(_) | HttpError::Connect { .. } | HttpError::Forbidden { .. } => {
                false
            }
            HttpError::Timeout { sent } => *sent,
            HttpError::Lost { .. } => true,
        }
    }
}

// ---------------------------------------------------------------------------------------- tasks

/// A named, bounded set of threads for work that blocks or burns CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    pub name: &'static str,
    /// At most this many closures of the pool run at once; the rest wait in order.
    pub threads: usize,
}

impl Pool {
    /// File operations. The only pool that may touch [`Disk`].
    pub const DISK: Pool = Pool {
        name: "disk",
        threads: 4,
    };
    /// Hashing, signatures, compression.
    pub const CPU: Pool = Pool {
        name: "cpu",
        threads: 2,
    };
}

/// Stops a spawned task at its next await point.
pub trait Abort: Send + Sync {
    fn abort(&self);
}

pub trait Tasks {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort>;
    /// Starts `job` at once, whether or not the returned future is polled, and completes it even if
    /// that future is dropped; only the death of the process stops it.
    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}

// -------------------------------------------------------------------------------------- entropy

/// The one source of randomness. Logic draws from a generator seeded here ([`Env::rng`](crate::Env::rng)).
pub trait Entropy {
    fn fill(&self, buf: &mut [u8]);
}

// ----------------------------------------------------------------------------------------- disk

/// How [`Disk::open`] treats a file that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// It is created empty if absent.
    Create,
    /// It must not exist yet.
    CreateNew,
}

/// Tells two files apart, even under one name: a replaced file has another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64, pub u64);

/// Files under one root, by relative `/`-separated path. Every call blocks, so it is reached only
/// through [`Env::disk`](crate::Env::disk), which runs it on [`Pool::DISK`].
///
/// Durability is what a careful reader of POSIX expects and no more: contents survive a crash once
/// `sync` returned, names (creation, rename, removal) once `sync_dir` of their directory returned.
pub trait Disk: Send + Sync {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory and its parents; one that exists is no error.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Replaces `to` in one step if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names in a directory, sorted; a directory's name ends in `/`.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// What the name points to now; `None` if nothing.
    fn identity(&self, path: &str) -> io::Result<Option<FileId>>;
    /// Takes the exclusive lock of a file (created if absent), held until the guard drops or the
    /// process dies. Held elsewhere: `WouldBlock`.
    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file; positions are explicit, so one handle serves many readers.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes; 0 at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `data`, or fails having written any prefix of it.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Writes all of `data` at the end and returns where it starts.
    fn append(&self, data: &[u8]) -> io::Result<u64>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes contents and length durable. After a failure, what was written since the last success
    /// may be lost without another error: treat it as lost.
    fn sync(&self) -> io::Result<()>;
    fn identity(&self) -> io::Result<FileId>;
}

/// Held while it lives.
pub trait DiskLock: Send + Sync {}

// ---------------------------------------------------------------------------------------- probe

/// What a run tells its observer. Nothing in production; the trace in a simulation.
pub trait Probe {
    /// `event` happened to the thing numbered `id` (an item, an index, a version; 0 if to none).
    fn probe(&self, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        let _ = (event, id, detail);
    }
}

// -------------------------------------------------------------------------------------- runtime

/// All of it. One implementation per world.
pub trait Runtime: Clock + Net + Http + Tasks + Entropy + Probe + Send + Sync + 'static {
    /// The disk of this process. Called only from inside [`Pool::DISK`].
    fn disk(&self) -> Arc<dyn Disk>;
}
