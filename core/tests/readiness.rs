//! Readiness: the conjunction of named gates, told once per change.

mod support;

use futures_util::FutureExt;
use ron_core::{
    bus::{Bus, KernelEvent},
    readiness::{Missing, Readiness},
};
use support::in_world;

fn missing(gate: &str, reason: &str) -> Missing {
    Missing {
        gate: gate.into(),
        reason: reason.into(),
    }
}

#[test]
fn ready_is_the_conjunction_of_all_gates_and_names_the_missing_in_order() {
    in_world(|env, _| async move {
        let readiness = Readiness::new(env, Bus::new());
        assert!(
            !readiness.is_ready(),
            "a process without gates is not ready"
        );
        assert!(!readiness.status().ready);
        assert_eq!(readiness.status().missing.len(), 1);

        let store = readiness.gate("store");
        let keys = readiness.gate("keys");
        let starting = vec![missing("keys", "starting"), missing("store", "starting")];
        assert_eq!(readiness.status().missing, starting);
        store.open();
        assert_eq!(readiness.status().missing, [missing("keys", "starting")]);
        assert!(!readiness.is_ready());
        keys.open();
        assert!(readiness.is_ready() && readiness.status().ready);
        assert_eq!(readiness.status().missing, []);

        store.close("disk is full");
        let status = serde_json::to_string(&readiness.status()).unwrap();
        let json = r#"{"ready":false,"missing":[{"gate":"store","reason":"disk is full"}]}"#;
        assert_eq!(status, json);
        assert!(!readiness.is_ready());
    });
}

#[test]
fn asking_for_a_gate_again_gives_the_same_gate_and_leaves_it_open() {
    in_world(|env, _| async move {
        let readiness = Readiness::new(env, Bus::new());
        readiness.gate("store").open();
        let again = readiness.gate("store");
        assert!(readiness.is_ready());
        again.close("stuck");
        drop(again);
        assert!(!readiness.is_ready(), "a dropped handle changes nothing");
    });
}

#[test]
fn each_change_is_published_and_probed_once_and_repetition_not_at_all() {
    in_world(|env, trace| async move {
        let bus = Bus::new();
        let mut news = bus.subscribe();
        let readiness = Readiness::new(env, bus);
        let gate = readiness.gate("store");
        gate.open();
        gate.open();
        gate.close("stuck");
        gate.close("stuck");
        drop(readiness.gate("store"));
        let seen: Vec<_> = std::iter::from_fn(|| news.recv().now_or_never().flatten()).collect();
        let changed = |ready, missing: &[&str]| KernelEvent::ReadinessChanged {
            ready,
            missing: missing.iter().map(|name| name.to_string()).collect(),
        };
        let want = [
            changed(false, &["store"]),
            changed(true, &[]),
            changed(false, &["store"]),
        ];
        assert_eq!(seen, want);
        let probed = [
            "readiness ready=false missing=store",
            "readiness ready=true missing=",
            "readiness ready=false missing=store",
        ];
        assert_eq!(*trace.lock().unwrap(), probed);
    });
}
