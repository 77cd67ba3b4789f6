//! Bodies with bounds: what is sent has the length that was announced, and what comes back ends.
//!
//! A seam's `Http` bounds an answer up to its head. Always: a [`BoundedBody`] ends after at most its cap of bytes, its
//! idle time without one, and its deadline; after an error nothing follows.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{Env, seam::BoxFuture};

/// A stream of known length: announced as such, and broken off if it turns out longer or shorter.
pub struct Exactly {
    inner: Body,
    left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body has another length than was announced")]
pub struct WrongLength;

impl Exactly {
    pub fn body(length: u64, inner: Body) -> Body {
        Body::new(Exactly {
            inner,
            left: length,
        })
    }
}

impl HttpBody for Exactly {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let wrong = || Poll::Ready(Some(Err(axum::Error::new(WrongLength))));
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.data_ref().map_or(0, |data| data.len() as u64);
                match self.left.checked_sub(data) {
                    Some(left) => self.left = left,
                    None => return wrong(),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) if self.left > 0 => wrong(),
            other => other,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What a reader puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    pub cap_bytes: u64,
    /// How long nothing may come.
    pub idle: Duration,
    /// When all of it must have come.
    pub deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the answer is longer than {cap_bytes} bytes")]
    TooLarge { cap_bytes: u64 },
    #[error("nothing of the answer came for {} ms", idle.as_millis())]
    Idle { idle: Duration },
    #[error("the answer was not there before the deadline")]
    Deadline,
    #[error("the answer broke off")]
    Lost,
}

/// All of an answer.
pub async fn read_whole(env: &Env, body: Body, limits: ReadLimits) -> Result<Bytes, ReadError> {
    let body = BoundedBody::new(env, body, limits);
    Ok(body.collect().await?.to_bytes())
}

/// An answer to be passed on, piece by piece.
pub struct BoundedBody {
    env: Env,
    inner: Body,
    limits: ReadLimits,
    left: u64,
    /// Set while nothing comes.
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
    ended: bool,
}

impl BoundedBody {
    pub fn new(env: &Env, inner: Body, limits: ReadLimits) -> Self {
        BoundedBody {
            env: env.clone(),
            inner,
            limits,
            left: limits.cap_bytes,
            timer: None,
            ended: false,
        }
    }

    fn poll_inner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadError>>> {
        let ReadLimits {
            cap_bytes,
            idle,
            deadline,
        } = self.limits;
        // An honest answer that is too long is refused before any of it is read.
        if self.inner.size_hint().lower() > self.left {
            return Poll::Ready(Some(Err(ReadError::TooLarge { cap_bytes })));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            let env = &self.env;
            let (at, timer) = self.timer.get_or_insert_with(|| {
                let at = (env.now() + idle).min(deadline);
                (at, env.sleep_until(at))
            });
            let over = if *at < deadline {
                ReadError::Idle { idle }
            } else {
                ReadError::Deadline
            };
            return timer.as_mut().poll(cx).map(|()| Some(Err(over)));
        };
        self.timer = None;
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some(Err(ReadError::Lost))),
            Some(Ok(frame)) => frame,
        };
        // One that never rests meets no timer.
        if self.env.now() >= deadline {
            return Poll::Ready(Some(Err(ReadError::Deadline)));
        }
        let data = frame.data_ref().map_or(0, |data| data.len() as u64);
        Poll::Ready(Some(match self.left.checked_sub(data) {
            Some(left) => {
                self.left = left;
                Ok(frame)
            }
            None => Err(ReadError::TooLarge { cap_bytes }),
        }))
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = ReadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_inner(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.ended = true;
            // What is left of it is not read: its connection goes along.
            self.inner = Body::empty();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt, stream};

    use super::*;
    use crate::test_env::World;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Of so many bytes each, after pauses of so many milliseconds.
    type Pieces = [(u64, usize)];

    fn trickle(env: &Env, pieces: &Pieces) -> Body {
        let env = env.clone();
        let pieces = stream::iter(pieces.to_vec()).then(move |(pause_ms, len)| {
            let pause = env.sleep(ms(pause_ms));
            async move {
                pause.await;
                Ok::<_, Infallible>(Bytes::from(vec![7; len]))
            }
        });
        Body::from_stream(pieces)
    }

