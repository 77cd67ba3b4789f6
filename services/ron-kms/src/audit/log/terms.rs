//! The words of the audit log's machine: what it is told, and what it says.

use std::sync::Arc;

use crate::audit::{
    merkle::Hash,
    publish::Published,
    record::{Event, Seq},
};

/// Stands for whoever waits; the shell knows who that is.
pub type Ticket = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    Shed,
    Strict,
}

impl Policy {
    /// When the answer to what this event tells may leave.
    pub fn answer_rule(self, event: &Event) -> Answer {
        match self {
            Policy::Shed if event.may_be_shed() => Answer::Now,
            _ => Answer::WhenDurable,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Numbers reserved at a time; a new reservation is made when half are used.
    pub reserve: u64,
    /// A checkpoint is due after so many records,
    pub checkpoint_records: u64,
    /// or after so long, if there are any.
    pub checkpoint_interval_ms: u64,
    /// A checkpoint not written by then turns readiness off.
    pub checkpoint_deadline_ms: u64,
    /// Under `Shed`: with so many lost records that the log has not told of, no key is used.
    pub untold_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reserve: 8192,
            checkpoint_records: 1024,
            checkpoint_interval_ms: 1000,
            checkpoint_deadline_ms: 1000,
            untold_max: 1024,
        }
    }
}

/// An event to record. Without a number, one is given with the batch (intents, changes of keys), or none
/// is needed (nonce marks).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Submission {
    pub ticket: Ticket,
    pub seq: Option<Seq>,
    pub event: Event,
    /// Kept beside the record, outside the tree.
    pub attachment: Vec<u8>,
}

/// How an operation may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Use the key; then submit the operation under this number.
    Numbered(Seq),
    /// Submit an intent; use the key once it may proceed.
    ByIntent,
    /// Go on without a record.
    Unrecorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("the audit log does not match its checkpoint: no key is used until it is repaired")]
    Integrity,
    #[error("the service is closing")]
    Closing,
    #[error("the audit log has no room reserved: try again")]
    NotReserved,
    #[error(
        "too many operations are without a record: no key is used until the audit log can be written"
    )]
    Untold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Now,
    WhenDurable,
}

/// Size and root of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    pub size: u64,
    pub root: Hash,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Write these bytes at this offset of the file and sync them; then report.
    Write { at: u64, bytes: Arc<Vec<u8>> },
    /// Cut the file to this length and sync it; then report.
    Truncate { len: u64 },
    /// The record is durable: whoever waits may go on.
    Proceed {
        ticket: Ticket,
        seq: Seq,
        index: u64,
    },
    /// There is no record: whoever waits must not go on.
    Refuse { ticket: Ticket, trouble: Trouble },
    /// Write and sync the files, then sign and replace the checkpoint; then report.
    Publish { head: Head, files: Vec<Published> },
    /// Readiness off, and count a failure of the audit log's integrity.
    Degraded,
    /// Readiness on again.
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Trouble {
    #[error("the audit record could not be written")]
    NotWritten,
    #[error("the audit log does not match its checkpoint")]
    Integrity,
    #[error("the audit record is not valid: too long, or under a number that is not open")]
    Invalid,
}

/// Why the log takes no more records. Nothing is repaired by itself: evidence is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Mismatch {
    #[error(
        "the log has {records} whole records, its checkpoint covers {covered}: records are gone"
    )]
    Shorter { records: u64, covered: u64 },
    #[error(
        "the first {covered} records have another root than their checkpoint: a record was changed"
    )]
    OtherRoot { covered: u64 },
    #[error("record {index} is damaged and later ones are not: this is no torn write")]
    Corrupt { index: u64 },
    #[error("record {index} has version {found}: open this log with a newer ron-kms")]
    Newer { index: u64, found: u32 },
    #[error(
        "the log tells of a checkpoint over {told} records, the stored one covers {covered}: it is gone or old"
    )]
    OldCheckpoint { told: u64, covered: u64 },
    #[error(
        "the log has {records} records, the key store knows of {known}: it is an old copy of itself"
    )]
    Older { records: u64, known: u64 },
    #[error("the stored checkpoint does not verify")]
    BadCheckpoint,
    #[error("the file of records is gone, or is no longer the one that was opened")]
    Replaced,
    #[error("the file of records is of another log, or its header is damaged")]
    OtherLog,
}
