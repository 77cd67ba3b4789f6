//! Every interleaving (up to a bound of preemptions) of the parts that share state between tasks.
//!
//! Run with `cargo test -p ron-core --features loom --test loom --release`. Loom also reports a deadlock:
//! a missed wake-up is one. A future runs on a loom thread that sleeps until it is woken.
#![cfg(feature = "loom")]

mod hands;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake},
    time::Duration,
};

use loom::{sync::Notify, thread};
use ron_core::{Queue, Refusal, RejectNew, Shutdown, WaitFor, snapshot};

/// Tries every schedule with at most this many preemptions: enough for every known race of this kind.
fn check(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper(Notify::new()));
    let waker = sleeper.clone().into();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        sleeper.0.wait();
    }
}

/// Polls once, for somebody who does not come back.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// A worker as services have them: jobs until shutdown is seen, then what is left.
async fn worker(queue: &Queue<u32, RejectNew>, shutdown: &Shutdown) -> (Vec<u32>, Vec<u32>) {
    let mut served = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.wait() => break,
            item = queue.pop() => match item {
                Some(item) => served.push(item),
                None => break,
            },
        }
    }
    shutdown.wait().await;
    let mut drained = Vec::new();
    while let Some(item) = queue.pop().await {
        drained.push(item);
    }
    (served, drained)
}

// proves: EDG-10.4, KMS-10.5, RWD-10.4, RWD-10.5
#[test]
fn a_worker_sees_shutdown_and_drains_what_was_queued() {
    check(3, || {
        let queue = Queue::new("work", 2, RejectNew);
        let shutdown = Shutdown::new();
        let consumer = thread::spawn({
            let (queue, shutdown) = (queue.clone(), shutdown.clone());
            move || block_on(worker(&queue, &shutdown))
        });
        let accepted: Vec<u32> = (0..3).filter(|item| queue.push(*item).is_ok()).collect();
        shutdown.trigger();
        queue.close();
        assert_eq!(queue.push(9).unwrap_err().why, Refusal::Closed);
        let (served, drained) = consumer.join().unwrap();
        assert!(drained.len() <= 2, "at most what the queue holds");
        assert_eq!([served, drained].concat(), accepted, "all, once, in order");
        let stats = queue.stats();
        assert_eq!(stats.accepted, stats.delivered);
    });
}

// proves: RWD-10.4, RWD-10.5
#[test]
fn a_producer_racing_with_close_knows_the_fate_of_its_item() {
    check(3, || {
        let queue = Queue::new("work", 2, RejectNew);
        let producer = thread::spawn({
            let queue = queue.clone();
            move || (0..2).filter(|item| queue.push(*item).is_ok()).count()
        });
        let closer = thread::spawn({
            let queue = queue.clone();
            move || queue.close()
        });
        let mut served = 0;
        while block_on(queue.pop()).is_some() {
            served += 1;
        }
        assert!(closer.join().unwrap());
        assert_eq!(producer.join().unwrap(), served);
    });
}

