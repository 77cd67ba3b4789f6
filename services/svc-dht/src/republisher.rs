//! Publishes records again before their time is over: this node's own, made anew, and those it keeps for
//! publishers that seem to be gone, as they are, to whoever is closest now. At the start it asks what became of
//! the values that it had before.
//!
//! Always: one record at a time is published, so that a full store is no storm; how late it is with the record that waits
//! longest is told as `republish_lag_ms`.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join, ready},
    stream,
};
use ron_core::{backoff::Backoff, seam::Pool, supervisor::TaskContext};
use tokio::sync::oneshot;

use crate::{
    dht::Dht,
    id::Id,
    lookup::{Goal, Outcome},
    record::{Record, RecordKind},
    record_keeper::Write,
    worker::Reply,
};

/// Of its life, when somebody else's record is handed on: its publisher should have renewed it long before.
const HAND_ON_PERCENT: u64 = 50;
/// Of its life, when a record of our own is late.
const LATE_PERCENT: u64 = 66;
/// Before a node that is back asks what it has missed; up to twice as long.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
/// Values that it asks for at a time.
const CATCH_UP_AT_ONCE: usize = 4;

pub async fn run(dht: Dht, context: TaskContext) {
    tokio::select! {
        biased;
        () = context.stop.wait() => {}
        _ = join(keep_publishing(&dht), Box::pin(catch_up(&dht))) => {}
    }
}

async fn keep_publishing(dht: &Dht) {
    let env = &dht.node().env;
    let period = Duration::from_millis(dht.node().config().records.republish_check_ms);
    let mut looked_ms = env.wall_ms();
    loop {
        env.sleep(period).await;
        let now_ms = env.wall_ms();
        Box::pin(look(dht, looked_ms, now_ms)).await;
        looked_ms = now_ms;
    }
}

/// What this node brought from an earlier life may have been superseded while it was away. It asks once what the
/// others hold: if all the nearest were away, nobody who reads would ever meet the newer one.
async fn catch_up(dht: &Dht) {
    let node = dht.node();
    let env = &node.env;
    let own = *node.identity.public();
    let brought = |r: &Arc<Record>| r.kind == RecordKind::Value && r.publisher != own;
    let brought: Vec<Id> = node
        .shelf
        .all(env.wall_ms())
        .filter(brought)
        .map(|r| r.key)
        .collect();
    if brought.is_empty() {
        return;
    }
    // Many may be back at once, after one failure of power.
    let mut rng = env.rng();
    let jitter = Backoff::band(CATCH_UP_PAUSE, CATCH_UP_PAUSE * 2, CATCH_UP_PAUSE * 2);
    while !node.bootstrapped.load(Relaxed) {
        env.sleep(jitter.delay(0, &mut rng)).await;
    }
    env.sleep(jitter.delay(0, &mut rng)).await;
    let all = brought.len();
    let asked = brought.into_iter().map(|key| newest(dht, key));
    let newer = stream::iter(asked).buffer_unordered(CATCH_UP_AT_ONCE);
    let newer = newer.filter(|newer| ready(*newer)).count().await;
    env.probe(
        "dht.caught_up",
        newer as u64,
        format_args!("{newer} of {all}"),
    );
}

/// Keeps the newest value that any of the closest holds; true if that is news.
async fn newest(dht: &Dht, key: Id) -> bool {
    let node = dht.node();
    let deadline = node.env.now() + node.config().lookup_deadline();
    // No quorum ends it: those that were away together agree on what is old.
    let goal = Goal::Value { quorum: usize::MAX };
    let Ok(found) = dht.ask(goal, key, deadline, false).await else {
        return false;
    };
    let Outcome::Value { record, .. } = found.outcome else {
        return false;
    };
    let held = node.shelf.value(&key, node.env.wall_ms());
    if held.is_none_or(|held| !record.supersedes(&held)) {
        return false;
    }
    let (reply, kept) = oneshot::channel();
    let (record, reply) = (*record, Reply::Local(reply));
    node.records.push(Write::Put { record, reply }).is_ok() && matches!(kept.await, Ok(Ok(_)))
}

async fn look(dht: &Dht, before_ms: u64, now_ms: u64) {
    let node = dht.node();
    let percent = u64::from(node.config().records.republish_percent);
    let mine = mine(dht).await;
    let lag = |r: &Record| now_ms.saturating_sub(moment(r, LATE_PERCENT));
    let due = mine.iter().filter(|r| now_ms >= moment(r, percent));
    let mut worst = 0;
    for record in due {
        match renew(dht, record).await {
            true => node.metrics.inc(|hot| &hot.republished),
            false => worst = worst.max(lag(record)),
        }
    }
    if worst > 0 {
        tracing::warn!(
            lag_ms = worst,
            "records could not be published again in time"
        );
        node.env
            .probe("dht.republish_late", worst, format_args!(""));
    }
    node.republish_lag_ms.store(worst, Relaxed);
    for record in dht.node().shelf.all(now_ms) {
        let moment = moment(&record, HAND_ON_PERCENT);
        let own = record.publisher == *node.identity.public();
        if !own && (before_ms..now_ms).contains(&moment) {
            hand_on(dht, &record).await;
        }
    }
}

async fn mine(dht: &Dht) -> Vec<Arc<Record>> {
    let (reply, mine) = oneshot::channel();
    match dht.node().records.push(Write::Mine(reply)) {
        Ok(()) => mine.await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// When this share of its life is over.
fn moment(record: &Record, percent: u64) -> u64 {
    record
        .created_ms
        .saturating_add(record.ttl_ms / 100 * percent)
}

async fn renew(dht: &Dht, record: &Arc<Record>) -> bool {
    let node = dht.node();
    let (old, identity, now) = (record.clone(), node.identity.clone(), node.env.wall_ms());
    let signed = node
        .env
        .offload(Pool::CPU, move || old.renewed(&identity, now));
    let Ok(renewed) = signed.await else {
        return false;
    };
    let deadline = node.env.now() + node.config().lookup_deadline() + node.config().rpc_timeout();
    dht.publish(renewed, deadline).await.is_ok()
}

async fn hand_on(dht: &Dht, record: &Arc<Record>) {
    let node = dht.node();
    let deadline = node.env.now() + node.config().lookup_deadline();
    let Ok(found) = dht.ask(Goal::Closest, record.key, deadline, false).await else {
        return;
    };
    let deadline = node.env.now() + node.config().rpc_timeout();
    let all = found.closest.len();
    if dht.hand_out(record, &found.closest, all, deadline).await > 0 {
        node.metrics.inc(|hot| &hot.republished);
    }
}