    #[test]
    fn an_answer_is_read_within_its_cap_its_idle_time_and_its_deadline() {
        let too_large = Err(ReadError::TooLarge { cap_bytes: 10 });
        let idle = Err(ReadError::Idle { idle: ms(100) });
        // Cap 10 bytes, idle 100 ms, deadline 300 ms.
        let cases: &[(&Pieces, Result<usize, ReadError>, u64)] = &[
            (&[], Ok(0), 0),
            (&[(0, 10)], Ok(10), 0),
            (&[(0, 11)], too_large, 0),
            (&[(50, 5), (50, 4)], Ok(9), 100),
            (&[(50, 5), (50, 5)], Ok(10), 100),
            (&[(50, 5), (50, 6)], too_large, 100),
            (&[(99, 1), (99, 1)], Ok(2), 198),
            (&[(101, 1)], idle, 100),
            (&[(99, 1), (101, 1)], idle, 199),
            (&[(90, 1), (90, 1), (90, 1), (29, 1)], Ok(4), 299),
            (
                &[(90, 1), (90, 1), (90, 1), (31, 1)],
                Err(ReadError::Deadline),
                300,
            ),
        ];
        for (pieces, expected, at_ms) in cases {
            let world = World::new();
            let env = world.env();
            let limits = ReadLimits {
                cap_bytes: 10,
                idle: ms(100),
                deadline: env.now() + ms(300),
            };
            let read = world.run(read_whole(&env, trickle(&env, pieces), limits));
            assert_eq!(read.map(|bytes| bytes.len()), *expected, "{pieces:?}");
            assert_eq!(world.elapsed(), ms(*at_ms), "{pieces:?}");
        }
    }

    #[test]
    fn an_answer_that_never_rests_ends_at_its_deadline_and_a_long_one_unread() {
        let world = World::new();
        let env = world.env();
        let limits = ReadLimits {
            cap_bytes: u64::MAX,
            idle: ms(100),
            deadline: env.now() + ms(300),
        };
        let moved = world.clone();
        let endless = stream::repeat_with(move || {
            moved.advance(ms(1));
            Ok::<_, Infallible>(Bytes::from_static(b"x"))
        });
        let read = world.run(read_whole(&env, Body::from_stream(endless), limits));
        assert_eq!(read, Err(ReadError::Deadline));
        assert_eq!(world.elapsed(), ms(300));

        let unread = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let limits = ReadLimits {
            cap_bytes: 10,
            ..limits
        };
        let read = world.run(read_whole(&env, Exactly::body(11, unread), limits));
        assert_eq!(read, Err(ReadError::TooLarge { cap_bytes: 10 }));
    }

    #[test]
    fn an_answer_that_breaks_off_is_lost_and_nothing_follows() {
        let world = World::new();
        let env = world.env();
        let broken = stream::iter([Ok("ab".into()), Err("cut"), Ok(Bytes::from("cd"))]);
        let limits = ReadLimits {
            cap_bytes: 10,
            idle: ms(100),
            deadline: env.now() + ms(300),
        };
        let mut body = BoundedBody::new(&env, Body::from_stream(broken), limits);
        world.run(async {
            assert_eq!(
                body.frame().await.unwrap().unwrap().into_data().unwrap(),
                "ab"
            );
            assert_eq!(body.frame().await.unwrap().unwrap_err(), ReadError::Lost);
            assert!(body.frame().await.is_none());
        });
    }

    #[test]
    fn a_body_of_known_length_is_exactly_as_long() {
        let world = World::new();
        let env = world.env();
        for (announced, right) in [(4, false), (5, true), (6, false)] {
            let body = Exactly::body(announced, trickle(&env, &[(1, 2), (1, 3)]));
            assert_eq!(body.size_hint().exact(), Some(announced));
            let sent = world.run(body.collect());
            assert_eq!(sent.is_ok(), right, "{announced}");
        }
    }
}
