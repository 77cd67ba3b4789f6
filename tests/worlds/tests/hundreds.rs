//! The world of thousands in small, with every test run: joins, leaves, lookups.

#![allow(
    clippy::disallowed_methods,
    reason = "it makes a world, and is in none"
)]

use std::time::Duration;

use sim::executor::Simulation;
use worlds::thousands::{self, Size};

#[test]
fn three_hundred_nodes_come_and_go_and_find_who_is_closest() {
    let size = Size {
        leave: 30,
        join: 30,
        lookups: 1_000,
        during: Duration::from_secs(300),
        start_over: Duration::from_secs(60),
        tell_every: None,
        ..Size::of(300)
    };
    let world = std::thread::spawn(move || Simulation::new(1).block_on(thousands::run(size)));
    let figures = world.join().expect("the world holds");
    println!("{}", figures.table());
    // What one node of few costs says little, and what the process costs depends on the machine.
    let broken = figures.broken();
    let broken = broken
        .iter()
        .filter(|what| !what.starts_with("resident") && !what.starts_with("CPU"));
    assert_eq!(broken.count(), 0, "{}", figures.table());
}
