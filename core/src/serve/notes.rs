//! What one connection knows about itself, shared by its IO, its requests and its task.
//!
//! Plain atomics: all of it is written and read by the connection's own task, except under HTTP/2, where
//! each stream is a task of its own and wakes the connection when the last request has ended.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use futures_util::task::AtomicWaker;

use super::{
    Refusal, Shared,
    frames::{Flood, Frames},
    held::Observe,
    watch::Seen,
};

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How the server wants the connection to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    Serve = 0,
    /// Finish what is in hand, then close.
    Finish = 1,
    /// Drop what is in hand.
    Abort = 2,
}

/// What the server left unread of the last request's body, under HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unread {
    Nothing = 0,
    /// Likely in the buffer already: the connection may well go on.
    Little = 1,
    /// Too much to be read for nothing: the connection is over.
    Much = 2,
}

impl Unread {
    fn of(n: u8) -> Unread {
        match n {
            0 => Unread::Nothing,
            1 => Unread::Little,
            _ => Unread::Much,
        }
    }
}

pub(super) struct Notes {
    pub shared: Arc<Shared>,
    in_flight: AtomicUsize,
    finished: AtomicU64,
    head_open: AtomicBool,
    /// Something has come in.
    heard: AtomicBool,
    /// In nanoseconds since the server began.
    idle_since: AtomicU64,
    /// All that was answered is flushed: what hyper writes now, it says by itself.
    quiet: AtomicBool,
    http2: AtomicBool,
    /// What is to be said to a peer that floods, once.
    farewell: Mutex<Option<[u8; 17]>>,
    write_blocked: AtomicBool,
    flush_blocked: AtomicBool,
    writes: AtomicU64,
    unread: AtomicU8,
    /// HTTP/2 responses of which the peer has left a piece untaken, and since when.
    untaken: Mutex<BTreeMap<u64, Instant>>,
    wish: AtomicU8,
    task: AtomicWaker,
}

impl Notes {
    pub fn new(shared: Arc<Shared>) -> Self {
        let idle_since = shared.env.now().saturating_duration_since(shared.began);
        Notes {
            shared,
            heard: AtomicBool::new(false),
            idle_since: AtomicU64::new(idle_since.as_nanos() as u64),
            quiet: AtomicBool::new(true),
            farewell: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            head_open: AtomicBool::new(true),
            http2: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            flush_blocked: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            unread: AtomicU8::new(Unread::Nothing as u8),
            untaken: Mutex::default(),
            wish: AtomicU8::new(Wish::Serve as u8),
            task: AtomicWaker::new(),
        }
    }

    pub fn seen(&self) -> Seen {
        let http2 = self.is_http2();
        Seen {
            in_flight: self.in_flight.load(Relaxed),
            finished: self.finished.load(Relaxed),
            head_open: !http2 && self.head_open.load(Relaxed),
            write_blocked: self.write_blocked.load(Relaxed) || self.flush_blocked.load(Relaxed),
            writes: self.writes.load(Relaxed),
            untaken_since: http2
                .then(|| self.untaken().values().min().copied())
                .flatten(),
        }
    }

    /// Since when the connection could go without a loss; `None` while it could not.
    pub fn idle_since(&self) -> Option<u64> {
        let seen = self.seen();
        let in_hand = seen.in_flight > 0 || (seen.head_open && self.heard.load(Relaxed));
        let serving = self.wish.load(Relaxed) == Wish::Serve as u8;
        (serving && !in_hand).then(|| self.idle_since.load(Relaxed))
    }

    pub fn set_idle_since(&self, since: Instant) {
        let since = since.saturating_duration_since(self.shared.began);
        self.idle_since.store(since.as_nanos() as u64, Relaxed);
    }

    pub fn take_farewell(&self) -> Option<[u8; 17]> {
        let mut farewell = self.farewell.lock().unwrap_or_else(PoisonError::into_inner);
        farewell.take()
    }

    pub fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    // -------------------------------------------------------------------------------- requests

