//! Every interleaving of a small audit log, crashes included, checked on the shipped machine.

use proptest::prelude::*;
use ron_kms::{
    audit::log::Policy,
    models::audit::{ADMITTED, AuditWorld, CONTIGUOUS, COVERS, Flaw, INTENT, OUTCOME, TIGHT},
};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

fn world(policy: Policy) -> AuditWorld {
    AuditWorld {
        policy,
        limits: TIGHT,
        operations: 2,
        kept: 1,
        crashes: 1,
        failures: 1,
        drops: 1,
        abandons: u8::from(policy == Policy::Strict),
        checkpoints: 1,
        follows: false,
        flaw: None,
    }
}

fn holds(model: AuditWorld) {
    let what = format!("{model:?}");
    // A broken machine may go on for ever: the bound ends that, and is far beyond the sound ones.
    let checker = model.checker().target_state_count(1_200_000);
    let checker = checker.spawn_bfs().join();
    println!("{} states: {what}", checker.unique_state_count());
    assert!(
        checker.unique_state_count() > 1000,
        "the world is too small"
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() < 600_000, "it does not end");
}

// proves: KMS-10.6
#[test]
fn shed_keeps_indexes_contiguous_and_admits_every_missing_record() {
    holds(world(Policy::Shed));
}

// proves: KMS-10.6
#[test]
fn strict_answers_nothing_without_a_durable_record() {
    holds(world(Policy::Strict));
}

#[test]
fn the_checker_refutes_each_known_bad_log() {
    let cases = [
        (Policy::Shed, Flaw::SkipsSync, ADMITTED),
        (Policy::Shed, Flaw::SkipsSync, COVERS),
        (Policy::Shed, Flaw::KeepsTornTail, CONTIGUOUS),
        (Policy::Shed, Flaw::KeepsFailedWrite, CONTIGUOUS),
        (Policy::Strict, Flaw::SkipsSync, INTENT),
        (Policy::Strict, Flaw::UsesKeyBeforeIntent, INTENT),
        (Policy::Strict, Flaw::AnswersRefused, OUTCOME),
    ];
    for (policy, flaw, property) in cases {
        let model = AuditWorld {
            flaw: Some(flaw),
            ..world(policy)
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

/// One long way through a larger world, with every law checked at every step.
fn walk(model: &AuditWorld, choices: &[u16]) -> Result<(), TestCaseError> {
    let laws = model.properties();
    let mut state = model.init_states().remove(0);
    for choice in choices {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let Some(action) = actions.get(usize::from(*choice) % actions.len().max(1)) else {
            break;
        };
        let Some(next) = model.next_state(&state, *action) else {
            continue;
        };
        state = next;
        for law in laws
            .iter()
            .filter(|law| law.expectation == Expectation::Always)
        {
            prop_assert!(
                (law.condition)(model, &state),
                "{} after {action:?}",
                law.name
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn long_runs_with_many_crashes_keep_the_laws(strict: bool, choices in prop::collection::vec(any::<u16>(), 0..120)) {
        let policy = if strict { Policy::Strict } else { Policy::Shed };
        let model = AuditWorld {
            operations: 30,
            kept: 8,
            abandons: 5,
            crashes: 5,
            failures: 5,
            drops: 8,
            checkpoints: 6,
            ..world(policy)
        };
        walk(&model, &choices)?;
    }
}
