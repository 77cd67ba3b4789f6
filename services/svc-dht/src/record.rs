//! Signed records: small values and who provides what.

use crate::id::Id;

/// A record as it is stored and sent. Only one whose signature and time were checked is given to anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: RecordKind,
    pub key: Id,
    /// The Ed25519 key that signed it.
    pub publisher: [u8; 32],
    /// Of two records of one publisher and key the higher wins.
    pub seq: u64,
    pub created_ms: u64,
    pub ttl_ms: u64,
    /// The value with its name, or the provider's contact.
    pub body: Vec<u8>,
    pub signature: [u8; 64],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    Value = 1,
    Provider = 2,
}