    /// Notes a request; it counts as in flight until the guard drops.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.head_open.store(false, Relaxed);
        self.quiet.store(false, Relaxed);
        self.unread.store(Unread::Nothing as u8, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self.clone())
    }

    /// A body was dropped before its end. Under HTTP/2 that concerns its stream alone.
    pub fn leave_unread(&self, unread: Unread) {
        if !self.is_http2() {
            self.unread.store(unread as u8, Relaxed);
        }
    }

    pub fn left_unread(&self) -> Unread {
        Unread::of(self.unread.load(Relaxed))
    }

    /// Tells it once: under TLS, two layers are closed one after the other.
    pub fn take_unread(&self) -> Unread {
        Unread::of(self.unread.swap(Unread::Nothing as u8, Relaxed))
    }

    /// The response `id` waits for the peer (`Some`) or for its own producer (`None`).
    pub fn set_untaken(&self, id: u64, since: Option<Instant>) {
        match since {
            Some(since) => self.untaken().insert(id, since),
            None => self.untaken().remove(&id),
        };
    }

    /// A limit may run out earlier than the connection's task thinks: let it look again.
    pub fn look_again(&self) {
        self.task.wake();
    }

    fn untaken(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ------------------------------------------------------------------------------------ wish

    pub fn ask(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Relaxed);
        self.task.wake();
    }

    /// Reads the wish and has `cx` woken when it changes.
    pub fn poll_wish(&self, cx: &Context<'_>) -> Wish {
        self.task.register(cx.waker());
        match self.wish.load(Relaxed) {
            0 => Wish::Serve,
            1 => Wish::Finish,
            _ => Wish::Abort,
        }
    }

    /// Resolves when the server wishes `least` or more.
    pub async fn asked(&self, least: Wish) {
        poll_fn(|cx| {
            if self.poll_wish(cx) >= least {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A request in hand, until this drops.
pub(super) struct InFlight(Arc<Notes>);

impl InFlight {
    pub fn notes(&self) -> &Arc<Notes> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let notes = &self.0;
        notes.finished.fetch_add(1, Relaxed);
        let was = notes.in_flight.fetch_sub(1, Relaxed);
        if was == 1 && notes.is_http2() {
            notes.look_again();
        }
    }
}

/// Watches the bytes of a connection on behalf of its notes.
pub(super) struct Lookout {
    notes: Arc<Notes>,
    /// How much of the HTTP/2 preface the first bytes have matched; `None` once decided.
    preface: Option<usize>,
    frames: Option<Frames>,
}

impl Lookout {
    pub fn new(notes: Arc<Notes>) -> Self {
        Lookout {
            notes,
            preface: Some(0),
            frames: None,
        }
    }

    /// What follows the preface in `bytes`.
    fn match_preface<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(seen) = self.preface else {
            return bytes;
        };
        let rest = &HTTP2_PREFACE[seen..];
        let n = rest.len().min(bytes.len());
        self.preface = (bytes[..n] == rest[..n] && n < rest.len()).then_some(seen + n);
        if bytes[..n] == rest[..n] && n == rest.len() {
            self.notes.http2.store(true, Relaxed);
            let shared = &self.notes.shared;
            let per_s = shared.options.http2_frames_per_s;
            self.frames = Some(Frames::new(per_s, shared.env.now()));
        }
        &bytes[n..]
    }

    #[cold]
    fn flooded(&mut self) -> io::Error {
        let notes = &self.notes;
        notes.shared.refuse(Refusal::Flood, None);
        // What was begun to be written must be ended first.
        let between_frames = !notes.seen().write_blocked;
        if let Some(frames) = self.frames.as_ref().filter(|_| between_frames) {
            let mut farewell = notes
                .farewell
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *farewell = Some(frames.farewell());
        }
        notes.unread.store(Unread::Much as u8, Relaxed);
        io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "too many frames without a request",
        )
    }
}

impl Observe for Lookout {
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = self.match_preface(bytes);
        self.notes.heard.store(true, Relaxed);
        if let Some(frames) = &mut self.frames {
            let env = &self.notes.shared.env;
            return match frames.read(bytes, || env.now()) {
                Ok(()) => Ok(()),
                Err(Flood) => Err(self.flooded()),
            };
        }
        if self.notes.in_flight.load(Relaxed) == 0 {
            self.notes.head_open.store(true, Relaxed);
        }
        Ok(())
    }

    fn instead(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let notes = &self.notes;
        if !notes.quiet.load(Relaxed) || notes.is_http2() {
            return None;
        }
        // Nothing was asked that is not answered: hyper tells what it thinks of the request head.
        let refusal = Refusal::of_parser(data);
        let id = notes.shared.refuse(refusal, None);
        // The rest of what was sent is heard out, else a reset takes the answer with it.
        notes.unread.store(Unread::Much as u8, Relaxed);
        Some(refusal.answer(id.as_str()))
    }

    fn wrote(&mut self, result: &Poll<io::Result<usize>>) {
        self.notes.write_blocked.store(result.is_pending(), Relaxed);
        if result.is_ready() {
            self.notes.writes.fetch_add(1, Relaxed);
        }
    }

    fn flushed(&mut self, pending: bool) {
        self.notes.flush_blocked.store(pending, Relaxed);
        if !pending && self.notes.in_flight.load(Relaxed) == 0 {
            self.notes.quiet.store(true, Relaxed);
        }
    }
}
