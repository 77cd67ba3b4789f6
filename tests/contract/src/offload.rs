//! Offload: starts unasked, ends whatever happens to its caller, in order, within its bound.
//! No job here waits for another: a simulated one runs in a single step.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use ron_core::{Lost, seam::Pool};
use tokio::sync::oneshot;

use crate::{Pair, list};

const ONE: Pool = Pool {
    name: "one",
    threads: 1,
};
const TWO: Pool = Pool {
    name: "two",
    threads: 2,
};

list!("offload":
    a_job_starts_without_being_polled,
    a_job_completes_when_its_future_is_dropped_and_counts_as_abandoned,
    an_awaited_job_does_not_count_as_abandoned,
    a_panicking_job_is_lost_and_the_pool_goes_on,
    jobs_of_one_thread_run_in_order,
    a_pool_never_runs_more_jobs_than_it_has_threads,
);

async fn a_job_starts_without_being_polled(pair: Pair) {
    let (done, finished) = oneshot::channel();
    let unpolled = pair.client.offload(Pool::CPU, move || done.send(7));
    assert_eq!(finished.await, Ok(7));
    assert_eq!(unpolled.await, Ok(Ok(())));
}

async fn a_job_completes_when_its_future_is_dropped_and_counts_as_abandoned(pair: Pair) {
    let env = pair.client;
    let (done, finished) = oneshot::channel();
    drop(env.offload(Pool::CPU, move || done.send(7)));
    assert_eq!(finished.await, Ok(7));
    assert_eq!(env.stats().offload_abandoned.load(Ordering::Relaxed), 1);
}

async fn an_awaited_job_does_not_count_as_abandoned(pair: Pair) {
    let env = pair.client;
    assert_eq!(env.offload(Pool::CPU, || 7).await, Ok(7));
    assert_eq!(env.disk(|_| 8).await, Ok(8));
    assert_eq!(env.stats().offload_abandoned.load(Ordering::Relaxed), 0);
}

async fn a_panicking_job_is_lost_and_the_pool_goes_on(pair: Pair) {
    let env = pair.client;
    for _ in 0..3 {
        let lost = env.offload(ONE, || -> u8 { panic!("a job's own") });
        assert_eq!(lost.await, Err(Lost));
    }
    assert_eq!(env.offload(ONE, || 7).await, Ok(7));
}

async fn jobs_of_one_thread_run_in_order(pair: Pair) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs = (0..50).map(|i| {
        let order = order.clone();
        pair.client
            .offload(ONE, move || order.lock().unwrap().push(i))
    });
    join_all(jobs).await;
    let ran = order.lock().unwrap();
    assert!(ran.iter().copied().eq(0..50), "{ran:?}");
}

async fn a_pool_never_runs_more_jobs_than_it_has_threads(pair: Pair) {
    let running = Arc::new(AtomicUsize::new(0));
    let jobs: Vec<_> = (0..40)
        .map(|_| {
            let running = running.clone();
            pair.client.offload(TWO, move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                // Long enough for others to come in, if they may.
                let work = (0..200_000_u64).fold(0, |a: u64, b| a.wrapping_mul(31) ^ b);
                std::hint::black_box(work);
                running.fetch_sub(1, Ordering::SeqCst);
                now
            })
        })
        .collect();
    for most in join_all(jobs).await {
        assert!(most.unwrap() <= TWO.threads);
    }
}
