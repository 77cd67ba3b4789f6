//! ron-kms: keys that never leave, and an audit log anyone can verify.
//!
//! A request comes in through [`api`], is checked by the [`engine`] and goes through the tenant's
//! [`quota`] and the one sign queue to a [`signer`]. The signer uses the key in its [`backend`] and tells
//! the [`auditor`]; what changes a key goes through the [`ring`], which records, stores and publishes it.
//! Verifying and reading take no queue: they read the key [`index`], a snapshot.
//!
//! | task | does | asked by |
//! | --- | --- | --- |
//! | listener ([`service`]) | HTTP, limits, quota | callers |
//! | signer ([`signer`], [`changes`]) | uses and changes keys | queue `sign` |
//! | appender ([`appender`]) | writes records in batches | queue `audit` |
//! | checkpointer ([`checkpointer`]) | publishes tiles, signs the head | the appender, a clock |
//! | attester ([`attester`]) | renews evidence | a clock |
//! | keeper ([`keeper`]) | keeps the backend and the verify cache fresh, does what is due | a clock |
//! | config watch ([`config_watch`]) | puts a new configuration in force | the bus |
//!
//! | queue | holds | when full |
//! | --- | --- | --- |
//! | `sign` | 512 | the newcomer is refused, 429 |
//! | `audit` | 2048 | waits 200 ms, then the oldest that may be shed is dropped, and a gap record tells it |
//!
//! What is decided is decided by machines that read no clock, no file and no socket: [`audit::log`],
//! [`audit::recovery`], [`keys::key`], [`keys::nonce`], [`history`], [`verify_cache`], [`quota`],
//! [`op_ids`]. The tasks around them wait and obey.
//!
//! Start with [`topology`], which declares every part, then [`service`], which wires them; for what is in
//! the log, with [`audit`]; for what may be done with a key, with [`keys`].

pub mod api;
pub mod appender;
pub mod ask;
pub mod attester;
pub mod audit;
pub mod auditor;
pub mod backend;
pub mod changes;
pub mod checkpointer;
#[cfg(feature = "cli")]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "where the service meets the machine"
)]
pub mod commands;
pub mod config;
pub mod config_watch;
pub mod engine;
pub mod error;
pub mod history;
mod in_place;
pub mod index;
pub mod journal;
pub mod keeper;
pub mod keys;
pub mod keystore;
pub mod metrics;
#[cfg(feature = "models")]
pub mod models;
pub mod nonces;
pub mod offline;
pub mod op_ids;
pub mod quota;
pub mod replay;
pub mod ring;
pub mod service;
pub mod signer;
pub mod topology;
pub mod verify_cache;

