//! Bounded threads for blocking work, one set per [`Pool`].
//!
//! A job starts at once if a thread is free or may be started, else in order of arrival. Always: at most
//! `Pool::threads` jobs of a pool run at once; a panic ends its job and nothing else; nobody waits for
//! the threads when the process exits. What waits is bounded by the requests that wait for it.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use ron_core::seam::{BoxFuture, Pool};
use tokio::sync::oneshot;

/// An idle thread ends after this long.
const KEEP_IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Pools {
    keep_idle: Duration,
    pools: Mutex<BTreeMap<Pool, Arc<Workers>>>,
}

impl Default for Pools {
    fn default() -> Self {
        Pools {
            keep_idle: KEEP_IDLE,
            pools: Mutex::default(),
        }
    }
}

impl Pools {
    pub fn offload(&self, pool: Pool, job: Job) -> BoxFuture<'static, ()> {
        let (done, finished) = oneshot::channel::<()>();
        let job = Box::new(move || {
            let _done = done;
            job();
        });
        let workers = self.workers(pool);
        workers.submit(job);
        Box::pin(async move {
            // Either way the job is over: a panic drops the sender.
            let _ = finished.await;
        })
    }

    fn workers(&self, pool: Pool) -> Arc<Workers> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = pools.entry(pool).or_insert_with(|| {
            Arc::new(Workers {
                pool,
                keep_idle: self.keep_idle,
                state: Mutex::default(),
                work: Condvar::new(),
            })
        });
        workers.clone()
    }
}

struct Workers {
    pool: Pool,
    keep_idle: Duration,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    fn submit(self: Arc<Self>, job: Job) {
        let mut state = self.state();
        state.waiting.push_back(job);
        if state.idle >= state.waiting.len() {
            self.work.notify_one();
            return;
        }
        if state.threads >= self.pool.threads.max(1) {
            return;
        }
        state.threads += 1;
        drop(state);
        let workers = self.clone();
        let started = thread::Builder::new()
            .name(self.pool.name.into())
            .spawn(move || workers.work());
        if started.is_err() {
            self.no_thread();
        }
    }

    /// The system gives no thread: the others will do the job, and without others it is done here, since
    /// late is better than never.
    fn no_thread(&self) {
        let mut state = self.state();
        state.threads -= 1;
        if state.threads == 0
            && let Some(job) = state.waiting.pop_front()
        {
            drop(state);
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                drop(state);
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self
                .work
                .wait_timeout(state, self.keep_idle)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const TWO: Pool = Pool {
        name: "two",
        threads: 2,
    };

    fn pools(keep_idle: Duration) -> Pools {
        Pools {
            keep_idle,
            ..Pools::default()
        }
    }

    fn threads(pools: &Pools) -> usize {
        pools.workers(TWO).state().threads
    }

    #[tokio::test]
    async fn one_idle_thread_serves_one_job_after_another() {
        let pools = pools(Duration::from_secs(600));
        for _ in 0..20 {
            pools.offload(TWO, Box::new(|| {})).await;
            // The thread is idle again soon; a second one is started only if it is not.
            while pools.workers(TWO).state().idle == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(threads(&pools), 1);
    }

    #[tokio::test]
    async fn idle_threads_end_and_new_ones_start_on_demand() {
        let pools = pools(Duration::from_millis(1));
        for _ in 0..3 {
            pools.offload(TWO, Box::new(|| {})).await;
            while threads(&pools) > 0 {
                thread::yield_now();
            }
        }
    }

    #[tokio::test]
    async fn panicking_jobs_leave_the_pool_at_full_strength() {
        let pools = pools(Duration::from_secs(600));
        for _ in 0..10 {
            pools.offload(TWO, Box::new(|| panic!("a job's own"))).await;
        }
        // Both at once, or the rendezvous would never happen.
        let (left, right) = mpsc::sync_channel(0);
        let send = pools.offload(TWO, Box::new(move || left.send(()).unwrap()));
        let receive = pools.offload(TWO, Box::new(move || right.recv().unwrap()));
        send.await;
        receive.await;
    }
}
