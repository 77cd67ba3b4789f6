//! Outbound HTTP on reqwest, told to do nothing of its own accord: no redirect, proxy, retry or cookie,
//! our resolver, the caller's deadline.
//!
//! Always: an error claims "not sent" only where that is known; in doubt it says "may have been seen". A
//! request or an answer that is given up takes its HTTP/1 connection along.

use std::{
    error::Error,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use ron_core::seam::{BoxFuture, Http, HttpError};

use crate::{TokioRuntime, net};

/// A client that trusts the system's authorities and, besides, those of `extra_ca_pem`.
pub(crate) fn client(extra_ca_pem: Option<&[u8]>) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false)
        .tcp_nodelay(true)
        .dns_resolver(Arc::new(SeamResolver));
    if let Some(pem) = extra_ca_pem {
        builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    builder.build()
}

impl Http for TokioRuntime {
    fn request(
        &self,
        request: http::Request<Bytes>,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        Box::pin(async move {
            let to = check_uri(request.uri())?;
            let known = !request.body().is_empty();
            let sent = Arc::new(AtomicBool::new(!known));
            let request = request.map(|bytes| body(bytes, &sent));
            let request =
                reqwest::Request::try_from(request).map_err(|e| HttpError::Invalid(chain(&e)))?;
            if Instant::now() >= deadline {
                return Err(HttpError::Timeout { sent: false });
            }
            let answer = self.client.execute(request);
            match tokio::time::timeout_at(deadline.into(), answer).await {
                Ok(Ok(response)) => Ok(http::Response::from(response).map(Body::new)),
                Ok(Err(error)) => Err(classify(error, to)),
                Err(_) => Err(HttpError::Timeout {
                    sent: sent.load(Ordering::Relaxed),
                }),
            }
        })
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
    if error.is_builder() {
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
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io::Error::new(io.kind(), io.to_string()));
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
fn body(bytes: Bytes, sent: &Arc<AtomicBool>) -> reqwest::Body {
    if bytes.is_empty() {
        return reqwest::Body::from(bytes);
    }
    reqwest::Body::wrap(TellTale {
        bytes: Some(bytes),
        sent: sent.clone(),
    })
}

/// A body that notes when it is first asked for: only then can the request have left.
struct TellTale {
    bytes: Option<Bytes>,
    sent: Arc<AtomicBool>,
}

impl HttpBody for TellTale {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.sent.store(true, Ordering::Relaxed);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}

struct SeamResolver;

impl Resolve for SeamResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = async move {
            // Port 0: reqwest puts in the one of the address.
            let found = net::resolve(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        };
        Box::pin(found) as Pin<Box<dyn Future<Output = _> + Send>>
    }
}
