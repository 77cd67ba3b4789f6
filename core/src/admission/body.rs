//! A request body under guard: capped, timed and, if it came compressed, expanded on the way.
//!
//! Always: its only errors are [`BodyFault`]s, each told once; after one nothing follows.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{Reject, inflate::Inflater};
use crate::{Env, problem::BodyFault, seam::BoxFuture};

/// Told of every fault; shared by all bodies.
pub(super) type OnFault = Arc<dyn Fn(BodyFault) + Send + Sync>;

pub struct GuardedBody {
    inner: Body,
    cap: u64,
    received: u64,
    inflater: Option<Inflater>,
    limit: Duration,
    timer: Timer,
    on_fault: OnFault,
    ended: bool,
}

/// Set once the client turns out to be slow: most bodies come with their heads.
struct Timer {
    env: Env,
    at: Instant,
    sleep: Option<BoxFuture<'static, ()>>,
}

impl GuardedBody {
    /// `limit` counts from now.
    pub(super) fn new(
        inner: Body,
        cap: u64,
        inflater: Option<Inflater>,
        limit: Duration,
        env: &Env,
        on_fault: OnFault,
    ) -> Self {
        let timer = Timer {
            env: env.clone(),
            at: env.now() + limit,
            sleep: None,
        };
        GuardedBody {
            inner,
            cap,
            received: 0,
            inflater,
            limit,
            timer,
            on_fault,
            ended: false,
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, BodyFault>> {
        loop {
            let polled = http_body::Body::poll_frame(Pin::new(&mut self.inner), cx);
            let Poll::Ready(frame) = polled else {
                return self.timer.poll(cx).map(|()| Err(self.timeout()));
            };
            let data = match frame.transpose() {
                Ok(Some(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Ok(Some(trailers))),
                },
                Ok(None) => {
                    self.ended = true;
                    let rest = self
                        .inflater
                        .as_mut()
                        .map_or(Ok(Bytes::new()), Inflater::finish)?;
                    return Poll::Ready(Ok((!rest.is_empty()).then(|| Frame::data(rest))));
                }
                Err(error) => return Poll::Ready(Err(self.fault_of(&error))),
            };
            self.received += data.len() as u64;
            if self.received > self.cap {
                return Poll::Ready(Err(BodyFault::TooLarge { cap: self.cap }));
            }
            let data = match &mut self.inflater {
                Some(inflater) => inflater.push(&data)?,
                None => data,
            };
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(Frame::data(data))));
            }
        }
    }

    fn timeout(&self) -> BodyFault {
        BodyFault::Timeout {
            limit_ms: self.limit.as_millis() as u64,
        }
    }

    /// The server has a timer of its own, for a client that stalls.
    fn fault_of(&self, error: &(dyn std::error::Error + 'static)) -> BodyFault {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<crate::serve::BodyReadTimeout>() {
                return self.timeout();
            }
            next = error.source();
        }
        BodyFault::of(error)
    }
}

impl Timer {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = || self.env.sleep_until(self.at);
        self.sleep.get_or_insert_with(sleep).as_mut().poll(cx)
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.poll_data(cx).map(|polled| {
            if let Err(fault) = &polled {
                self.ended = true;
                (self.on_fault)(*fault);
            }
            polled.transpose()
        })
    }

    fn is_end_stream(&self) -> bool {
        // A compressed body may have output left after its last byte came in.
        self.ended || (self.inflater.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.inflater {
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}

pub(super) fn reject_of(fault: BodyFault) -> Reject {
    match fault {
        BodyFault::TooLarge { .. } => Reject::BodyCap,
        BodyFault::Timeout { .. } => Reject::Timeout,
        BodyFault::Ratio { .. } | BodyFault::Expanded { .. } => Reject::DecompressCap,
        BodyFault::Corrupt | BodyFault::Lost | BodyFault::Framing => Reject::BodyCorrupt,
    }
}
