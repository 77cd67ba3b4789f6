//! What a request passes before any work is done for it, cheapest refusal first.
//!
//! The order is fixed: draining → deadline → rate → in flight → auth → body cap → decompression. A refused
//! request costs nothing behind the stage that refused it, and is told when to come back. The stages that
//! decide are pure types of their own; here they are only asked in turn.

mod body;
mod in_flight;
mod inflate;
mod rate;
mod settings;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{MatchedPath, Request},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

pub use body::GuardedBody;
pub(crate) use in_flight::HeldBody;
pub use in_flight::{InFlight, Permit};
pub use inflate::{InflateLimits, Inflater};
pub use rate::{TokenBucket, Tokens};
pub use settings::AdmissionConfig;

use crate::{
    Env,
    auth::Gate,
    deadline::Deadline,
    lock::{LEAF, LockDecl, RankedMutex},
    problem::{BodyFault, Problem},
    serve::Peer,
    telemetry::{Counters, Kernel, Telemetry},
};

/// What the layer needs to know. `Arc<Admission>` is shared by all requests.
pub struct Admission {
    env: Env,
    kernel: Kernel,
    limits: Limits,
    rate: Option<RankedMutex<TokenBucket>>,
    in_flight: InFlight,
    draining: Arc<dyn Fn() -> bool + Send + Sync>,
    auth: Option<Arc<Gate>>,
    on_reject: OnReject,
    on_body_fault: body::OnFault,
    refused: Option<Counters>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The deadline of a request that names none; headers can only shorten it.
    pub timeout: Duration,
    pub max_in_flight: usize,
    /// Requests per second; bursts of as many are let through. `None` for no limit.
    pub rate_per_s: Option<u32>,
    pub body_cap: u64,
    /// The whole body must arrive within this.
    pub body_timeout: Duration,
    pub inflate: InflateLimits,
}

/// Why a request was refused: the `reason` of a service's own reject counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    Draining,
    Timeout,
    RateLimit,
    Busy,
    Auth,
    BodyCap,
    DecompressCap,
    Encoding,
    BodyCorrupt,
}

impl Reject {
    pub fn reason(self) -> &'static str {
        match self {
            Reject::Draining => "draining",
            Reject::Timeout => "timeout",
            Reject::RateLimit => "rate_limit",
            Reject::Busy => "busy",
            Reject::Auth => "auth",
            Reject::BodyCap => "body_cap",
            Reject::DecompressCap => "decompress_cap",
            Reject::Encoding => "encoding",
            Reject::BodyCorrupt => "body_corrupt",
        }
    }
}

