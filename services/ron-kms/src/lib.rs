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
//! | config watch ([`ron_core::app`]) | puts a new configuration in force | the bus |
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
        "kms.too_much_untold",
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
};
