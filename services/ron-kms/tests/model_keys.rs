//! Every interleaving of changes, uses, crashes and restored backups of one key, on the shipped machines.

use ron_kms::models::keys::{DISABLED, DRAINS, Flaw, HEADS, KEPT, KeyWorld, ONCE};
use stateright::{Checker, HasDiscoveries, Model};

const WORLD: KeyWorld = KeyWorld {
    rotations: 3,
    switches: 2,
    crashes: 1,
    restores: 1,
    failures: 3,
    flaw: None,
};

// proves: KMS-10.11
#[test]
fn heads_never_fall_numbers_are_never_given_twice_and_a_drain_ends() {
    let checker = WORLD.checker().target_state_count(600_000);
    let checker = checker.spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(
        checker.unique_state_count() > 1000,
        "the world is too small"
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() < 300_000, "it does not end");
}

// proves: KMS-10.11
#[test]
fn the_checker_refutes_each_known_bad_order() {
    for (flaw, property) in [
        (Flaw::RecordsLast, ONCE),
        (Flaw::PublishesUnstored, KEPT),
        (Flaw::TrustsStore, HEADS),
        (Flaw::TrustsStore, ONCE),
        (Flaw::TrustsStore, DISABLED),
        (Flaw::WaitsForTorn, DRAINS),
    ] {
        let model = KeyWorld {
            flaw: Some(flaw),
            ..WORLD
        };
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = model.checker().finish_when(found);
        let checker = checker.target_state_count(300_000).spawn_bfs().join();
        let discovery = checker.discovery(property);
        assert!(
            discovery.is_some(),
            "{flaw:?} went unnoticed by: {property}"
        );
    }
}
