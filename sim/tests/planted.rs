//! Each oracle is seen to fire: a bug of just its kind is planted and must be noticed, by that oracle,
//! within a few seeds. An oracle that nothing can wake is no oracle.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::collections::BTreeSet;

use sim::{
    oracle::{LIVE_AGAIN, ORACLES},
    run::{self, Watch},
    scenario::{self, Scenario},
};

/// The planted bug, where it is tried, and who must notice.
const PLANTED: &[(&str, &str, &str)] = &[
    ("client_forgets", "shutdown-race", "http.one_outcome"),
    ("miscount", "queue-saturation", "queue.conserves"),
    (
        "cap_off_by_one",
        "queue-saturation",
        "queue.depth_within_cap",
    ),
    ("lose_job", "queue-saturation", "job.nothing_lost"),
    ("leak_task", "shutdown-race", "tasks.none_alive_after_stop"),
    (
        "uncounted_abort",
        "drain-deadline-exceeded",
        "tasks.aborts_counted",
    ),
    ("edge_shutdown", "late-subscriber", "tasks.none_aborted"),
    (
        "ignore_drain_deadline",
        "drain-deadline-exceeded",
        "drain.within_deadline",
    ),
    ("mute_readyz", "worker-panic-storm", "ready.says_why"),
    (
        "gate_stuck",
        "worker-panic-storm",
        "ready.back_after_relaunch",
    ),
    (
        "unready_on_panic",
        "worker-panic-kept-ready",
        "ready.never_drops",
    ),
    (
        "no_restart_budget",
        "restart-budget",
        "tasks.restart_budget",
    ),
    ("ack_before_sync", "torn-write", "pool.acked_is_durable"),
    (
        "stale_writer",
        "stale-incarnation",
        "disk.stale_changes_nothing",
    ),
    ("clock_wall", "clock-jump", "clock.sleeps_are_true"),
    ("never_recovers", "torn-write", LIVE_AGAIN),
    ("body_cap_off_by_one", "hurried-requests", "http.body_cap"),
    (
        "deaf_to_deadlines",
        "hurried-requests",
        "http.deadline_kept",
    ),
    ("stale_snapshot", "clock-jump", "snapshot.fresh"),
    ("bus_miscounts", "clock-jump", "bus.losses_counted"),
    ("drill_lies", "drills", "kernel.drills_hold"),
    ("drill_hasty", "drills-power", "kernel.drilled_is_durable"),
    (
        "ready_while_down",
        "worker-panic-storm",
        "ready.off_while_down",
    ),
    ("starts_while_draining", "shutdown-race", "model.lifecycle"),
    ("cap_off_by_one", "queue-saturation", "model.queue"),
    // What is compiled into ron-kms itself.
    (
        "kms.abandon_not_told",
        "kms/kill-signers",
        "model.kms.audit",
    ),
    (
        "kms.lost_waiter_believed",
        "kms/appender-panic-strict",
        "model.kms.audit",
    ),
    (
        "kms.restart_gap_forgotten",
        "kms/torn-tail",
        "kms.answers_accounted",
    ),
    ("kms.disabled_signs", "kms/rotate-vs-sign", "model.kms.keys"),
    (
        "kms.two_change_one_key",
        "kms/rotate-vs-sign",
        "model.kms.keys",
    ),
    (
        "kms.answered_unseen",
        "kms/rotate-vs-sign",
        "kms.heads_linearizable",
    ),
    (
        "kms.torn_tail_kept",
        "kms/crash-in-append",
        "kms.log_verifies",
    ),
    (
        "kms.gap_not_counted",
        "kms/audit-pressure",
        "kms.answers_accounted",
    ),
    (
        "kms.receipt_without_index",
        "kms/audit-pressure-strict",
        "kms.strict_has_record",
    ),
    (
        "kms.no_last_checkpoint",
        "kms/shutdown-during-sign",
        "kms.checkpoint_covers_all",
    ),
    (
        "kms.two_change_one_key",
        "kms/rotate-vs-sign",
        "kms.heads_grow",
    ),
    (
        "kms.nonces_start_again",
        "kms/restored-backup",
        "kms.nonce_once",
    ),
    (
        "kms.disabled_signs",
        "kms/rotate-vs-sign",
        "kms.disabled_never_signs",
    ),
    ("kms.op_ids_forgotten", "kms/op-id-replay", "kms.op_id_once"),
    (
        "kms.verifies_anything",
        "kms/kill-signers",
        "kms.results_hold",
    ),
    ("kms.quota_ignored", "kms/noisy-tenant", "kms.tenant_fair"),
    (
        "kms.verify_past_limit",
        "kms/backend-outage",
        "kms.verify_in_time",
    ),
    (
        "kms.tenant_unchecked",
        "kms/foreign-tenant",
        "kms.tenants_apart",
    ),
    (
        "kms.batch_told_in_part",
        "kms/appender-panic",
        "kms.digests_told",
    ),
    (
        "kms.destroyed_early",
        "kms/time-passes",
        "kms.destroyed_in_time",
    ),
    (
        "kms.replay_needs_backend",
        "kms/backend-flap",
        "kms.refusals_true",
    ),
    (
        "kms.checkpoint_time",
        "kms/appender-panic",
        "kms.log_reads_plainly",
    ),
    (
        "kms.reserved_too_early",
        "kms/power-off-in-stalls",
        "kms.numbers_once",
    ),
    ("kms.policy_told_as_before", "kms/calm", "kms.changes_told"),
    ("kms.cancel_enables", "kms/pedant", "kms.pedant_content"),
    (
        "kms.failed_batch_uncounted",
        "kms/bad-disk",
        "kms.drops_counted",
    ),
    (
        "kms.backend_gate_open",
        "kms/honest-readiness",
        "kms.ready_tells",
    ),
    (
        "kms.late_checkpoint_ready",
        "kms/honest-readiness",
        "kms.ready_tells",
    ),
    (
        "kms.data_key_deadline",
        "kms/backend-hangs",
        "kms.answered_in_time",
    ),
    (
        "kms.later_records_covered",
        "kms/bursts",
        "kms.covered_soon",
    ),
    (
        "kms.first_note_after_outage_unserved",
        "kms/honest-readiness",
        "kms.newest_served",
    ),
    (
        "kms.last_size_not_stored",
        "kms/old-log-after-stop",
        "kms.old_log_refused",
    ),
    (
        "kms.lost_checkpoint_believed",
        "kms/old-checkpoint",
        "kms.old_log_refused",
    ),
    (
        "kms.no_housekeeping_after_outage",
        "kms/due",
        "kms.schedules_kept",
    ),
    ("kms.one_secret_erased", "kms/due", "kms.destroyed_is_gone"),
    (
        "kms.gap_reasons_merged",
        "kms/losses-of-all-kinds",
        "kms.gaps_reasoned",
    ),
    (
        "kms.partial_tiles_unmended",
        "kms/bit-rot-at-rest",
        "kms.rot_mended",
    ),
    // What is compiled into the kernel.
    (
        "admission.no_retry_after",
        "double-shutdown",
        "http.problems_sound",
    ),
    ("in_flight.permit_leaked", "kms/calm", "kms.all_served"),
    // The same, in parts of it that only a service uses.
    ("auth.expired_accepted", "kms/tokens", "auth.tokens_judged"),
    (
        "auth.never_dropped",
        "kms/tokens-old-keys",
        "auth.tokens_judged",
    ),
    ("auth.cooldown_ignored", "kms/tokens", "auth.keys_refreshed"),
    ("config.reload_ignored", "kms/tokens", "config.reload_kept"),
    // What is compiled into svc-dht itself.
    (
        "dht.never_republished",
        "dht/republish-over-restart",
        "dht.republished",
    ),
    (
        "dht.two_writers",
        "dht/bootstrap-from-nothing",
        "dht.one_writer",
    ),
    (
        "dht.entry_twice",
        "dht/bootstrap-from-nothing",
        "dht.table_sound",
    ),
    (
        "dht.lookup_never_ends",
        "dht/hedged-lookup",
        "dht.lookup_ends",
    ),
    (
        "dht.hedges_past_budget",
        "dht/hedged-lookup",
        "dht.lookup_bounds",
    ),
    (
        "dht.acked_unwritten",
        "dht/bootstrap-from-nothing",
        "dht.acked_is_held",
    ),
    (
        "dht.expired_returned",
        "dht/clock-skew-ttl",
        "dht.returned_is_valid",
    ),
    (
        "dht.signature_unchecked",
        "dht/garbage-peer",
        "dht.returned_is_valid",
    ),
    (
        "dht.network_unchecked",
        "dht/garbage-peer",
        "dht.networks_apart",
    ),
    (
        "dht.diversity_ignored",
        "dht/eclipse-attempt",
        "dht.subnets_limited",
    ),
];

