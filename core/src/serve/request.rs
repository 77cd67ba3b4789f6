//! One request through the router: its body under the read limit, its response counted until it ends.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use axum::{Router, body::Body, response::IntoResponse, routing::future::RouteFuture};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tower_service::Service;

use super::{
    ClientCert, Phase, Refusal,
    notes::{InFlight, Notes, Unread},
};
use crate::{corr::identify, ops::PROBES, seam::BoxFuture};

/// Who sent a request: found in its extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    pub addr: SocketAddr,
    /// Present if the connection came over TLS with a certificate that was verified.
    pub cert: Option<Arc<ClientCert>>,
}

/// The client stopped sending in the middle of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request body did not arrive in time")]
pub struct BodyReadTimeout;

impl BodyReadTimeout {
    /// Whether `error` is, or was caused by, such a timeout: how an extractor tells 408 from 400.
    pub fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<BodyReadTimeout>() {
                return true;
            }
            next = error.source();
        }
        false
    }
}

/// The chunks of a request body are not what HTTP says they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunks of the request body are malformed")]
pub struct BadFraming;

/// What is left of a refused body up to this size has most likely arrived with its head.
const LITTLE_BYTES: u64 = 32 * 1024;

/// The router, as hyper calls it for one connection.
pub(super) struct App {
    pub router: Router,
    pub notes: Arc<Notes>,
    pub peer: Peer,
}

impl hyper::service::Service<Request<Incoming>> for App {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let in_flight = Some(self.notes.begin());
        let mut request = request.map(|body| TimedBody::wrap(body, &self.notes));
        if let Err(refusal) = self.check(&request) {
            let id = self.notes.shared.refuse(refusal, Some(request.headers()));
            let refused = Some(identify(refusal.problem().into_response(), &id));
            return Answer {
                route: None,
                refused,
                in_flight,
            };
        }
        request.extensions_mut().insert(self.peer.clone());
        Answer {
            route: Some(self.router.clone().call(request)),
            refused: None,
            in_flight,
        }
    }
}

impl App {
    /// What no route needs to look at.
    fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let shared = &self.notes.shared;
        let (uri, headers) = (request.uri(), request.headers());
        shared.options.hosts.check(
            shared.bound,
            PROBES.contains(&uri.path()),
            request.version(),
            uri,
            headers,
        )?;
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) => Ok(()),
            // hyper looks at the end of it only, and would take whatever comes before for the body.
            (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
            _ => Err(Refusal::TransferEncoding),
        }
    }
}

pin_project_lite::pin_project! {
    pub(super) struct Answer {
        #[pin]
        route: Option<RouteFuture<Infallible>>,
        refused: Option<Response<Body>>,
        in_flight: Option<InFlight>,
    }
}

impl Future for Answer {
    type Output = Result<Response<CountedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (route, refused) = (this.route.as_pin_mut(), this.refused);
        let answer = || match route {
            Some(route) => route.poll(cx),
            None => Poll::Ready(Ok(refused.take().unwrap_or_default())),
        };
        // A panicking handler costs its request, not the connection with all its other streams.
        let mut response = match catch_unwind(AssertUnwindSafe(answer)) {
            Ok(poll) => match ready!(poll) {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(_) => {
                if let Some(in_flight) = this.in_flight {
                    let stats = &in_flight.notes().shared.options.stats;
                    stats.panics.fetch_add(1, Relaxed);
                }
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        };
        let in_flight = this.in_flight.take();
        if let Some(in_flight) = &in_flight
            && in_flight.notes().left_unread() == Unread::Much
        {
            // Else the client may send its next request on a connection that is about to close.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Poll::Ready(Ok(response.map(|body| CountedBody::new(body, in_flight))))
    }
}

/// A response body that keeps its request in flight until it ends or is dropped.
pub(super) struct CountedBody {
    body: Body,
    in_flight: Option<InFlight>,
    /// Set under HTTP/2, where a peer that reads nothing shows on no socket.
    id: Option<u64>,
}

impl CountedBody {
    fn new(body: Body, in_flight: Option<InFlight>) -> Self {
        let id = in_flight
            .as_ref()
            .filter(|f| f.notes().is_http2())
            .map(|f| f.notes().shared.next_id());
        CountedBody {
            body,
            in_flight,
            id,
        }
    }

    fn set_untaken(&self, untaken: bool) {
        if let (Some(id), Some(in_flight)) = (self.id, &self.in_flight) {
            let notes = in_flight.notes();
            notes.set_untaken(id, untaken.then(|| notes.shared.env.now()));
            if untaken {
                notes.look_again();
            }
        }
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.set_untaken(false);
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => self.set_untaken(false),
            Poll::Ready(Some(Ok(_))) => self.set_untaken(true),
            Poll::Ready(_) => {
                self.set_untaken(false);
                self.in_flight = None;
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request body that fails when its next piece takes longer than the limit. The timer is armed only
/// when a piece is waited for, so a body that is already there costs nothing.
struct TimedBody {
    body: Incoming,
    /// Nothing more of it is worth waiting for.
    over: bool,
    notes: Arc<Notes>,
    timer: Option<BoxFuture<'static, ()>>,
}

impl TimedBody {
    fn wrap(body: Incoming, notes: &Arc<Notes>) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        Body::new(TimedBody {
            body,
            over: false,
            notes: notes.clone(),
            timer: None,
        })
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        if self.over || self.body.is_end_stream() {
            return;
        }
        let little = |bytes| bytes <= LITTLE_BYTES;
        let unread = match self.body.size_hint().upper().is_some_and(little) {
            true => Unread::Little,
            false => Unread::Much,
        };
        self.notes.leave_unread(unread);
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.timer = None;
            this.over = !matches!(frame, Some(Ok(_)));
            return Poll::Ready(frame.map(|f| f.map_err(fault)));
        }
        let shared = &this.notes.shared;
        let timer = this
            .timer
            .get_or_insert_with(|| shared.env.sleep(shared.options.body_read));
        ready!(timer.as_mut().poll(cx));
        shared.options.stats.count_timeout(Phase::BodyRead);
        this.over = true;
        Poll::Ready(Some(Err(BodyReadTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// hyper tells bad chunks from a connection that broke by the kind of the I/O error beneath.
#[cold]
fn fault(error: hyper::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && matches!(
                io.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData
            )
        {
            return BadFraming.into();
        }
        next = cause.source();
    }
    error.into()
}
