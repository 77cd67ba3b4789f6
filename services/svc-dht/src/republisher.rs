//! Publishes records again before their time is over: this node's own, made anew, and those it keeps for
//! publishers that seem to be gone, as they are, to whoever is closest now.
//!
//! Always: one record at a time, so that a full store is no storm; how late it is with the record that waits
//! longest is told as `republish_lag_ms`.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use ron_core::{seam::Pool, supervisor::TaskContext};
use tokio::sync::oneshot;

use crate::{dht::Dht, lookup::Goal, record::Record, record_keeper::Write};

/// Of its life, when somebody else's record is handed on: its publisher should have renewed it long before.
const HAND_ON_PERCENT: u64 = 50;
/// Of its life, when a record of our own is late.
const LATE_PERCENT: u64 = 66;

pub async fn run(dht: Dht, context: TaskContext) {
    let period = Duration::from_millis(dht.node().config.records.republish_check_ms);
    let mut looked_ms = dht.node().env.wall_ms();
    loop {
        tokio::select! {
            biased;
            () = context.stop.wait() => return,
            () = context.env.sleep(period) => {}
        }
        let now_ms = dht.node().env.wall_ms();
        tokio::select! {
            biased;
            () = context.stop.wait() => return,
            () = Box::pin(look(&dht, looked_ms, now_ms)) => {}
        }
        looked_ms = now_ms;
    }
}

async fn look(dht: &Dht, before_ms: u64, now_ms: u64) {
    let node = dht.node();
    let percent = u64::from(node.config.records.republish_percent);
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
    let deadline = node.env.now() + node.config.lookup_deadline() + node.config.rpc_timeout();
    dht.publish(renewed, deadline).await.is_ok()
}

async fn hand_on(dht: &Dht, record: &Arc<Record>) {
    let node = dht.node();
    let deadline = node.env.now() + node.config.lookup_deadline();
    let Ok(found) = dht.ask(Goal::Closest, record.key, deadline, false).await else {
        return;
    };
    let deadline = node.env.now() + node.config.rpc_timeout();
    let all = found.closest.len();
    if dht.hand_out(record, &found.closest, all, deadline).await > 0 {
        node.metrics.inc(|hot| &hot.republished);
    }
}