/// Woken by nothing that can be planted: a law about rotten bytes, which only the offline reader could break.
const ASLEEP: &[&str] = &["kms.rot_noticed"];

/// How the names begin of bugs that are compiled in.
const COMPILED: &[&str] = &[
    "kms.",
    "dht.",
    "admission.",
    "auth.",
    "config.",
    "in_flight.",
];

const SEEDS: u64 = 40;

#[test]
fn every_planted_bug_wakes_its_oracle() {
    let mut missed = Vec::new();
    for (plant, name, oracle) in PLANTED {
        let mut scenario = Scenario::load(&scenario::root(), name).expect("the scenario is there");
        // Alone, so that no other oracle can speak first.
        scenario.check.always.retain(|o| o == oracle);
        if *oracle != LIVE_AGAIN {
            scenario.check.eventually.hold.clear();
        }
        let compiled = COMPILED.iter().any(|part| plant.starts_with(part));
        let bug = Some((*plant).to_owned());
        let watch = Watch {
            plant: bug.clone().filter(|_| !compiled),
            mutant: bug.filter(|_| compiled),
            ..Watch::default()
        };
        let fires = |seed, watch: &Watch| {
            let run = run::run(&scenario, seed, watch);
            run.violation().map(|v| v.oracle) == Some(*oracle)
        };
        // What fires without the bug has not noticed it.
        let fired = |seed| fires(seed, &watch) && !fires(seed, &Watch::default());
        match (1..=SEEDS).find(|seed| fired(*seed)) {
            Some(seed) => println!("{oracle:<30} noticed {plant} in {name} at seed {seed}"),
            None => missed.push(format!(
                "{oracle} missed {plant} in {name} over {SEEDS} seeds"
            )),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_oracle_has_its_planted_bug() {
    let planted: BTreeSet<&str> = PLANTED.iter().map(|(_, _, oracle)| *oracle).collect();
    let all: BTreeSet<&str> = ORACLES
        .iter()
        .map(|kind| kind.name)
        .filter(|name| !ASLEEP.contains(name))
        .chain([LIVE_AGAIN])
        .collect();
    assert_eq!(planted, all);
}
