//! Every interleaving of a small bucket's world, crashes included, checked on the shipped machine.

use proptest::prelude::*;
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use svc_dht::models::bucket::{
    BucketWorld, DIVERSE, FIT, Flaw, KEPT, PROVEN, REPLACED, SIZE, TWICE,
};

/// Peers come and die, pings and reports are lost, the node crashes.
const WORLD: BucketWorld = BucketWorld {
    meetings: 4,
    hints: 0,
    unfit: 0,
    deaths: 1,
    lost_pings: 1,
    lost_reports: 1,
    ticks: 1,
    crashes: 1,
    flaw: None,
};

/// Peers are named before they are met, and some contacts must never be taken.
const NAMED: BucketWorld = BucketWorld {
    meetings: 2,
    hints: 2,
    unfit: 1,
    lost_pings: 0,
    crashes: 0,
    ..WORLD
};

fn holds(model: BucketWorld) {
    // A broken machine may go on for ever: the bound ends that, and is far beyond the sound ones.
    let checker = model.checker().target_state_count(6_000_000);
    let checker = checker.spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(
        checker.unique_state_count() > 1000,
        "the world is too small"
    );
    checker.assert_properties();
    assert!(checker.state_count() < 6_000_000, "it does not end");
}

// proves: DHT-10.9
#[test]
fn nothing_is_inserted_twice_or_invalidly_and_the_dead_give_way() {
    holds(WORLD);
}

// proves: DHT-10.9
#[test]
fn what_is_named_enters_only_when_proven() {
    holds(NAMED);
}

// proves: DHT-10.9
#[test]
fn the_checker_refutes_each_known_bad_bucket() {
    for (flaw, property) in [
        (Flaw::InsertsUnchecked, TWICE),
        (Flaw::InsertsUnchecked, FIT),
        (Flaw::InsertsUnchecked, SIZE),
        (Flaw::InsertsUnchecked, DIVERSE),
        (Flaw::TrustsHints, PROVEN),
        (Flaw::PushesOut, KEPT),
        (Flaw::CountsTwice, KEPT),
        (Flaw::LosesTicks, REPLACED),
        (Flaw::RestoresOver, TWICE),
    ] {
        let model = BucketWorld {
            flaw: Some(flaw),
            hints: u8::from(flaw == Flaw::TrustsHints),
            unfit: u8::from(property == FIT),
            ..WORLD
        };
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = model.checker().finish_when(found);
        let checker = checker.target_state_count(2_000_000).spawn_bfs().join();
        let discovery = checker.discovery(property);
        assert!(
            discovery.is_some(),
            "{flaw:?} went unnoticed by: {property}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One long way through a larger world, with every law checked at every step.
    #[test]
    fn long_runs_with_many_faults_keep_the_laws(choices in prop::collection::vec(any::<u16>(), 0..150)) {
        let model = BucketWorld {
            meetings: 60,
            hints: 20,
            unfit: 5,
            deaths: 2,
            lost_pings: 10,
            lost_reports: 10,
            ticks: 30,
            crashes: 5,
            flaw: None,
        };
        let laws = model.properties();
        let mut state = model.init_states().remove(0);
        for choice in choices {
            let mut actions = Vec::new();
            model.actions(&state, &mut actions);
            let Some(action) = actions.get(usize::from(choice) % actions.len().max(1)) else {
                break;
            };
            let Some(next) = model.next_state(&state, *action) else {
                continue;
            };
            state = next;
            for law in laws.iter().filter(|law| law.expectation == Expectation::Always) {
                prop_assert!((law.condition)(&model, &state), "{} after {action:?}", law.name);
            }
        }
    }
}
