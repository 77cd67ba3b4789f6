//! Outbound HTTP on reqwest, told to do nothing of its own accord: no redirect, proxy, retry or cookie,
//! our resolver, the caller's deadline.
//!
//! Always: an error claims "not sent" only where that is known; in doubt it says "may have been seen". A
//! request or an answer that is given up takes its HTTP/1 connection along.

use std::{
    error::Error,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use ron_core::{
    outbound::{AddressPolicy, Egress, Forbidden, IdentityError, TlsIdentity, certificates},
    seam::{BoxFuture, Http, HttpError},
};

use crate::{TokioRuntime, net, tls};

/// Ways out whose connections are kept. A service has one or two; the one longest unused makes room.
const WAYS: usize = 16;

/// One client per way out, so that no two ways share a connection.
pub(crate) struct Clients {
    extra_ca: Vec<reqwest::Certificate>,
    /// The last used comes last.
    known: Mutex<Vec<(Egress, reqwest::Client)>>,
}

impl Clients {
    /// Without an identity of their own, requests trust the system's authorities and, besides, those of
    /// `extra_ca_pem`.
    pub fn new(extra_ca_pem: Option<&[u8]>) -> Result<Self, IdentityError> {
        let clients = Clients {
            extra_ca: match extra_ca_pem {
                Some(pem) => authorities(pem)?,
                None => Vec::new(),
            },
            known: Mutex::default(),
        };
        clients.of(&Egress::default())?;
        Ok(clients)
    }

    fn of(&self, egress: &Egress) -> Result<reqwest::Client, IdentityError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match known.iter().position(|(of, _)| of == egress) {
            Some(at) => known.remove(at).1,
            None => self.make(egress.identity(), egress.addresses().clone())?,
        };
        if known.len() >= WAYS {
            known.remove(0);
        }
        known.push((egress.clone(), client.clone()));
        Ok(client)
    }

    fn make(
        &self,
        identity: &TlsIdentity,
        addresses: AddressPolicy,
    ) -> Result<reqwest::Client, IdentityError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .tcp_nodelay(true)
            .dns_resolver(Arc::new(SeamResolver { addresses }));
        builder = match &identity.ca {
            Some(ca) => builder.tls_certs_only(authorities(ca)?),
            None => builder.tls_certs_merge(self.extra_ca.iter().cloned()),
        };
        if let Some(client) = &identity.client {
            tls::check_client(client)?;
            let whole = [&client.cert[..], b"\n", &client.key[..]].concat();
            let whole = zeroize::Zeroizing::new(whole);
            builder = builder.identity(reqwest::Identity::from_pem(&whole).map_err(refused)?);
        }
        builder.build().map_err(refused)
    }
}

fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, IdentityError> {
    tls::check_authorities(pem)?;
    let found = certificates("authority", pem)?;
    let found = found.iter().map(|der| reqwest::Certificate::from_der(der));
    found.collect::<Result<_, _>>().map_err(refused)
}

fn refused(error: reqwest::Error) -> IdentityError {
    IdentityError::Refused("TLS identity", chain(&error))
}

impl Http for TokioRuntime {
    fn request(
        &self,
        request: http::Request<Body>,
        egress: Egress,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        Box::pin(async move {
            let to = check_uri(request.uri())?;
            let sent = Arc::new(AtomicBool::new(request.body().is_end_stream()));
            let request = request.map(|inner| body(inner, &sent));
            let request =
                reqwest::Request::try_from(request).map_err(|e| HttpError::Invalid(chain(&e)))?;
            if let Err(source) = check_literal(request.url(), egress.addresses()) {
                return Err(HttpError::Forbidden { to, source });
            }
            let client = self.clients.of(&egress);
            let client = client.map_err(|error| HttpError::Invalid(error.to_string()))?;
            if Instant::now() >= deadline {
                return Err(HttpError::Timeout { sent: false });
            }
            match tokio::time::timeout_at(deadline.into(), client.execute(request)).await {
                Ok(Ok(response)) => Ok(http::Response::from(response).map(Body::new)),
                Ok(Err(error)) => Err(classify(error, to)),
                Err(_) => Err(HttpError::Timeout {
                    sent: sent.load(Ordering::Relaxed),
                }),
            }
        })
    }

    fn check_identity(&self, identity: &TlsIdentity) -> Result<(), IdentityError> {
        self.clients.make(identity, AddressPolicy::none()).map(drop)
    }
}

/// No resolver is asked about a literal. The parsed URL tells what will be dialled: it has made `127.0.0.1` of
/// `0x7f.1` and of `2130706433`.
fn check_literal(url: &reqwest::Url, addresses: &AddressPolicy) -> Result<(), Forbidden> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(literal) => addresses.check(literal),
        Err(_) => Ok(()),
    }
}

/// The authority of an absolute http(s) address.
fn check_uri(uri: &http::Uri) -> Result<String, HttpError> {
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) => Ok(authority.to_string()),
        _ => Err(HttpError::Invalid(format!(
            "`{uri}` is no absolute http or https address"
        ))),
    }
}

fn classify(error: reqwest::Error, to: String) -> HttpError {
    if let Some(forbidden) = find::<Forbidden>(&error) {
        let source = *forbidden;
        HttpError::Forbidden { to, source }
    } else if error.is_builder() {
        HttpError::Invalid(chain(&error))
    } else if error.is_connect() {
        let source = find_io(&error).unwrap_or_else(|| io::Error::other(chain(&error)));
        HttpError::Connect { to, source }
    } else {
        HttpError::Lost {
            source: error.without_url().into(),
        }
    }
}

/// The system's own error beneath `error`, so that its kind (refused, unreachable) is kept.
fn find_io(error: &reqwest::Error) -> Option<io::Error> {
    find::<io::Error>(error).map(|io| io::Error::new(io.kind(), io.to_string()))
}

fn find<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// An empty body is never asked for, so it cannot tell whether the request went out.
fn body(inner: Body, sent: &Arc<AtomicBool>) -> reqwest::Body {
    if inner.is_end_stream() {
        return reqwest::Body::from(Bytes::new());
    }
    reqwest::Body::wrap(TellTale {
        inner: Mutex::new(inner),
        sent: sent.clone(),
    })
}

/// A body that notes when it is first asked for: only then can the request have left.
struct TellTale {
    // Never locked but to look at it: reqwest wants a body that could be shared, and does not share it.
    inner: Mutex<Body>,
    sent: Arc<AtomicBool>,
}

impl TellTale {
    fn look<T>(&self, at: impl FnOnce(&Body) -> T) -> T {
        at(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HttpBody for TellTale {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.sent.store(true, Ordering::Relaxed);
        let inner = self.inner.get_mut();
        Pin::new(inner.unwrap_or_else(PoisonError::into_inner)).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.look(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.look(HttpBody::size_hint)
    }
}

/// What it returns is what is dialled, so this is where a name is checked.
struct SeamResolver {
    addresses: AddressPolicy,
}

impl Resolve for SeamResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.addresses.clone();
        let found = async move {
            // Port 0: reqwest puts in the one of the address.
            let found = net::resolve(name.as_str(), 0).await?;
            let allowed = addresses.retain(found, std::net::SocketAddr::ip)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        };
        Box::pin(found) as Pin<Box<dyn Future<Output = _> + Send>>
    }
}
