//! What a client may ask of a service: each call of the catalogue, and how it is carried out.
//!
//! A service of its own brings its calls here, its workloads to [`crate::workload`]. Always: a call notes its
//! request when it is sent and its outcome once.

use std::time::Duration;

use bytes::Bytes;
use ron_core::seam::BoxFuture;

use crate::{
    ops::Op,
    trace::Outcome,
    workload::{Clients, Item},
};

pub struct CallKind {
    pub name: &'static str,
    pub does: &'static str,
    pub run: fn(Clients, Op) -> BoxFuture<'static, ()>,
}

pub const CALLS: &[CallKind] = &[
    CallKind {
        name: "pool.put",
        does: "stores an item",
        run: |clients, op| Box::pin(put(clients, op)),
    },
    CallKind {
        name: "pool.put_sized",
        does: "stores an item with a body of `arg` bytes",
        run: |clients, op| Box::pin(put_sized(clients, op)),
    },
    CallKind {
        name: "pool.put_by",
        does: "stores an item and asks for an answer within `arg` ms",
        run: |clients, op| Box::pin(put_by(clients, op)),
    },
];

pub fn find(name: &str) -> Option<&'static CallKind> {
    let mut all = CALLS
        .iter()
        .chain(crate::kms::calls::CALLS)
        .chain(crate::dht::calls::CALLS);
    all.find(|call| call.name == name)
}

async fn put(clients: Clients, op: Op) {
    clients.put(&op.on, Item::new(op.key), timeout(&op)).await;
}

async fn put_sized(clients: Clients, op: Op) {
    let item = Item {
        body: Bytes::from(vec![b' '; op.arg as usize]),
        ..Item::new(op.key)
    };
    let outcome = clients.put(&op.on, item, timeout(&op)).await;
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
    let outcome = clients.put(&op.on, item, timeout(&op)).await;
    if let Outcome::Answered(_) = outcome {
        let took = (clients.env().now() - began).as_millis();
        clients.tell("client.hurried", op.arg, format_args!("{took}"));
    }
}

fn timeout(op: &Op) -> Duration {
    Duration::from_millis(op.timeout_ms)
}
