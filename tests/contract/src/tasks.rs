//! Tasks: run without being awaited, abort at an await point, lose nothing silently.

use std::{future::pending, time::Duration};

use ron_core::Lost;
use tokio::sync::oneshot;

use crate::{Pair, list};

list!("tasks":
    a_task_yields_its_value,
    a_task_runs_on_when_its_join_is_dropped,
    an_aborted_task_is_dropped_at_its_await_point_and_lost,
    aborting_a_finished_task_changes_nothing,
);

async fn a_task_yields_its_value(pair: Pair) {
    let env = pair.client;
    let inner = env.clone();
    let task = env.spawn("case", async move {
        inner.sleep(Duration::from_millis(5)).await;
        7
    });
    assert_eq!(task.await, Ok(7));
}

async fn a_task_runs_on_when_its_join_is_dropped(pair: Pair) {
    let env = pair.client;
    let (done, finished) = oneshot::channel();
    let inner = env.clone();
    drop(env.spawn("case", async move {
        inner.sleep(Duration::from_millis(5)).await;
        let _ = done.send(7);
    }));
    assert_eq!(finished.await, Ok(7));
}

async fn an_aborted_task_is_dropped_at_its_await_point_and_lost(pair: Pair) {
    let env = pair.client;
    let (started, has_started) = oneshot::channel();
    let (held, dropped) = oneshot::channel::<()>();
    let task = env.spawn("case", async move {
        let _held = held;
        let _ = started.send(());
        pending::<()>().await;
    });
    has_started.await.unwrap();
    task.abort();
    assert_eq!(task.await, Err(Lost));
    assert!(dropped.await.is_err());
}

async fn aborting_a_finished_task_changes_nothing(pair: Pair) {
    let env = pair.client;
    let (done, finished) = oneshot::channel();
    let task = env.spawn("case", async move {
        let _ = done.send(());
        7
    });
    finished.await.unwrap();
    // The value is handed over after the last await point, where an abort can no longer reach it.
    env.sleep(Duration::from_millis(20)).await;
    task.abort();
    assert_eq!(task.await, Ok(7));
}
