//! The policies that wait, on a clock moved by hand: how long, in which order, and what a push leaves
//! behind that gives up or is dropped.
#![cfg(not(feature = "loom"))]

mod hands;

use std::{task::Poll, time::Duration};

use hands::{Polled, world};
use ron_core::{Queue, Refusal, RetryOnce, WaitFor, WaitThenDropOldest};

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_millis(200);

fn audit(cap: usize) -> Queue<u32, WaitThenDropOldest<u32>> {
    let keep = |item: &u32| *item >= 100;
    Queue::new("audit", cap, WaitThenDropOldest { wait: WAIT, keep })
}

/// A push that finds room and must not wait for it.
macro_rules! put {
    ($queue:expr, $env:expr, $item:expr) => {
        assert!(matches!(
            Polled::new($queue.push($env, $item)).poll(),
            Poll::Ready(Ok(_))
        ))
    };
}

#[test]
fn a_push_waits_for_room_and_gets_in_when_a_consumer_makes_some() {
    let (env, hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut push = Polled::new(queue.push(&env, 2));
    assert!(push.poll().is_pending());
    hands.advance(WAIT - MS);
    assert_eq!(queue.try_pop(), Some(1));
    assert_eq!(push.wakes(), 1);
    assert_eq!(push.poll(), Poll::Ready(Ok(())));
    assert_eq!(queue.try_pop(), Some(2));
}

#[test]
fn a_push_gives_up_at_its_deadline_not_before() {
    // proves: DHT-3.2
    let (env, hands) = world();
    let queue = Queue::new("route", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut push = Polled::new(queue.push(&env, 2));
    assert!(push.poll().is_pending());
    hands.advance(WAIT - MS);
    assert!(push.poll().is_pending());
    assert_eq!(queue.stats().refused, 0);
    hands.advance(MS);
    let Poll::Ready(Err(refused)) = push.poll() else {
        panic!("must be refused")
    };
    assert_eq!((refused.item, refused.why), (2, Refusal::Full));
    assert_eq!(queue.stats().refused, 1);
    assert_eq!(queue.len(), 1);
}

#[test]
fn room_that_is_there_at_the_deadline_still_counts() {
    let (env, hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut push = Polled::new(queue.push(&env, 2));
    assert!(push.poll().is_pending());
    hands.advance(WAIT);
    queue.try_pop();
    assert_eq!(push.poll(), Poll::Ready(Ok(())));
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait_for_room() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut first = Polled::new(queue.push(&env, 2));
    let mut second = Polled::new(queue.push(&env, 3));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    queue.try_pop();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    let mut newcomer = Polled::new(queue.push(&env, 4));
    assert!(newcomer.poll().is_pending());
    assert!(second.poll().is_pending());
    assert_eq!(first.poll(), Poll::Ready(Ok(())));
    assert_eq!(queue.try_pop(), Some(2));
    assert_eq!(second.poll(), Poll::Ready(Ok(())));
}

#[test]
fn a_waiting_push_that_is_dropped_is_counted_and_passes_its_turn_on() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut first = Polled::new(queue.push(&env, 2));
    let mut second = Polled::new(queue.push(&env, 3));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    queue.try_pop();
    drop(first);
    assert_eq!(second.wakes(), 1);
    assert_eq!(second.poll(), Poll::Ready(Ok(())));
    let stats = queue.stats();
    assert_eq!((stats.offered, stats.accepted, stats.refused), (3, 2, 1));
}

#[test]
fn a_batch_makes_room_for_as_many_producers() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 2, WaitFor(WAIT));
    put!(queue, &env, 1);
    put!(queue, &env, 2);
    let mut pushes: Vec<_> = (3..6).map(|i| Polled::new(queue.push(&env, i))).collect();
    assert!(pushes.iter_mut().all(|push| push.poll().is_pending()));
    let mut batch = Polled::new(queue.pop_batch(8));
    assert_eq!(batch.poll(), Poll::Ready(vec![1, 2]));
    let wakes: Vec<_> = pushes.iter().map(Polled::wakes).collect();
    assert_eq!(wakes, [1, 1, 0]);
}

#[test]
fn clearing_makes_room_for_those_who_wait() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut push = Polled::new(queue.push(&env, 2));
    assert!(push.poll().is_pending());
    assert_eq!(queue.clear(), [1]);
    assert_eq!(push.wakes(), 1);
    assert_eq!(push.poll(), Poll::Ready(Ok(())));
}

#[test]
fn an_item_that_gets_in_wakes_a_consumer_however_long_it_waited() {
    let (env, hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    let mut pop = Polled::new(queue.pop());
    assert!(pop.poll().is_pending());
    put!(queue, &env, 1);
    assert_eq!(pop.wakes(), 1, "in at the first try");
    assert_eq!(pop.poll(), Poll::Ready(Some(1)));

    put!(queue, &env, 2);
    let mut push = Polled::new(queue.push(&env, 3));
    assert!(push.poll().is_pending());
    assert_eq!(queue.try_pop(), Some(2));
    let mut pop = Polled::new(queue.pop());
    assert!(pop.poll().is_pending());
    assert_eq!(push.poll(), Poll::Ready(Ok(())));
    assert_eq!(pop.wakes(), 1, "in after a wait");
    assert_eq!(pop.poll(), Poll::Ready(Some(3)));

    let mut rng = env.rng();
    let queue = Queue::new("q", 1, RetryOnce { lo: MS, hi: MS });
    assert!(Polled::new(queue.push(&env, &mut rng, 4)).poll().is_ready());
    let mut push = Polled::new(queue.push(&env, &mut rng, 5));
    assert!(push.poll().is_pending());
    assert_eq!(queue.try_pop(), Some(4));
    let mut pop = Polled::new(queue.pop());
    assert!(pop.poll().is_pending());
    hands.advance(MS);
    assert_eq!(push.poll(), Poll::Ready(Ok(())));
    assert_eq!(pop.wakes(), 1, "in at the last try");
}

#[test]
fn a_closed_queue_refuses_at_once_even_when_full() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    queue.close();
    let Poll::Ready(Err(refused)) = Polled::new(queue.push(&env, 2)).poll() else {
        panic!("must be refused")
    };
    assert_eq!((refused.item, refused.why), (2, Refusal::Closed));
}

