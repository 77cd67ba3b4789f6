//! What can be wrong with a directory, always with the file that is wrong: one line for whoever reads it.

use std::{fmt, io};

use crate::audit::{
    checkpoint::CheckpointError,
    frames::{Broken, HeaderError},
    note::NoteError,
    record::Seq,
    sequence::Missing,
    tiles::TileError,
};

/// A file of the directory, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct OfflineError {
    pub file: String,
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("is missing")]
    Missing,
    #[error("has {bytes} bytes, at most {most} are allowed")]
    TooLong { bytes: u64, most: u64 },
    #[error("{0}")]
    Keys(KeysError),
    #[error("{0}")]
    Checkpoint(CheckpointError),
    #[error("{0}")]
    Header(HeaderError),
    #[error("{0}")]
    Tile(TileError),
    #[error("hash {at} differs")]
    Hash { at: usize },
    #[error("entry {at} is not record {index} of the log")]
    Entry { at: usize, index: u64 },
    #[error("the {covered} entries have another root")]
    OtherRoot { covered: u64 },
    #[error("the log tells of a checkpoint over {told} records, this one covers {covered}")]
    OldCheckpoint { told: u64, covered: u64 },
    #[error("has {records} whole records, the checkpoint covers {covered}")]
    Shorter { records: u64, covered: u64 },
    #[error("record {index} is damaged: {}", said(.broken))]
    Damaged { index: u64, broken: Broken },
    #[error("record {index} has version {found}: verify with a newer ron-kms")]
    Newer { index: u64, found: u32 },
    #[error(
        "record {index} tells of a checkpoint over {size} records, which cannot have been before it"
    )]
    ToldOutOfOrder { index: u64, size: u64 },
    #[error("record {index} tells of a checkpoint over {size} records with another root")]
    ToldRoot { index: u64, size: u64 },
    #[error("record {index}: {fault}")]
    Account { index: u64, fault: AccountFault },
}

/// A number of an operation that is not accounted for as the log promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountFault {
    #[error("number {seq} was told of before")]
    Twice { seq: Seq },
    #[error("an outcome of number {seq}, which has no intent")]
    NoIntent { seq: Seq },
    #[error("a restart gap says {}, the records before it say {}", gap(.told), gap(.found))]
    RestartGap {
        told: Option<Missing>,
        found: Option<Missing>,
    },
    #[error("closed at number {next}, but number {told} was given out")]
    ClosedBelow { next: Seq, told: Seq },
    #[error("more than {0} runs of numbers are open at once")]
    TooScattered(usize),
}

/// Keys that cannot be trusted because they cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("not text: one verifier key a line is allowed")]
    NotText,
    #[error("no key: one verifier key a line is needed")]
    None,
    #[error("line {line}: {error}")]
    Line { line: usize, error: NoteError },
    #[error("keys of \"{first}\" and of \"{other}\": all must be of one log")]
    SeveralLogs { first: String, other: String },
    #[error("an Ed25519 key, then an ML-DSA-44 key are needed")]
    NotBothKinds,
}

impl OfflineError {
    pub(super) fn new(file: impl fmt::Display, fault: Fault) -> OfflineError {
        let file = file.to_string();
        OfflineError { file, fault }
    }

    /// Nothing can be said about the log: it, or the keys, could not be read. Anything else says that
    /// the directory does not verify.
    pub fn is_unreadable(&self) -> bool {
        let keys = self.file == super::KEYS;
        keys || matches!(self.fault, Fault::Unreadable(_))
    }
}

fn said(broken: &Broken) -> String {
    match broken {
        Broken::Incomplete => "it ends too early".into(),
        Broken::NoFrame => "no record begins there".into(),
        Broken::BadLength => "its length is impossible".into(),
        Broken::BadCheck => "its check does not match".into(),
        Broken::BadRecord => "it is no canonical record".into(),
        Broken::WrongIndex { expected, found } => {
            format!("it has index {found}, expected {expected}")
        }
    }
}

fn gap(missing: &Option<Missing>) -> String {
    match missing {
        None => "that nothing is missing".into(),
        Some(Missing {
            first,
            end,
            at_most,
        }) => format!("at most {at_most} of {first}..{end} are missing"),
    }
}