/// The codes of what is refused before a handler runs, with their statuses; those of auth and of bodies that are
/// read are the [caller's](crate::auth) and the [body's](BodyFault).
pub const REFUSALS: [(StatusCode, &str); 6] = [
    (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    (StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"),
    (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
    (StatusCode::TOO_MANY_REQUESTS, "busy"),
    (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding"),
];

type OnReject = Arc<dyn Fn(Reject) + Send + Sync>;

const RATE: LockDecl = LockDecl {
    name: "admission_rate",
    rank: LEAF,
    guards: "the token bucket of the request rate",
};

impl Admission {
    pub fn new(env: &Env, telemetry: &Telemetry, limits: Limits) -> Self {
        let bucket = |rps| RankedMutex::new(RATE, TokenBucket::new(rps, rps, env.now()));
        Admission {
            env: env.clone(),
            kernel: telemetry.kernel().clone(),
            limits,
            rate: limits.rate_per_s.map(bucket),
            in_flight: InFlight::new(limits.max_in_flight),
            draining: Arc::new(|| false),
            auth: None,
            on_reject: Arc::new(|_| {}),
            on_body_fault: on_body_fault(telemetry.kernel(), Arc::new(|_| {})),
            refused: None,
        }
    }

    /// Asked at every request; while true, all are refused.
    pub fn draining(mut self, asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.draining = Arc::new(asked);
        self
    }

    /// Handlers then find an [`Identity`](crate::auth::Identity) in the extensions.
    pub fn auth(mut self, gate: Arc<Gate>) -> Self {
        self.auth = Some(gate);
        self
    }

    /// Counts every refusal of the process by route and code, wherever it was decided.
    pub fn counting(mut self, refused: Counters) -> Self {
        self.refused = Some(refused);
        self
    }

    pub(crate) fn refused(&self) -> Option<Counters> {
        self.refused.clone()
    }

    /// Told of every refusal, once.
    pub fn on_reject(mut self, told: impl Fn(Reject) + Send + Sync + 'static) -> Self {
        self.on_reject = Arc::new(told);
        self.on_body_fault = on_body_fault(&self.kernel, self.on_reject.clone());
        self
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.now()
    }

    fn refuse(&self, reject: Reject, problem: Problem) -> Problem {
        (self.on_reject)(reject);
        problem
    }

    // ------------------------------------------------------------------------ stages, in order

    fn check_draining(&self) -> Result<(), Problem> {
        if !(self.draining)() {
            return Ok(());
        }
        crate::sometimes!("admission.draining");
        self.kernel.not_ready.with(&["draining"]).inc();
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining")
            .detail("the service is shutting down");
        Err(self.refuse(Reject::Draining, problem))
    }

    fn check_deadline(&self, headers: &HeaderMap) -> Result<Deadline, Problem> {
        let now = self.env.now();
        let granted = Deadline::after(now, self.limits.timeout);
        let (deadline, malformed) = Deadline::from_headers(headers, now, self.env.wall(), granted);
        self.kernel
            .deadline_header_malformed
            .inc_by(malformed.into());
        if deadline.instant() <= now {
            return Err(self.deadline_exceeded());
        }
        Ok(deadline)
    }

    fn deadline_exceeded(&self) -> Problem {
        crate::sometimes!("admission.deadline_passed");
        self.kernel.io_timeouts.with(&["request"]).inc();
        let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded")
            .detail("no answer was ready before the deadline");
        self.refuse(Reject::Timeout, problem)
    }

    fn check_rate(&self) -> Result<(), Problem> {
        let Some(rate) = &self.rate else {
            return Ok(());
        };
        let taken = rate.lock().try_take(self.env.now());
        taken.map_err(|wait| {
            self.kernel.quota_reject.with(&["rate"]).inc();
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited")
                .detail("too many requests per second")
                .retry_after(wait);
            self.refuse(Reject::RateLimit, problem)
        })
    }

    fn enter(&self, endpoint: &str) -> Result<Permit, Problem> {
        self.in_flight.try_enter().ok_or_else(|| {
            crate::sometimes!("admission.busy");
            self.kernel.quota_reject.with(&["in_flight"]).inc();
            self.kernel.busy_rejections.with(&[endpoint, ""]).inc();
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy")
                .detail("too many requests are being served");
            self.refuse(Reject::Busy, problem)
        })
    }

    fn identify(&self, request: &mut Request) -> Result<(), Problem> {
        let Some(gate) = &self.auth else {
            return Ok(());
        };
        let peer = request
            .extensions()
            .get::<Peer>()
            .map(|peer| peer.addr.ip());
        match gate.check(request.headers(), peer, self.env.wall()) {
            Ok(identity) => {
                request.extensions_mut().insert(identity);
                Ok(())
            }
            Err(error) => Err(self.refuse(Reject::Auth, error.problem())),
        }
    }

    /// All of them. What passed is to be [carried out](Self::carry_out).
    pub(crate) fn pass(
        &self,
        mut request: Request,
    ) -> Result<(Request, Deadline, Permit), Problem> {
        self.check_draining()?;
        let deadline = self.check_deadline(request.headers())?;
        self.check_rate()?;
        let endpoint = request.extensions().get::<MatchedPath>();
        let permit = self.enter(endpoint.map_or("other", MatchedPath::as_str))?;
        self.identify(&mut request)?;
        let mut request = self.guard_body(request)?;
        request.extensions_mut().insert(deadline);
        Ok((request, deadline, permit))
    }

    /// The answer of a request that passed, or the refusal once its deadline is over.
    pub(crate) async fn carry_out(
        &self,
        deadline: Deadline,
        permit: Permit,
        answer: impl Future<Output = Result<Response, Infallible>>,
    ) -> Response {
        match self.env.timeout_at(deadline.instant(), answer).await {
            // A response is in flight until its body has been sent, or given up.
            Ok(Ok(response)) => response.map(|body| Body::new(HeldBody::new(body, permit))),
            Ok(Err(never)) => match never {},
            Err(_) => self.deadline_exceeded().into_response(),
        }
    }

    fn guard_body(&self, request: Request) -> Result<Request, Problem> {
        let fault = |fault: BodyFault| self.refuse(body::reject_of(fault), fault.problem());
        let headers = request.headers();
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok());
        let length: Option<u64> = length.and_then(|v| v.parse().ok());
        let cap = self.limits.body_cap;
        if length.is_some_and(|length| length > cap) {
            crate::sometimes!("admission.too_large");
            return Err(fault(BodyFault::TooLarge { cap }));
        }
        let inflater = match is_gzip(headers) {
            Ok(gzip) => gzip.then(|| Inflater::new(self.limits.inflate)),
            Err(problem) => return Err(self.refuse(Reject::Encoding, problem)),
        };
        let (mut parts, body) = request.into_parts();
        if inflater.is_some() {
            // They describe the body on the wire, which the handler does not see.
            parts.headers.remove(header::CONTENT_ENCODING);
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let limit = self.limits.body_timeout;
        let on_fault = self.on_body_fault.clone();
        let guarded = GuardedBody::new(body, cap, inflater, limit, &self.env, on_fault);
        Ok(Request::from_parts(parts, Body::new(guarded)))
    }
}

fn on_body_fault(kernel: &Kernel, told: OnReject) -> body::OnFault {
    let timeouts = kernel.io_timeouts.clone();
    Arc::new(move |fault| {
        if matches!(fault, BodyFault::Timeout { .. }) {
            timeouts.with(&["read"]).inc();
        }
        if fault != BodyFault::Lost {
            told(body::reject_of(fault));
        }
    })
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let coding = codings
        .next()
        .map(|v| v.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    match (coding.as_deref(), codings.next()) {
        (None | Some("" | "identity"), None) => Ok(false),
        (Some("gzip" | "x-gzip"), None) => Ok(true),
        _ => Err(
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding")
                .detail("the body may be encoded as gzip, or not at all")
                .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip")),
        ),
    }
}

#[cfg(test)]
mod tests;
