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
        let json =
            r#"{"ready":false,"missing":[{"gate":"store","reason":"disk is full"}],"degraded":[]}"#;
        assert_eq!(status, json);
        assert!(!readiness.is_ready());
    });
}

#[test]
fn a_condition_degrades_without_taking_readiness_and_says_why() {
    in_world(|env, _| async move {
        let readiness = Readiness::new(env, Bus::new());
        let (disk, peers) = (readiness.condition("disk"), readiness.condition("peers"));
        assert_eq!(readiness.status().degraded, [], "absent until it is set");
        readiness.gate("store").open();
        peers.set("one left");
        disk.set("slow");
        readiness.condition("disk").set("nearly full");
        drop(disk);
        assert!(readiness.is_ready() && readiness.is_degraded());
        let json = r#"{"ready":true,"missing":[],"degraded":[{"condition":"disk","reason":"nearly full"},{"condition":"peers","reason":"one left"}]}"#;
        assert_eq!(serde_json::to_string(&readiness.status()).unwrap(), json);
        readiness.condition("disk").clear();
        peers.clear();
        assert!(!readiness.is_degraded() && readiness.status().degraded.is_empty());
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
        let disk = readiness.condition("disk");
        disk.clear();
        disk.set("slow");
        disk.set("slow");
        gate.open();
        disk.clear();
        let seen: Vec<_> = std::iter::from_fn(|| news.recv().now_or_never().flatten()).collect();
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let changed = |ready, missing: &[&str], degraded: &[&str]| KernelEvent::ReadinessChanged {
            ready,
            missing: names(missing),
            degraded: names(degraded),
        };
        let want = [
            changed(false, &["store"], &[]),
            changed(true, &[], &[]),
            changed(false, &["store"], &[]),
            changed(false, &["store"], &["disk"]),
            changed(true, &[], &["disk"]),
            changed(true, &[], &[]),
        ];
        assert_eq!(seen, want);
        let probed = [
            "readiness ready=false missing=store",
            "readiness ready=true missing=",
            "readiness ready=false missing=store",
            "readiness ready=false missing=store degraded=disk",
            "readiness ready=true missing= degraded=disk",
            "readiness ready=true missing=",
        ];
        assert_eq!(*trace.lock().unwrap(), probed);
    });
}
