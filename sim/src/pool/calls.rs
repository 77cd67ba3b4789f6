//! What clients ask of the worker pool, and the workloads that draw it.

use std::time::Duration;

use bytes::Bytes;
use ron_core::deadline::REQUEST_TIMEOUT;

use crate::{
    calls::{CallKind, call},
    ops::Op,
    trace::Outcome,
    workload::{Clients, PACED, Work, WorkloadKind, burst, paced},
};

pub const CALLS: &[CallKind] = &[
    call("pool.put", "stores an item", |c, op| {
        Box::pin(put_plain(c, op))
    }),
    call(
        "pool.put_sized",
        "stores an item with a body of `arg` bytes",
        |c, op| Box::pin(put_sized(c, op)),
    ),
    call(
        "pool.put_by",
        "stores an item and asks for an answer within `arg` ms",
        |c, op| Box::pin(put_by(c, op)),
    ),
];

const fn kind(
    name: &'static str,
    keys: &'static [&'static str],
    draw: fn(&mut crate::ops::Draft<'_>),
) -> WorkloadKind {
    WorkloadKind {
        name,
        service: super::NAME,
        keys,
        work: Work::Operations(draw),
    }
}

pub const WORKLOADS: &[WorkloadKind] = &[
    kind("pool.put", PACED, |draft| paced(draft, |_| ("pool.put", 0))),
    kind(
        "pool.burst",
        &["on", "at_s", "requests", "timeout_ms"],
        |draft| burst(draft, "pool.put"),
    ),
    kind("pool.sizes", PACED_SIZED, |draft| {
        let bytes = draft.drawn.bytes;
        paced(draft, |rng| ("pool.put_sized", bytes.draw_count(rng)));
    }),
    kind("pool.hurry", PACED_HURRIED, |draft| {
        let within = draft.drawn.within_ms;
        paced(draft, |rng| ("pool.put_by", within.draw_count(rng).max(1)));
    }),
];

const PACED_SIZED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
    "bytes",
];

const PACED_HURRIED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
    "within_ms",
];

/// An item to store.
struct Item {
    key: u64,
    body: Bytes,
    /// Told to the server, which may answer no later.
    deadline: Option<Duration>,
}

impl Item {
    fn new(key: u64) -> Self {
        Item {
            key,
            body: Bytes::from_static(b"{}"),
            deadline: None,
        }
    }
}

async fn put(clients: &Clients, on: &str, item: Item, timeout: Duration) -> Outcome {
    let to = clients.address(on);
    let mut message = http::Request::builder()
        .method("PUT")
        .uri(format!("http://{to}/items/{}", item.key));
    if let Some(deadline) = item.deadline {
        message = message.header(REQUEST_TIMEOUT, format!("{:.3}", deadline.as_secs_f64()));
    }
    let message = message.body(item.body).expect("a valid request");
    let asked = ("pool.put", item.key);
    clients.ask_whole(asked, message, timeout).await.0
}

/// Whether the node stores an item.
pub async fn serves(clients: &Clients, on: &str, timeout: Duration) -> (Outcome, Bytes) {
    let item = Item::new(clients.fresh_key());
    (put(clients, on, item, timeout).await, Bytes::new())
}

async fn put_plain(clients: Clients, op: Op) {
    put(&clients, &op.on, Item::new(op.key), timeout(&op)).await;
}

async fn put_sized(clients: Clients, op: Op) {
    let item = Item {
        body: Bytes::from(vec![b' '; op.arg as usize]),
        ..Item::new(op.key)
    };
    let outcome = put(&clients, &op.on, item, timeout(&op)).await;
    if let Outcome::Answered(status) = outcome {
        clients.tell("client.sized", op.arg, format_args!("{status}"));
    }
}

async fn put_by(clients: Clients, op: Op) {
    let item = Item {
        deadline: Some(Duration::from_millis(op.arg)),
        ..Item::new(op.key)
    };
    let began = clients.env().now();
    let outcome = put(&clients, &op.on, item, timeout(&op)).await;
    if let Outcome::Answered(_) = outcome {
        let took = (clients.env().now() - began).as_millis();
        clients.tell("client.hurried", op.arg, format_args!("{took}"));
    }
}

fn timeout(op: &Op) -> Duration {
    Duration::from_millis(op.timeout_ms)
}
