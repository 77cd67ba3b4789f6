//! The tasks that hyper starts for the streams of one HTTP/2 connection.
//!
//! They end by themselves when their connection is dropped; here they are waited for. Always: none of
//! them outlives its connection; a panic in one is counted and stays in it.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt;
use hyper::rt::Executor;
use tokio::sync::Notify;

use super::Shared;

#[derive(Clone)]
pub(super) struct Streams {
    shared: Arc<Shared>,
    live: Arc<Live>,
}

#[derive(Default)]
struct Live {
    tasks: AtomicUsize,
    none_left: Notify,
}

impl Streams {
    pub fn new(shared: Arc<Shared>) -> Self {
        Streams {
            shared,
            live: Arc::default(),
        }
    }

    /// Resolves when the last one is gone. To be called after their connection was dropped.
    pub async fn gone(&self) {
        while self.live.tasks.load(Ordering::Acquire) > 0 {
            self.live.none_left.notified().await;
        }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let alive = Alive::new(self.live.clone());
        let shared = self.shared.clone();
        drop(self.shared.env.spawn("http2-stream", async move {
            let _alive = alive;
            if AssertUnwindSafe(stream).catch_unwind().await.is_err() {
                let panics = &shared.options.stats.panics;
                panics.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
}

/// A stream, while its task lives.
struct Alive(Arc<Live>);

impl Alive {
    fn new(live: Arc<Live>) -> Self {
        live.tasks.fetch_add(1, Ordering::Relaxed);
        Alive(live)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::Release) == 1 {
            self.0.none_left.notify_one();
        }
    }
}
