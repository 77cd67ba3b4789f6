//! What happens in a service, told to whoever listens: a bounded broadcast that no listener can hold up, and its
//! stream of server-sent events.
//!
//! Always: to tell never waits; a slow listener loses the oldest events, is told how many, and each is
//! counted; while nobody ever listened, there is no buffer; streams end with the service.

use std::{
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use super::with_type;
use crate::{Env, Shutdown};

/// How many events wait for the slowest listener, unless configured otherwise.
pub const DEFAULT_CAP: usize = 1024;

/// A comment is sent so often, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub trait Event: Clone + Serialize + Send + 'static {
    /// The name of the server-sent event.
    fn name(&self) -> &'static str;
}

/// Cheap to clone; clones tell the same listeners.
pub struct Events<E>(Arc<Inner<E>>);

struct Inner<E> {
    cap: usize,
    sender: OnceLock<broadcast::Sender<E>>,
    lagged: AtomicU64,
}

/// A listener fell behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lost} events were lost: read faster")]
pub struct Lagging {
    pub lost: u64,
}

impl<E> Clone for Events<E> {
    fn clone(&self) -> Self {
        Events(self.0.clone())
    }
}

impl<E: Event> Events<E> {
    pub fn new(cap: usize) -> Self {
        Events(Arc::new(Inner {
            cap: cap.max(1),
            sender: OnceLock::new(),
            lagged: AtomicU64::new(0),
        }))
    }

    /// Never waits. The event is made only if somebody listens.
    pub fn tell(&self, event: impl FnOnce() -> E) {
        if let Some(sender) = self.0.sender.get()
            && sender.receiver_count() > 0
        {
            let _ = sender.send(event());
        }
    }

    /// Hears what is told from now on.
    pub fn listen(&self) -> Listener<E> {
        let made = || broadcast::Sender::new(self.0.cap);
        let sender = self.0.sender.get_or_init(made);
        Listener {
            receiver: sender.subscribe(),
            events: self.clone(),
        }
    }

    /// Events that slow listeners lost, all of them together.
    pub fn lagged(&self) -> u64 {
        self.0.lagged.load(Relaxed)
    }

    /// All that is told from now on, as server-sent events, until the reader goes or the service stops.
    pub fn stream(&self, env: &Env, stop: &Shutdown) -> Response {
        let heard = (self.listen(), env.clone(), stop.clone());
        let pieces = stream::unfold(heard, |(mut listener, env, stop)| async move {
            let told = piece(&mut listener, &env, &stop).await?;
            Some((Ok::<_, Infallible>(told), (listener, env, stop)))
        });
        let kind = HeaderValue::from_static("text/event-stream");
        let mut response = with_type(kind, Body::from_stream(pieces));
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

pub struct Listener<E> {
    receiver: broadcast::Receiver<E>,
    events: Events<E>,
}

impl<E: Event> Listener<E> {
    /// The next event; [`Lagging`] once if some were lost, after which the oldest that is still held comes.
    /// `None` when nobody is left to tell. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<E, Lagging>> {
        match self.receiver.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(RecvError::Closed) => None,
            Err(RecvError::Lagged(lost)) => {
                self.events.0.lagged.fetch_add(lost, Relaxed);
                tracing::warn!(lag = lost, "a listener of events is too slow and lost some");
                Some(Err(Lagging { lost }))
            }
        }
    }
}

/// One piece of the stream; `None` at its end.
async fn piece<E: Event>(listener: &mut Listener<E>, env: &Env, stop: &Shutdown) -> Option<Bytes> {
    let heard = tokio::select! {
        biased;
        heard = listener.next() => heard?,
        () = stop.wait() => return None,
        () = env.sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": still here\n\n")),
    };
    let text = match heard {
        Ok(event) => {
            let data = serde_json::to_string(&event).unwrap_or_default();
            format!("event: {}\ndata: {data}\n\n", event.name())
        }
        Err(lagging) => format!("event: lagging\ndata: {{\"detail\":\"{lagging}\"}}\n\n"),
    };
    Some(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::test_env::World;

    #[derive(Clone, Debug, PartialEq, Serialize)]
    struct Tick(usize);

    impl Event for Tick {
        fn name(&self) -> &'static str {
            "tick"
        }
    }

    #[test]
    fn a_slow_listener_loses_the_oldest_is_told_and_counted_and_hears_the_newest() {
        let events = Events::new(4);
        let mut listener = events.listen();
        for n in 0..10 {
            events.tell(|| Tick(n));
        }
        let mut next = || listener.next().now_or_never().flatten();
        assert_eq!(next(), Some(Err(Lagging { lost: 6 })));
        for n in 6..10 {
            assert_eq!(next(), Some(Ok(Tick(n))));
        }
        assert_eq!(next(), None);
        assert_eq!(events.lagged(), 6);
    }

    #[test]
    fn nothing_is_made_while_nobody_listens() {
        let events = Events::<Tick>::new(DEFAULT_CAP);
        events.tell(|| panic!("nobody listens"));
        drop(events.listen());
        events.tell(|| panic!("nobody listens any more"));
        assert_eq!(events.lagged(), 0);
    }

    #[test]
    fn a_stream_tells_events_losses_and_that_it_lives_and_ends_with_the_service() {
        let (world, stop) = (World::new(), Shutdown::new());
        let events = Events::new(2);
        let answer = events.stream(&world.env(), &stop);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        let mut pieces = answer.into_body().into_data_stream();
        let mut next = || {
            let piece = world.run(pieces.next());
            piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
        };
        (0..3).for_each(|n| events.tell(|| Tick(n)));
        let lost = "event: lagging\ndata: {\"detail\":\"1 events were lost: read faster\"}\n\n";
        assert_eq!(next().as_deref(), Some(lost));
        assert_eq!(next().as_deref(), Some("event: tick\ndata: 1\n\n"));
        assert_eq!(next().as_deref(), Some("event: tick\ndata: 2\n\n"));
        assert_eq!(next().as_deref(), Some(": still here\n\n"));
        stop.trigger();
        assert_eq!(next(), None);
    }
}
