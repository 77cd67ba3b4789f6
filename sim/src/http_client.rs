//! Outbound HTTP of a simulated process: hyper over the simulated network, with keep-alive.
//!
//! Like its production twin it follows no redirects and retries nothing that can have been sent; a
//! pooled connection that turns out closed before the request went out is replaced quietly.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Mutex, time::Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use ron_core::seam::{Clock, HttpError, Net, Tasks};

use crate::runtime::SimRuntime;

/// Idle connections kept to one address.
const IDLE_PER_HOST: usize = 64;

/// Closed connections are looked for after so many requests, or as many as there are addresses.
const SWEEP_AFTER: usize = 64;

/// Host and port.
type Target = (String, u16);
type Sender = SendRequest<Full<Bytes>>;

#[derive(Default)]
pub struct HttpClient {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_address: BTreeMap<SocketAddr, Vec<Sender>>,
    /// Kept since closed ones were last swept out everywhere.
    kept: usize,
}

impl HttpClient {
    pub async fn request(
        &self,
        runtime: &SimRuntime,
        request: http::Request<Bytes>,
        deadline: Instant,
    ) -> Result<http::Response<Body>, HttpError> {
        let sent = std::sync::atomic::AtomicBool::new(false);
        let timer = runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            answer = self.exchange(runtime, request, &sent) => answer,
            () = timer => Err(HttpError::Timeout { sent: sent.into_inner() }),
        }
    }

    async fn exchange(
        &self,
        runtime: &SimRuntime,
        request: http::Request<Bytes>,
        sent: &std::sync::atomic::AtomicBool,
    ) -> Result<http::Response<Body>, HttpError> {
        let (target, mut request) = origin_form(request)?;
        let to = || format!("{}:{}", target.0, target.1);
        let connect_error = |source: io::Error| HttpError::Connect { to: to(), source };
        let addr = runtime
            .resolve(&target.0, target.1)
            .await
            .map_err(connect_error)?[0];
        loop {
            let (mut sender, reused) = match self.take_idle(addr) {
                Some(sender) => (sender, true),
                None => (open(runtime, addr).await.map_err(connect_error)?, false),
            };
            if sender.ready().await.is_err() {
                if reused {
                    continue;
                }
                let lost = io::Error::from(io::ErrorKind::ConnectionReset);
                return Err(HttpError::Connect {
                    to: to(),
                    source: lost,
                });
            }
            sent.store(true, std::sync::atomic::Ordering::Relaxed);
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    self.keep(addr, sender);
                    return Ok(answer.map(Body::new));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if reused => request = unsent,
                    Some(_) => {
                        let source = io::Error::from(io::ErrorKind::ConnectionReset);
                        return Err(HttpError::Connect { to: to(), source });
                    }
                    None => {
                        return Err(HttpError::Lost {
                            source: Box::new(failed.into_error()),
                        });
                    }
                },
            }
            sent.store(false, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn take_idle(&self, addr: SocketAddr) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap();
        let senders = idle.by_address.get_mut(&addr)?;
        senders.retain(|sender| !sender.is_closed());
        // One whose last answer is still being read is not ready: it stays.
        let ready = senders.iter().rposition(SendRequest::is_ready)?;
        Some(senders.swap_remove(ready))
    }

    pub fn close_idle(&self) {
        self.idle.lock().unwrap().by_address.clear();
    }

    fn keep(&self, addr: SocketAddr, sender: Sender) {
        let mut guard = self.idle.lock().unwrap();
        let idle = &mut *guard;
        let senders = idle.by_address.entry(addr).or_default();
        if senders.len() < IDLE_PER_HOST {
            senders.push(sender);
        }
        // Amortised: who asks many hosts once must not hold what they closed for ever.
        idle.kept += 1;
        if idle.kept > SWEEP_AFTER.max(idle.by_address.len()) {
            idle.kept = 0;
            idle.by_address.retain(|_, senders| {
                senders.retain(|sender| !sender.is_closed());
                !senders.is_empty()
            });
        }
    }
}

async fn open(runtime: &SimRuntime, addr: SocketAddr) -> io::Result<Sender> {
    let conn = runtime.connect(addr).await?;
    let (sender, connection) = handshake(TokioIo::new(conn))
        .await
        .map_err(io::Error::other)?;
    runtime.spawn(
        "http-client",
        Box::pin(async move {
            let _ = connection.await;
        }),
    );
    Ok(sender)
}

/// Splits an absolute URL into where to connect and what to send there.
fn origin_form(
    request: http::Request<Bytes>,
) -> Result<(Target, http::Request<Full<Bytes>>), HttpError> {
    let (mut parts, body) = request.into_parts();
    let invalid = |why: &str| HttpError::Invalid(format!("{why}: {}", parts.uri));
    if parts.uri.scheme_str() != Some("http") {
        return Err(invalid("the simulated network speaks http only"));
    }
    let authority = parts
        .uri
        .authority()
        .ok_or_else(|| invalid("no host"))?
        .clone();
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", |p| p.as_str())
        .to_owned();
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let host_header =
        http::HeaderValue::from_str(authority.as_str()).map_err(|_| invalid("bad host"))?;
    parts
        .headers
        .entry(http::header::HOST)
        .or_insert(host_header);
    parts.uri = path
        .parse()
        .map_err(|_| HttpError::Invalid(format!("bad path: {path}")))?;
    let port = authority.port_u16().unwrap_or(80);
    Ok((
        (host, port),
        http::Request::from_parts(parts, Full::new(body)),
    ))
}
