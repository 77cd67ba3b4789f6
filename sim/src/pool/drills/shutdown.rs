//! The signal to stop: early and late waiters, clones, waits that are dropped, and a second signal.

use ron_core::Shutdown;

use super::{Bench, Verdict, agree, hands::Hand};

pub async fn drill(bench: &mut Bench) -> Verdict {
    let first = Shutdown::new();
    let mut clones = vec![first.clone(), first];
    let mut waiting: Vec<Hand<()>> = Vec::new();
    let mut triggered = false;
    for _ in 0..24 {
        let handle = clones[bench.index(clones.len())].clone();
        match bench.pick(0, 7) {
            0..=3 => {
                let waits = handle.clone();
                let mut wait = Hand::new(async move { waits.wait().await });
                agree("wait is over at once", wait.look().is_some(), triggered)?;
                if !triggered {
                    waiting.push(wait);
                }
            }
            4 if !waiting.is_empty() => drop(waiting.remove(bench.index(waiting.len()))),
            5 => clones.push(handle.clone()),
            6 if clones.len() > 1 => drop(clones.remove(0)),
            7 if bench.one_in(3) => {
                agree("trigger is the first", handle.trigger(), !triggered)?;
                triggered = true;
                for (n, mut wait) in waiting.drain(..).enumerate() {
                    agree(&format!("waiter {n} is woken"), wait.look().is_some(), true)?;
                }
            }
            _ => {}
        }
        for wait in &mut waiting {
            agree("a wait is over before the signal", wait.look(), None)?;
        }
        agree("waiting", handle.waiting(), waiting.len())?;
        for clone in &clones {
            agree("is_triggered", clone.is_triggered(), triggered)?;
        }
    }
    // As tasks of their own, which the executor wakes.
    let stop = Shutdown::new();
    let early = stop.clone();
    let early = bench.env.spawn("drill", async move { early.wait().await });
    let span = bench.ms(0, 3);
    bench.env.sleep(span).await;
    stop.trigger();
    agree("a task that waited", early.await.is_ok(), true)?;
    let late = bench.env.spawn("drill", async move { stop.wait().await });
    agree("a task that came late", late.await.is_ok(), true)
}
