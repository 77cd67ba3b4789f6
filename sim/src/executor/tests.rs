//! What the executor promises.

use std::{
    future::{pending, poll_fn},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

use super::*;
use crate::timer::sleep;

fn in_a_world<T: Send + 'static, F: Future<Output = T>>(
    seed: u64,
    body: impl FnOnce() -> F + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || Simulation::new(seed).block_on(body()));
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const MS: Duration = Duration::from_millis(1);

/// Counts its drops.
struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The order in which eight tasks of three steps each come to their turns, and when they are done.
fn order(seed: u64) -> (Vec<usize>, Duration) {
    in_a_world(seed, || async {
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let tasks = (0..8).map(|n| {
            let order = order.clone();
            spawn(async move {
                for _ in 0..3 {
                    order.lock().unwrap().push(n);
                    yield_once().await;
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            task.await;
        }
        let order = order.lock().unwrap().clone();
        (order, timer::elapsed())
    })
}

#[test]
fn the_seed_alone_decides_whose_turn_it_is_and_how_long_it_takes() {
    assert_eq!(order(1), order(1));
    assert_ne!(order(1).0, order(2).0);
    assert_ne!(order(1).1, order(2).1);
}

#[test]
fn the_tasks_of_a_killed_crew_are_dropped_without_another_step() {
    in_a_world(1, || async {
        let (steps, drops) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let crew = Crew::new(None);
        for _ in 0..5 {
            let (steps, held) = (steps.clone(), Dropped(drops.clone()));
            let task = async move {
                let _held = held;
                loop {
                    steps.fetch_add(1, Relaxed);
                    sleep(MS).await;
                }
            };
            crew.spawn_live("task", Box::pin(task));
        }
        sleep(10 * MS).await;
        assert_eq!(crew.live(), 5);
        let before = steps.load(Relaxed);
        crew.kill();
        crew.spawn("late", Box::pin(async { panic!("never steps") }));
        sleep(10 * MS).await;
        assert_eq!((steps.load(Relaxed), drops.load(Relaxed)), (before, 5));
        assert_eq!(crew.live(), 0);
    });
}

#[test]
fn a_crew_settles_by_letting_whoever_was_woken_take_a_turn() {
    in_a_world(1, || async {
        let crew = Crew::new(None);
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (woken, wakes) = (first.clone(), second.clone());
        let chain = async move {
            woken.notified().await;
            wakes.notify_one();
        };
        crew.spawn_live("first", Box::pin(chain));
        let woken = second.clone();
        crew.spawn_live("second", Box::pin(async move { woken.notified().await }));
        crew.spawn_live("forgotten", Box::pin(pending()));
        sleep(MS).await;
        let (seen, mine) = (Arc::new(AtomicU64::new(0)), crew.clone());
        let count = seen.clone();
        let last = async move {
            first.notify_one();
            mine.settle().await;
            count.store(mine.live(), Relaxed);
        };
        crew.spawn("last", Box::pin(last));
        sleep(MS).await;
        assert_eq!(seen.load(Relaxed), 1, "only the one that nobody woke");
    });
}

#[test]
fn a_paused_crew_waits_and_loses_no_wake_up() {
    in_a_world(1, || async {
        let steps = Arc::<AtomicU64>::default();
        let counted = steps.clone();
        let crew = Crew::new(None);
        let task = async move {
            for _ in 0..3 {
                sleep(MS).await;
                counted.fetch_add(1, Relaxed);
            }
        };
        crew.spawn("task", Box::pin(task));
        sleep(MS / 2).await;
        crew.pause();
        sleep(100 * MS).await;
        assert_eq!(steps.load(Relaxed), 0);
        crew.resume();
        sleep(10 * MS).await;
        assert_eq!(steps.load(Relaxed), 3);
    });
}

#[test]
fn killing_a_paused_crew_drops_its_tasks_too() {
    in_a_world(1, || async {
        let drops = Arc::<AtomicU64>::default();
        let held = Dropped(drops.clone());
        let crew = Crew::new(None);
        let task = async move {
            let _held = held;
            sleep(MS).await;
            panic!("never steps again");
        };
        crew.spawn("task", Box::pin(task));
        sleep(MS / 2).await;
        crew.pause();
        sleep(2 * MS).await;
        crew.kill();
        sleep(MS).await;
        assert_eq!(drops.load(Relaxed), 1);
    });
}

#[test]
fn an_aborted_task_is_dropped_and_its_waiter_told() {
    in_a_world(1, || async {
        let drops = Arc::<AtomicU64>::default();
        let held = Dropped(drops.clone());
        let task = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        sleep(MS).await;
        task.abort();
        assert_eq!(task.await, None);
        assert_eq!(drops.load(Relaxed), 1);
        assert_eq!(spawn(async { 7 }).await, Some(7));
    });
}

#[test]
fn whatever_still_lives_at_the_end_is_dropped() {
    let drops = Arc::<AtomicU64>::default();
    let held = drops.clone();
    in_a_world(1, || async move {
        let crew = Crew::new(None);
        let (first, second) = (Dropped(held.clone()), Dropped(held));
        crew.spawn(
            "asleep",
            Box::pin(async move {
                let _first = first;
                sleep(Duration::from_secs(3600)).await;
            }),
        );
        // Nobody holds a waker of this one.
        spawn(async move {
            let _second = second;
            pending::<()>().await;
        });
        sleep(MS).await;
    });
    assert_eq!(drops.load(Relaxed), 2);
}

#[test]
fn libraries_see_the_clock_of_the_world() {
    in_a_world(1, || async {
        let begin = Instant::now();
        sleep(Duration::from_secs(5)).await;
        let (seen, ours) = (begin.elapsed(), timer::elapsed());
        assert!(
            ours - seen < MS && seen >= Duration::from_secs(5),
            "{seen:?} {ours:?}"
        );
    });
}

#[test]
#[should_panic(expected = "nothing can ever happen again")]
fn a_world_in_which_everybody_waits_for_another_ends() {
    in_a_world(1, pending::<()>);
}

#[test]
#[should_panic(expected = "time limit exceeded")]
fn a_world_ends_at_its_limit_of_time() {
    let world = || Simulation::new(1).limited(MS).block_on(sleep(2 * MS));
    let thread = std::thread::spawn(world);
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