#[test]
fn no_wake_up_is_lost_between_two_consumers() {
    check(3, || {
        let queue = Queue::new("work", 2, RejectNew);
        let consumers = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || block_on(queue.pop()).expect("one each"))
        });
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        let mut taken = consumers.map(|consumer| consumer.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn a_dropped_pop_passes_its_wake_up_on() {
    check(3, || {
        let queue = Queue::new("work", 2, RejectNew);
        let fickle = thread::spawn({
            let queue = queue.clone();
            move || match poll_once(pin!(queue.pop())) {
                Poll::Ready(item) => item,
                Poll::Pending => None,
            }
        });
        let steady = thread::spawn({
            let queue = queue.clone();
            move || block_on(queue.pop())
        });
        queue.push(1).unwrap();
        // Whoever got it, the steady one must not sleep on an item.
        let taken = fickle.join().unwrap();
        if taken.is_some() {
            queue.push(2).unwrap();
        }
        assert_eq!(
            steady.join().unwrap(),
            Some(if taken.is_some() { 2 } else { 1 })
        );
        assert!(queue.is_empty());
    });
}

#[test]
fn a_producer_that_waits_for_room_is_woken_by_a_consumer() {
    check(3, || {
        // Time stands still here: only room, or closing, ends the wait.
        let (env, _hands) = hands::world();
        let queue = Queue::new("results", 1, WaitFor(Duration::from_secs(1)));
        let producers: Vec<_> = (0..2)
            .map(|item| {
                let (queue, env) = (queue.clone(), env.clone());
                thread::spawn(move || block_on(queue.push(&env, item)).is_ok())
            })
            .collect();
        let mut taken = [block_on(queue.pop()), block_on(queue.pop())];
        taken.sort_unstable();
        assert_eq!(taken, [Some(0), Some(1)]);
        for producer in producers {
            assert!(producer.join().unwrap());
        }
    });
}

#[test]
fn a_dropped_push_passes_its_turn_on_and_close_ends_the_wait() {
    check(2, || {
        let (env, _hands) = hands::world();
        let queue = Queue::new("results", 1, WaitFor(Duration::from_secs(1)));
        block_on(queue.push(&env, 0)).unwrap();
        let fickle = thread::spawn({
            let (queue, env) = (queue.clone(), env.clone());
            move || matches!(poll_once(pin!(queue.push(&env, 1))), Poll::Ready(Ok(())))
        });
        let steady = thread::spawn({
            let (queue, env) = (queue.clone(), env.clone());
            move || block_on(queue.push(&env, 2)).is_ok()
        });
        assert_eq!(block_on(queue.pop()), Some(0));
        let one = fickle.join().unwrap();
        if one {
            queue.close();
        }
        let two = steady.join().unwrap();
        assert!(one || two, "free room is not slept on");
        let stats = queue.stats();
        assert_eq!(stats.accepted, 1 + u64::from(one) + u64::from(two));
        assert_eq!(stats.offered, 3, "the dropped push is counted");
    });
}

// proves: DHT-10.4, DHT-10.5
#[test]
fn a_pipeline_of_two_queues_keeps_order_and_stops() {
    check(2, || {
        let work = Queue::new("work", 2, RejectNew);
        let route = Queue::new("route", 2, RejectNew);
        let shutdown = Shutdown::new();
        let lookup = thread::spawn({
            let (work, route, shutdown) = (work.clone(), route.clone(), shutdown.clone());
            move || {
                let (served, drained) = block_on(worker(&work, &shutdown));
                for item in served.into_iter().chain(drained) {
                    route.push(item).unwrap();
                }
                route.close();
            }
        });
        let writer = thread::spawn({
            let route = route.clone();
            move || {
                let mut written = Vec::new();
                while let Some(item) = block_on(route.pop()) {
                    written.push(item);
                }
                written
            }
        });
        work.push(1).unwrap();
        work.push(2).unwrap();
        shutdown.trigger();
        work.close();
        lookup.join().unwrap();
        assert_eq!(writer.join().unwrap(), [1, 2]);
    });
}

// proves: KMS-10.5, ADM-10.20
#[test]
fn everyone_sees_shutdown_early_or_late_and_one_trigger_is_first() {
    check(3, || {
        let shutdown = Shutdown::new();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shutdown = shutdown.clone();
                thread::spawn(move || block_on(shutdown.wait()))
            })
            .collect();
        let other = thread::spawn({
            let shutdown = shutdown.clone();
            move || shutdown.trigger()
        });
        let first = shutdown.trigger();
        block_on(shutdown.wait());
        assert!(shutdown.is_triggered());
        assert!(first != other.join().unwrap());
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_dropped_wait_leaves_the_other_one_to_see_shutdown() {
    check(3, || {
        let shutdown = Shutdown::new();
        let steady = thread::spawn({
            let shutdown = shutdown.clone();
            move || block_on(shutdown.wait())
        });
        let fickle = thread::spawn({
            let shutdown = shutdown.clone();
            move || poll_once(pin!(shutdown.wait())).is_ready()
        });
        shutdown.trigger();
        steady.join().unwrap();
        fickle.join().unwrap();
        assert_eq!(shutdown.waiting(), 0);
    });
}

#[test]
fn readers_see_whole_values_that_never_go_back() {
    check(3, || {
        let (mut writer, reader) = snapshot((0, 0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = reader.clone();
                thread::spawn(move || {
                    let (first, second) = (reader.load(), reader.load());
                    for value in [&first, &second] {
                        assert_eq!(value.0, value.1, "no torn read");
                    }
                    assert!(first.0 <= second.0, "never back");
                })
            })
            .collect();
        for version in 1..=2 {
            writer.publish((version, version));
        }
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(*reader.load(), (2, 2));
    });
}