#[test]
fn close_refuses_every_push_that_waits() {
    let (env, _hands) = world();
    let queue = Queue::new("q", 1, WaitFor(WAIT));
    put!(queue, &env, 1);
    let mut pushes: Vec<_> = (2..5).map(|i| Polled::new(queue.push(&env, i))).collect();
    assert!(pushes.iter_mut().all(|push| push.poll().is_pending()));
    queue.close();
    for push in &mut pushes {
        assert_eq!(push.wakes(), 1);
        let Poll::Ready(Err(refused)) = push.poll() else {
            panic!("must be refused")
        };
        assert_eq!(refused.why, Refusal::Closed);
    }
    assert_eq!(queue.try_pop(), Some(1));
}

#[test]
fn after_the_wait_the_oldest_item_that_is_no_checkpoint_leaves() {
    // proves: KMS-3.2, KMS-3.7, KMS-13.1
    let (env, hands) = world();
    let queue = audit(3);
    for item in [100, 1, 2] {
        put!(queue, &env, item);
    }
    let mut push = Polled::new(queue.push(&env, 3));
    assert!(push.poll().is_pending());
    hands.advance(WAIT - MS);
    assert!(push.poll().is_pending());
    assert_eq!(queue.stats().dropped, 0);
    hands.advance(MS);
    assert_eq!(push.poll(), Poll::Ready(Ok(Some(1))));
    assert_eq!(queue.stats().dropped, 1);
    assert_eq!(queue.clear(), [100, 2, 3]);
}

#[test]
fn nothing_leaves_if_room_comes_in_time() {
    let (env, hands) = world();
    let queue = audit(1);
    put!(queue, &env, 1);
    let mut push = Polled::new(queue.push(&env, 2));
    assert!(push.poll().is_pending());
    hands.advance(WAIT - MS);
    queue.try_pop();
    assert_eq!(push.poll(), Poll::Ready(Ok(None)));
    assert_eq!(queue.stats().dropped, 0);
}

#[test]
fn a_queue_full_of_checkpoints_refuses_and_keeps_them_all() {
    let (env, hands) = world();
    let queue = audit(2);
    put!(queue, &env, 100);
    put!(queue, &env, 101);
    let mut push = Polled::new(queue.push(&env, 102));
    assert!(push.poll().is_pending());
    hands.advance(WAIT);
    let Poll::Ready(Err(refused)) = push.poll() else {
        panic!("must be refused")
    };
    assert_eq!((refused.item, refused.why), (102, Refusal::Full));
    assert_eq!(queue.clear(), [100, 101]);
}

#[test]
fn one_who_gives_up_takes_free_room_and_the_overtaken_one_keeps_its_turn() {
    let (env, hands) = world();
    let queue = audit(1);
    put!(queue, &env, 1);
    let mut early = Polled::new(queue.push(&env, 2));
    assert!(early.poll().is_pending());
    hands.advance(MS);
    let mut middle = Polled::new(queue.push(&env, 3));
    assert!(middle.poll().is_pending());
    // The place goes to `early`, which is slow to come; `middle` gives up meanwhile.
    hands.advance(WAIT - 2 * MS);
    queue.try_pop();
    hands.advance(2 * MS);
    assert_eq!(middle.poll(), Poll::Ready(Ok(None)));
    assert_eq!(queue.stats().dropped, 0);
    assert_eq!(early.poll(), Poll::Ready(Ok(Some(3))));
}

#[test]
fn a_retry_happens_once_after_a_delay_from_the_window() {
    // proves: RWD-3.2, RWD-3.9
    let (lo, hi) = (Duration::from_millis(50), Duration::from_millis(150));
    for freed in [false, true] {
        let (env, hands) = world();
        let mut rng = env.rng();
        let queue = Queue::new("work", 1, RetryOnce { lo, hi });
        assert!(matches!(
            Polled::new(queue.push(&env, &mut rng, 1)).poll(),
            Poll::Ready(Ok(()))
        ));
        let mut push = Polled::new(queue.push(&env, &mut rng, 2));
        assert!(push.poll().is_pending());
        hands.advance(lo - MS);
        assert!(push.poll().is_pending());
        if freed {
            queue.try_pop();
        }
        hands.advance(hi - lo + MS);
        let Poll::Ready(result) = push.poll() else {
            panic!("decided after the window")
        };
        assert_eq!(result.is_ok(), freed);
        assert_eq!(queue.stats().refused, u64::from(!freed));
    }
}

#[test]
fn a_retry_that_is_dropped_is_counted() {
    let (env, _hands) = world();
    let mut rng = env.rng();
    let window = RetryOnce { lo: MS, hi: WAIT };
    let queue = Queue::new("work", 1, window);
    assert!(Polled::new(queue.push(&env, &mut rng, 1)).poll().is_ready());
    let mut push = Polled::new(queue.push(&env, &mut rng, 2));
    assert!(push.poll().is_pending());
    drop(push);
    let stats = queue.stats();
    assert_eq!((stats.offered, stats.refused), (2, 1));
}
