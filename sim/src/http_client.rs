//! Outbound HTTP of a simulated process: hyper over the simulated network, with keep-alive.
//!
//! Like its production twin it follows no redirects and retries nothing that can have been sent; a
//! pooled connection that turns out closed before the request went out is replaced quietly. Each way out has
//! its own connections.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use axum::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use ron_core::{
    outbound::Egress,
    seam::{Clock, Conn, HttpError, Net, Tasks},
};

use crate::runtime::SimRuntime;

/// Idle connections kept to one address.
const IDLE_PER_HOST: usize = 64;

/// Closed connections are looked for after so many requests, or as many as there are addresses.
const SWEEP_AFTER: usize = 64;

/// Host and port.
type Target = (String, u16);
type Sender = SendRequest<Body>;

#[derive(Default)]
pub struct HttpClient {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_address: BTreeMap<SocketAddr, Vec<(Egress, Sender)>>,
    /// Kept since closed ones were last swept out everywhere.
    kept: usize,
}

impl HttpClient {
    pub async fn request(
        &self,
        runtime: &SimRuntime,
        request: http::Request<Body>,
        egress: Egress,
        deadline: Instant,
    ) -> Result<http::Response<Body>, HttpError> {
        let sent = AtomicBool::new(false);
        let timer = runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            answer = self.exchange(runtime, request, &egress, &sent) => answer,
            () = timer => Err(HttpError::Timeout { sent: sent.into_inner() }),
        }
    }

    async fn exchange(
        &self,
        runtime: &SimRuntime,
        request: http::Request<Body>,
        egress: &Egress,
        sent: &AtomicBool,
    ) -> Result<http::Response<Body>, HttpError> {
        let authority = request.uri().authority().cloned();
        let to = || {
            authority
                .as_ref()
                .map_or(String::new(), ToString::to_string)
        };
        let (target, mut request) = origin_form(request)?;
        let connect_error = |source: io::Error| HttpError::Connect { to: to(), source };
        let found = runtime.resolve(&target.0, target.1).await;
        let found = found.map_err(connect_error)?;
        let addresses = egress.addresses().retain(found, SocketAddr::ip);
        let addresses = addresses.map_err(|source| HttpError::Forbidden { to: to(), source })?;
        loop {
            let (addr, mut sender, reused) = match self.take_idle(&addresses, egress) {
                Some((addr, sender)) => (addr, sender, true),
                None => {
                    let opened = open(runtime, &addresses).await;
                    let (addr, sender) = opened.map_err(connect_error)?;
                    (addr, sender, false)
                }
            };
            if sender.ready().await.is_err() {
                if reused {
                    continue;
                }
                return Err(connect_error(io::ErrorKind::ConnectionReset.into()));
            }
            sent.store(true, Relaxed);
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    self.keep(addr, egress, sender);
                    return Ok(answer.map(Body::new));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if reused => request = unsent,
                    Some(_) => return Err(connect_error(io::ErrorKind::ConnectionReset.into())),
                    None => {
                        return Err(HttpError::Lost {
                            source: Box::new(failed.into_error()),
                        });
                    }
                },
            }
            sent.store(false, Relaxed);
        }
    }

    fn take_idle(&self, addresses: &[SocketAddr], egress: &Egress) -> Option<(SocketAddr, Sender)> {
        let mut idle = self.idle.lock().unwrap();
        addresses.iter().find_map(|addr| {
            let senders = idle.by_address.get_mut(addr)?;
            senders.retain(|(_, sender)| !sender.is_closed());
            // One whose last answer is still being read is not ready: it stays.
            let ready = |(of, sender): &(Egress, Sender)| sender.is_ready() && of == egress;
            let ready = senders.iter().rposition(ready)?;
            Some((*addr, senders.swap_remove(ready).1))
        })
    }

    pub fn close_idle(&self) {
        self.idle.lock().unwrap().by_address.clear();
    }

    fn keep(&self, addr: SocketAddr, egress: &Egress, sender: Sender) {
        let mut guard = self.idle.lock().unwrap();
        let idle = &mut *guard;
        let senders = idle.by_address.entry(addr).or_default();
        if senders.len() < IDLE_PER_HOST {
            senders.push((egress.clone(), sender));
        }
        // Amortised: who asks many hosts once must not hold what they closed for ever.
        idle.kept += 1;
        if idle.kept > SWEEP_AFTER.max(idle.by_address.len()) {
            idle.kept = 0;
            idle.by_address.retain(|_, senders| {
                senders.retain(|(_, sender)| !sender.is_closed());
                !senders.is_empty()
            });
        }
    }
}

/// To the first that takes the connection.
async fn open(runtime: &SimRuntime, addresses: &[SocketAddr]) -> io::Result<(SocketAddr, Sender)> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for addr in addresses {
        match runtime.connect(*addr).await {
            Ok(conn) => return Ok((*addr, handshaken(runtime, conn).await?)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn handshaken(runtime: &SimRuntime, conn: Conn) -> io::Result<Sender> {
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
fn origin_form(request: http::Request<Body>) -> Result<(Target, http::Request<Body>), HttpError> {
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
    Ok(((host, port), http::Request::from_parts(parts, body)))
}
