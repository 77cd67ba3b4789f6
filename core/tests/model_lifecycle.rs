//! Every interleaving of a small process, checked against the shipped life-cycle machine.

use std::time::Instant;

use ron_core::models::lifecycle::{Defect, LifecycleModel};
use stateright::{Checker, HasDiscoveries, Model};

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant can be had from nowhere else; its value plays no part"
)]
fn model(defect: Defect) -> LifecycleModel {
    LifecycleModel::new(defect, Instant::now())
}

// proves: KMS-1.8, KMS-6.7, DHT-6.6, DHT-6.7, EDG-6.4, ADM-1.19, RWD-6.8
#[test]
fn the_shipped_machine_keeps_every_law_in_every_interleaving() {
    let checker = model(Defect::None).checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(
        checker.unique_state_count() > 1000,
        "the world is too small"
    );
}

#[test]
fn the_checker_refutes_each_known_bad_machine() {
    let cases = [
        (
            Defect::RestartsWhileDraining,
            "no task starts after shutdown",
        ),
        (
            Defect::KeepsPendingRestarts,
            "no task starts after shutdown",
        ),
        (Defect::ForgetsPhaseDeadlines, "the drain completes"),
        (Defect::ForgetsPhaseDeadlines, "nothing waits for ever"),
        (
            Defect::StopsAllPhasesAtOnce,
            "a phase waits for the one before",
        ),
        (Defect::DoesNotWaitForAborted, "at the end no task lives"),
        (Defect::AbortsUncounted, "every abort is counted"),
    ];
    for (defect, property) in cases {
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = model(defect).checker().finish_when(found);
        let checker = checker.target_state_count(1_000_000).spawn_bfs().join();
        assert!(
            checker.discovery(property).is_some(),
            "{defect:?} went unnoticed by: {property}"
        );
    }
}
