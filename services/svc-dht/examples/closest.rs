//! What `closest` costs on a table as a node of a large network has it: `cargo run --release -p svc-dht --example closest`.
//!
//! Every inbound FIND_NODE asks it, so it should stay at a microsecond or two.
#![allow(clippy::disallowed_methods, reason = "it measures the machine's time")]

use std::{hint::black_box, net::SocketAddr, time::Instant};

use svc_dht::{
    contact::Contact,
    id::Id,
    routing::{Liveness, Rules, Table, Update},
};

const NETWORK: u32 = 10_000;
const CALLS: u32 = 1_000_000;

fn main() {
    let id = |n: u32| Id(*blake3::hash(&n.to_be_bytes()).as_bytes());
    let table = Table::new(id(u32::MAX), Rules::default());
    for n in 0..NETWORK {
        let [_, a, b, c] = n.to_be_bytes();
        let addr = SocketAddr::from(([10 + a, b, c, 1], 4000)).into();
        let contact = Contact { id: id(n), addr };
        let index = table.bucket_of(&contact.id).unwrap_or_default();
        if let Some(mut half) = table.claim(index) {
            half.handle(
                Update::Verified {
                    contact,
                    rtt_ms: None,
                },
                1,
            );
        }
    }
    let counts = table.counts();
    println!("{} peers in {} buckets", counts.peers, counts.buckets);
    let targets: Vec<Id> = (0..1024).map(|n| id(NETWORK + n)).collect();
    let call = |what: &str, run: &dyn Fn(&Id)| {
        let start = Instant::now();
        for n in 0..CALLS {
            run(&targets[n as usize % targets.len()]);
        }
        println!(
            "{what}: {} ns",
            start.elapsed().as_nanos() / u128::from(CALLS)
        );
    };
    let live = Liveness::SkipDead;
    call("closest(target, 20)", &|target| {
        black_box(table.closest(target, 20, live, None));
    });
    call("for_closest(target, 20), nothing allocated", &|target| {
        table.for_closest(target, 20, live, None, |entry| {
            black_box(entry);
        });
    });
}