/// Marks that simulated runs must reach, points that they bend, bugs that they must catch.
pub const POINTS: ron_core::points::Points = ron_core::points::Points {
    marks: &[
        "kms.append_late",
        "kms.append_undone",
        "kms.backend_away",
        "kms.below_minimum",
        "kms.caller_gone",
        "kms.change_torn",
        "kms.change_waited",
        "kms.checkpoint_again",
        "kms.checkpoint_failed",
        "kms.checkpoint_late",
        "kms.draining_refused",
        "kms.gap_told",
        "kms.integrity_refuses",
        "kms.key_destroyed",
        "kms.last_checkpoint",
        "kms.late_in_queue",
        "kms.nonces_behind_log",
        "kms.nonces_reserved",
        "kms.numbers_ran_out",
        "kms.op_id_conflict",
        "kms.op_id_evicted",
        "kms.op_id_in_flight",
        "kms.op_id_replayed",
        "kms.queue_full",
        "kms.quota_refused",
        "kms.reserve_used",
        "kms.reserve_used_to_close",
        "kms.restart_gap_told",
        "kms.rotation_due",
        "kms.store_followed_log",
        "kms.strict_refused",
        "kms.tile_mended",
        "kms.torn_tail_cut",
        "kms.verify_expired",
        "kms.verify_stale",
        "kms.version_lost",
    ],
    buggify: &[
        "kms.checkpoint_unasked",
        "kms.no_gathering",
        "kms.store_late",
    ],
    mutants: &[
        "kms.abandon_not_told",
        "kms.all_may_be_shed",
        "kms.another_digest_told",
        "kms.answered_before_durable",
        "kms.answered_unseen",
        "kms.append_not_synced",
        "kms.attachment_unchecked",
        "kms.attestation_gate_open",
        "kms.attests_for_others",
        "kms.backend_gate_open",
        "kms.backend_gate_stuck",
        "kms.batch_overwritten",
        "kms.batch_skips_failures",
        "kms.batch_told_in_part",
        "kms.busy_keeps_op_id",
        "kms.cache_ttl_not_reloaded",
        "kms.cancel_enables",
        "kms.checkpoint_before_tiles",
        "kms.checkpoint_cached",
        "kms.checkpoint_gate_stuck",
        "kms.checkpoint_time",
        "kms.context_bound_in_part",
        "kms.cut_unsynced",
        "kms.data_key_counted_as_wrap",
        "kms.data_key_deadline",
        "kms.data_key_replay_context",
        "kms.destroyed_early",
        "kms.disabled_head_rotated",
        "kms.disabled_signs",
        "kms.disabled_unwraps",
        "kms.disabled_verifies_not",
        "kms.drain_begins_late",
        "kms.drop_not_told",
        "kms.failed_batch_uncounted",
        "kms.failed_batch_untold",
        "kms.failed_write_kept",
        "kms.failures_kept",
        "kms.falls_back_to_older",
        "kms.first_note_after_outage_unserved",
        "kms.first_scope_only",
        "kms.full_batch_unrecorded",
        "kms.gap_lost_with_batch",
        "kms.gap_not_counted",
        "kms.gap_reasons_merged",
        "kms.half_verifies",
        "kms.import_derived_alike",
        "kms.in_flight_final",
        "kms.key_set_stale",
        "kms.last_batch_believed",
        "kms.last_size_not_stored",
        "kms.last_tile_by_remainder",
        "kms.late_checkpoint_ready",
        "kms.later_records_covered",
        "kms.log_size_lowered",
        "kms.lost_checkpoint_believed",
        "kms.lost_waiter_believed",
        "kms.minimum_ignored",
        "kms.minimum_not_followed",
        "kms.names_believed",
        "kms.no_housekeeping_after_outage",
        "kms.no_last_checkpoint",
        "kms.no_reserve",
        "kms.nonce_mark_unlogged",
        "kms.nonce_mark_unstored",
        "kms.nonces_reserved_early",
        "kms.nonces_start_again",
        "kms.nonces_used_unlogged",
        "kms.number_given_again",
        "kms.older_secret_signs",
        "kms.one_secret_erased",
        "kms.one_version_too_many",
        "kms.op_id_expires_early",
        "kms.op_id_for_another",
        "kms.op_id_oldest_of_all_leaves",
        "kms.op_id_twice_in_flight",
        "kms.op_ids_forgotten",
        "kms.outage_never_over",
        "kms.page_skips_one",
        "kms.partial_tiles_unmended",
        "kms.peaks_of_one_tile",
        "kms.permit_leaked",
        "kms.policy_merged",
        "kms.policy_told_as_before",
        "kms.queue_left_at_close",
        "kms.quota_forgets_last",
        "kms.quota_ignored",
        "kms.quota_one_short",
        "kms.receipt_without_index",
        "kms.refusal_repeats_value",
        "kms.rename_not_durable",
        "kms.renamed_unsynced",
        "kms.replay_names_outcome",
        "kms.replay_needs_backend",
        "kms.replay_without_evidence",
        "kms.reserved_too_early",
        "kms.restart_gap_forgotten",
        "kms.restart_gap_from_highest",
        "kms.restart_gap_lost_with_batch",
        "kms.rotates_twice",
        "kms.scheduled_for_when_told",
        "kms.scheduled_signs",
        "kms.state_not_followed",
        "kms.stop_drops_running",
        "kms.store_not_reconciled",
        "kms.store_trouble_internal",
        "kms.strict_receipt_of_outcome",
        "kms.tenant_unchecked",
        "kms.tile_names_unsynced",
        "kms.tiles_forgotten",
        "kms.tiles_unsynced",
        "kms.torn_batch_is_corrupt",
        "kms.torn_tail_kept",
        "kms.two_change_one_key",
        "kms.unfit_log_followed",
        "kms.unstored_secret_used",
        "kms.unwrap_told_as_head",
        "kms.verifies_anything",
        "kms.verify_past_limit",
    ],
};
