//! The task of one connection: handshake, hyper, its limits, and a proper close whatever happened.
//!
//! Always: the stream is shut down on every way out, once; no task of the connection outlives it.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::Router;
use hyper_util::{rt::TokioIo, server::conn::auto::Builder};

use super::{
    ClientCert, Peer, Phase,
    alarm::Alarm,
    held::Lender,
    notes::{Lookout, Notes, Unread, Wish},
    request::App,
    streams::Streams,
    watch::{Limits, Watch},
};
use crate::{Env, hyper_seam::EnvTimer, seam::Conn};

/// Larger heads are refused by hyper; it also bounds what is buffered per connection.
const BUFFER_BYTES: usize = 64 * 1024;
const HTTP2_STREAMS: u32 = 128;
/// How long, and how much, a client may go on sending a body that nobody reads any more. A close while it
/// sends would be a reset, which takes the answer with it.
const HEAR_OUT: Duration = Duration::from_secs(2);
const HEAR_OUT_BYTES: usize = 16 << 20;

pub(super) async fn run(notes: Arc<Notes>, router: Router, conn: Conn, addr: std::net::SocketAddr) {
    let raw = Lender::default();
    let http = Lender::default();
    let conn = if notes.shared.options.tls.is_some() {
        handshake(&notes, &raw, conn).await
    } else {
        Some((conn, None))
    };
    if let Some((conn, cert)) = conn {
        let peer = Peer {
            addr,
            cert: cert.map(Arc::new),
        };
        serve_http(&notes, &http, router, conn, peer).await;
    }
    // The outer layer first: TLS says goodbye through the stream below it.
    close(&notes, &http).await;
    close(&notes, &raw).await;
}

async fn handshake(notes: &Notes, raw: &Lender, conn: Conn) -> Option<(Conn, Option<ClientCert>)> {
    let shared = &notes.shared;
    let tls = shared.options.tls.as_ref()?;
    let accepted = shared.env.timeout(
        shared.options.header_read,
        tls.accept(Box::new(raw.lend(conn, ()))),
    );
    tokio::select! {
        biased;
        result = accepted => match result {
            Ok(Ok(accepted)) => Some(accepted),
            Ok(Err(_)) => {
                shared.options.stats.handshakes_failed.fetch_add(1, Relaxed);
                None
            }
            Err(_) => {
                shared.options.stats.count_timeout(Phase::HeaderRead);
                None
            }
        },
        () = notes.asked(Wish::Finish) => None,
    }
}

async fn serve_http(notes: &Arc<Notes>, lender: &Lender, router: Router, conn: Conn, peer: Peer) {
    let shared = &notes.shared;
    let streams = Streams::new(shared.clone());
    {
        let mut builder = Builder::new(streams.clone());
        builder
            .http1()
            .timer(EnvTimer(shared.env.clone()))
            // Ours needs no timer per request.
            .header_read_timeout(None)
            .max_buf_size(BUFFER_BYTES);
        builder
            .http2()
            .timer(EnvTimer(shared.env.clone()))
            .max_concurrent_streams(HTTP2_STREAMS);
        let io = TokioIo::new(lender.lend(conn, Lookout::new(notes.clone())));
        let app = App {
            router,
            notes: notes.clone(),
            peer,
        };
        let mut http = pin!(builder.serve_connection(io, app));
        let mut watchdog = Watchdog::new(notes);
        let mut closing = false;

        poll_fn(|cx| {
            match notes.poll_wish(cx) {
                Wish::Abort => return Poll::Ready(()),
                Wish::Finish if !closing => {
                    closing = true;
                    http.as_mut().graceful_shutdown();
                }
                _ => {}
            }
            loop {
                match catch_unwind(AssertUnwindSafe(|| http.as_mut().poll(cx))) {
                    Ok(Poll::Pending) => {}
                    // An error tells that the peer broke off or broke the protocol: its own affair.
                    Ok(Poll::Ready(_)) => return Poll::Ready(()),
                    Err(_) => {
                        crate::sometimes!("serve.panicked");
                        shared.options.stats.panics.fetch_add(1, Relaxed);
                        return Poll::Ready(());
                    }
                }
                match watchdog.poll(cx, notes, closing) {
                    None => return Poll::Pending,
                    Some(Phase::Idle) if !closing => {
                        shared.options.stats.count_timeout(Phase::Idle);
                        closing = true;
                        http.as_mut().graceful_shutdown();
                    }
                    Some(Phase::Idle) => return Poll::Ready(()),
                    Some(phase) => {
                        shared.options.stats.count_timeout(phase);
                        return Poll::Ready(());
                    }
                }
            }
        })
        .await;
    }
    streams.gone().await;
}

async fn close(notes: &Notes, lender: &Lender) {
    let Some(mut conn) = lender.take_back() else {
        return;
    };
    let shared = &notes.shared;
    if let Some(farewell) = notes.take_farewell() {
        conn.say(&farewell);
    }
    let properly = async {
        let told = shared.env.timeout(shared.options.write, conn.shutdown());
        if told.await.is_ok() && notes.take_unread() > Unread::Nothing {
            let heard = conn.hear_out(HEAR_OUT_BYTES);
            let _ = shared.env.timeout(HEAR_OUT, heard).await;
        }
    };
    tokio::select! {
        biased;
        () = properly => {}
        () = notes.asked(Wish::Abort) => {}
    }
}

/// The limits of a connection, with at most one timer, which is re-armed only for an earlier instant: a
/// busy connection touches no timer at all.
struct Watchdog {
    env: Env,
    watch: Watch,
    alarm: Alarm,
    /// Set when the connection was asked to close while idle: it then has the write limit for it.
    closing_since: Option<Instant>,
}

impl Watchdog {
    fn new(notes: &Notes) -> Self {
        let (env, options) = (notes.shared.env.clone(), &notes.shared.options);
        let limits = Limits {
            header_read: options.header_read,
            write: options.write,
            idle: options.idle,
        };
        Watchdog {
            watch: Watch::new(limits, env.now()),
            env,
            alarm: Alarm::default(),
            closing_since: None,
        }
    }

    /// The limit that has run out, if one has; else `cx` is woken no later than when one may.
    fn poll(&mut self, cx: &mut Context<'_>, notes: &Notes, closing: bool) -> Option<Phase> {
        let now = self.env.now();
        let mut due = self.watch.observe(now, notes.seen());
        notes.set_idle_since(self.watch.idle_since());
        if closing && matches!(due, Some((_, Phase::Idle))) {
            let since = *self.closing_since.get_or_insert(now);
            due = Some((since + notes.shared.options.write, Phase::Idle));
        }
        let (at, phase) = due?;
        if at <= now {
            return Some(phase);
        }
        let env = &self.env;
        self.alarm.wake_by(at, now, cx, |at| env.sleep_until(at));
        None
    }
}
