//! The tasks that hyper starts for the streams of one HTTP/2 connection.
//!
//! Always: none of them outlives its connection; a panic in one is counted and stays in it.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use futures_util::FutureExt;
use hyper::rt::Executor;
use tokio::sync::Notify;

use super::Shared;
use crate::Join;

#[derive(Clone)]
pub(super) struct Streams {
    shared: Arc<Shared>,
    live: Arc<Live>,
}

/// `None`: about to start.
type Tasks = BTreeMap<u64, Option<Join<()>>>;

#[derive(Default)]
struct Live {
    tasks: Mutex<Tasks>,
    none_left: Notify,
}

impl Live {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    pub fn new(shared: Arc<Shared>) -> Self {
        Streams {
            shared,
            live: Arc::default(),
        }
    }

    /// Stops every stream and resolves when the last one is gone.
    pub async fn abort(&self) {
        for task in self.live.tasks().values().flatten() {
            task.abort();
        }
        while !self.live.tasks().is_empty() {
            self.live.none_left.notified().await;
        }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let id = self.shared.next_id();
        self.live.tasks().insert(id, None);
        let gone = Gone {
            id,
            live: self.live.clone(),
        };
        let shared = self.shared.clone();
        let task = self.shared.env.spawn("http2-stream", async move {
            let _gone = gone;
            if AssertUnwindSafe(stream).catch_unwind().await.is_err() {
                shared.options.stats.panics.fetch_add(1, Relaxed);
            }
        });
        // The task may have ended already and taken its entry with it.
        if let Some(entry) = self.live.tasks().get_mut(&id) {
            *entry = Some(task);
        }
    }
}

struct Gone {
    id: u64,
    live: Arc<Live>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        let mut tasks = self.live.tasks();
        tasks.remove(&self.id);
        if tasks.is_empty() {
            self.live.none_left.notify_one();
        }
    }
}
