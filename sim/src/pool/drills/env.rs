//! The Env itself: sleeps and timeouts at their time, tasks and offloaded work that come back, are lost or abandoned.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ron_core::{Elapsed, Env, Lost, seam::Pool};

use super::{Bench, Verdict, agree, demand, hands::Hand, slack};

pub async fn drill(bench: &mut Bench) -> Verdict {
    timers(bench).await?;
    tasks(bench).await?;
    offloaded(bench).await?;
    agree(
        "two generators draw the same",
        bench.env.rng() == bench.env.rng(),
        false,
    )
}

type Ends = Result<u64, Elapsed>;

/// None before its time, each soon after it; what is ready at the deadline still counts.
async fn timers(bench: &mut Bench) -> Verdict {
    let began = bench.env.now();
    let mut open: Vec<(Duration, Ends, Hand<Ends>)> = Vec::new();
    for n in 0..6 {
        let env: Env = bench.env.clone();
        let (sleep, limit) = (bench.ms(0, 20), bench.ms(0, 20));
        let (at, ends, hand) = match bench.pick(0, 2) {
            0 => {
                let hand = Hand::new(async move {
                    env.sleep(sleep).await;
                    Ok(n)
                });
                (sleep, Ok(n), hand)
            }
            1 => {
                let hand = Hand::new(async move { env.timeout(limit, pending()).await });
                (limit, Err(Elapsed), hand)
            }
            // Far enough apart that a timer which is a little late changes nothing.
            _ => {
                let longer = limit * 2 + Duration::from_millis(10);
                let hand = Hand::new(async move {
                    let work = async {
                        env.sleep(limit).await;
                        n
                    };
                    env.timeout(longer, work).await
                });
                (limit, Ok(n), hand)
            }
        };
        open.push((at, ends, hand));
    }
    let ready = bench.env.timeout(Duration::ZERO, async { 7 }).await;
    agree("ready at its deadline", ready, Ok(7))?;
    while !open.is_empty() {
        let passed = bench.env.now() - began;
        let mut left = Vec::new();
        for (at, ends, mut hand) in open {
            match hand.look() {
                Some(came) => {
                    demand(passed >= at, || {
                        format!("a timer: {at:?} expected, over after {passed:?}")
                    })?;
                    agree("a timer's end", came, ends)?;
                }
                None if passed > at + slack(at) => {
                    return Err(format!(
                        "a timer: {at:?} expected, not over after {passed:?}"
                    ));
                }
                None => left.push((at, ends, hand)),
            }
        }
        open = left;
        let span = bench.ms(1, 4);
        bench.env.sleep(span).await;
    }
    Ok(())
}

async fn tasks(bench: &mut Bench) -> Verdict {
    let span = bench.ms(0, 3);
    let sleeps = bench.env.sleep(span);
    let task = bench.env.spawn("drill", async move {
        sleeps.await;
        41
    });
    agree("a task's result", task.await, Ok(41))?;
    let forever = bench.env.spawn("drill", pending::<()>());
    bench.env.sleep(Duration::from_millis(1)).await;
    forever.abort();
    agree("an aborted task", forever.await, Err(Lost))
}

/// Work that is started is done, whoever waits for it; who waits gets what it came to.
async fn offloaded(bench: &mut Bench) -> Verdict {
    let done = Arc::new(AtomicU64::new(0));
    let job = |n: u64| {
        let done = done.clone();
        move || {
            done.fetch_add(n, Ordering::Relaxed);
            n
        }
    };
    let env = &bench.env;
    agree("offloaded", env.offload(Pool::CPU, job(1)).await, Ok(1))?;
    // Without the hook that would print it: it is meant.
    let panics = || std::panic::resume_unwind(Box::new("on purpose"));
    let lost: Result<(), Lost> = env.offload(Pool::CPU, panics).await;
    agree("an offloaded panic", lost, Err(Lost))?;
    let abandoned = || env.stats().offload_abandoned.load(Ordering::Relaxed);
    let before = abandoned();
    drop(env.offload(Pool::CPU, job(10)));
    agree("abandoned", abandoned(), before + 1)?;
    // After it in the pool's line, all but one of whose threads are free.
    agree("offloaded", env.offload(Pool::CPU, job(100)).await, Ok(100))?;
    env.sleep(Duration::from_millis(1)).await;
    for _ in 0..1000 {
        if done.load(Ordering::Relaxed) == 111 {
            return agree("abandoned in all", abandoned(), before + 1);
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    agree("work done", done.load(Ordering::Relaxed), 111)
}
