//! At most so many requests at once: a permit each, given back when the response has been sent.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

#[derive(Clone, Debug)]
pub struct InFlight {
    now: Arc<AtomicUsize>,
    max: usize,
}

/// One place, taken until this drops.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl InFlight {
    pub fn new(max: usize) -> Self {
        InFlight {
            now: Arc::default(),
            max,
        }
    }

    /// Never waits: a full house answers at once.
    pub fn try_enter(&self) -> Option<Permit> {
        let enter = |now: usize| (now < self.max).then_some(now + 1);
        let entered = self
            .now
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        entered.is_ok().then(|| Permit(self.now.clone()))
    }

    pub fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A response body that keeps its request's permit until it ends.
pub(crate) struct HeldBody {
    body: Body,
    permit: Option<Permit>,
}

impl HeldBody {
    pub(crate) fn new(body: Body, permit: Permit) -> Self {
        HeldBody {
            body,
            permit: Some(permit),
        }
    }
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.permit = None;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_given_up_to_the_limit_and_come_back(
            max in 0usize..5,
            steps in proptest::collection::vec((any::<bool>(), 0usize..5), 0..60),
        ) {
            let in_flight = InFlight::new(max);
            let mut held = Vec::new();
            for (enter, which) in steps {
                if enter {
                    let permit = in_flight.try_enter();
                    prop_assert_eq!(permit.is_some(), held.len() < max);
                    held.extend(permit);
                } else if which < held.len() {
                    held.remove(which);
                }
                prop_assert_eq!(in_flight.now(), held.len());
            }
        }
    }
}
