//! Clock: never early, in order.

use std::{
    future::{pending, ready},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use ron_core::Elapsed;

use crate::{Pair, list};

list!("time":
    a_sleep_never_ends_early,
    sleeps_end_in_the_order_of_their_deadlines,
    a_timeout_never_fires_early,
    a_result_that_is_ready_at_the_deadline_counts,
    time_moves_on_during_a_sleep_on_both_clocks,
);

async fn a_sleep_never_ends_early(pair: Pair) {
    let env = pair.client;
    for ms in [0, 1, 2, 7, 20] {
        let duration = Duration::from_millis(ms);
        let start = env.now();
        env.sleep(duration).await;
        assert!(env.now() - start >= duration, "{ms} ms");
    }
    env.sleep_until(env.now()).await;
}

async fn sleeps_end_in_the_order_of_their_deadlines(pair: Pair) {
    let env = pair.client;
    let start = env.now();
    let sleeps: FuturesUnordered<_> = [60, 20, 40, 0]
        .map(|ms| {
            let sleep = env.sleep_until(start + Duration::from_millis(ms));
            async move {
                sleep.await;
                ms
            }
        })
        .into_iter()
        .collect();
    assert_eq!(sleeps.collect::<Vec<_>>().await, [0, 20, 40, 60]);
}

async fn a_timeout_never_fires_early(pair: Pair) {
    let env = pair.client;
    let limit = Duration::from_millis(20);
    let start = env.now();
    assert_eq!(env.timeout(limit, pending::<()>()).await, Err(Elapsed));
    assert!(env.now() - start >= limit);
}

async fn a_result_that_is_ready_at_the_deadline_counts(pair: Pair) {
    let env = pair.client;
    assert_eq!(env.timeout_at(env.now(), ready(7)).await, Ok(7));
}

async fn time_moves_on_during_a_sleep_on_both_clocks(pair: Pair) {
    let env = pair.client;
    let (start, wall) = (env.now(), env.wall_ms());
    env.sleep(Duration::from_millis(30)).await;
    assert!(env.now() > start);
    assert!(env.wall_ms() > wall);
}
