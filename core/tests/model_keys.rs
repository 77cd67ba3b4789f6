//! Every order of events around the issuer's keys, on the shipped code, and proof that the checker would notice torn
//! snapshots, keys that are trusted for ever and an issuer that is stormed.
#![expect(clippy::disallowed_methods, reason = "an origin for the model's clock")]

use std::time::Instant;

use ron_core::models::keys::{CLOSED, Flaw, KeyRefresh, PACE, REMOVED};
use stateright::{Checker, HasDiscoveries, Model};

fn world(flaw: Option<Flaw>) -> KeyRefresh {
    KeyRefresh {
        start: Instant::now(),
        ticks: 11,
        rotations: 1,
        flaw,
    }
}

// proves: ADM-1.5, ADM-2.35
#[test]
fn removed_keys_let_nobody_in_old_ones_are_dropped_and_the_issuer_is_left_in_peace() {
    let checker = world(None).checker().spawn_bfs().join();
    assert!(checker.unique_state_count() > 1000, "it went somewhere");
    checker.assert_properties();
}

#[test]
fn the_checker_finds_each_known_flaw() {
    for (flaw, property) in [
        (Flaw::TornSnapshot, REMOVED),
        (Flaw::TrustsForever, CLOSED),
        (Flaw::NoCoolDown, PACE),
    ] {
        let found = HasDiscoveries::AllOf([property].into());
        let checker = world(Some(flaw)).checker().finish_when(found);
        checker.spawn_bfs().join().assert_any_discovery(property);
    }
}
