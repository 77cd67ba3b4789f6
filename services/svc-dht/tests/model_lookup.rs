//! Every interleaving of answers, lies, losses and ticks of one small lookup, on the shipped machine.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use svc_dht::models::lookup::{
    ALPHA, BETA, ENDS, Flaw, LookupWorld, PATIENT, PROMPT, RESULT, SELF, TRIES,
};

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant can be had from nowhere else; its value plays no part"
)]
fn world() -> LookupWorld {
    LookupWorld {
        peers: 4,
        lies: 1,
        resets: 1,
        silent: 1,
        flaw: None,
        origin: Instant::now(),
    }
}

fn holds(model: LookupWorld) {
    let what = format!("{model:?}");
    let checker = model
        .checker()
        .target_state_count(600_000)
        .spawn_bfs()
        .join();
    println!("{} states: {what}", checker.unique_state_count());
    assert!(
        checker.unique_state_count() > 1000,
        "the world is too small"
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() < 500_000, "it does not end");
}

// proves: DHT-10.9, DHT-13.3, DHT-5.4
#[test]
fn a_lookup_keeps_its_bounds_and_ends_under_bounded_faults() {
    holds(world());
}

// proves: DHT-10.9
#[test]
fn the_checker_refutes_each_known_bad_lookup() {
    for (flaw, property) in [
        (Flaw::SearchesTooWide, ALPHA),
        (Flaw::HedgesTooMuch, BETA),
        (Flaw::TriesForever, TRIES),
        (Flaw::ForgetsItself, SELF),
        (Flaw::DropsLateAnswers, RESULT),
        (Flaw::NeverWakes, ENDS),
        (Flaw::WaitsForSilent, PROMPT),
        (Flaw::LeavesTheSlow, PATIENT),
    ] {
        let resets = if flaw == Flaw::TriesForever { 3 } else { 1 };
        let model = LookupWorld {
            flaw: Some(flaw),
            resets,
            ..world()
        };
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = model
            .checker()
            .finish_when(found)
            .target_state_count(300_000);
        let checker = checker.spawn_bfs().join();
        assert!(
            checker.discovery(property).is_some(),
            "{flaw:?} went unnoticed by: {property}"
        );
    }
}
