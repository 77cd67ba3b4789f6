//! The audit log: what was done with which key, so that anyone can check it from the bytes alone.
//!
//! ```text
//! record   one entry: typed, versioned, one canonical JSON line; these bytes are the Merkle leaf
//! frames   the file of records, the truth: framed, checked, torn tail told from corruption
//! merkle   RFC 6962: root over the right edge, proofs, their verification
//! tiles    C2SP tlog-tiles: which hash tiles and entry bundles a tree has, and where they lie
//! publish  the right edge as tiles: which files a growth of the log must write
//! note     C2SP signed notes: parse, keys, Ed25519 lines
//! checkpoint  the signed tree head: Ed25519 and ML-DSA-44 lines, what a verifier demands
//! receipt  c2sp.org/tlog-proof@v1: one entry proven offline
//! sequence numbers of operations: reserved, recorded, lost
//! recovery the start-up: what the file and the last checkpoint say together
//! log      the machine that decides what to write and what may be answered
//! ```
//! **Invariant:** no key material, signature or ciphertext byte is ever part of a leaf.

pub mod checkpoint;
pub mod frames;
pub mod log;
pub mod merkle;
pub mod note;
pub mod publish;
pub mod receipt;
pub mod record;
pub mod recovery;
pub mod sequence;
pub mod tiles;

/// Memory that is kept to be used again, since fresh memory costs more than what is written into it. It
/// says nothing about the log: any two are equal.
#[derive(Clone, Debug, Default)]
struct Spare<T>(T);

impl<T> PartialEq for Spare<T> {
    fn eq(&self, _: &Spare<T>) -> bool {
        true
    }
}

impl<T> Eq for Spare<T> {}

impl<T> std::hash::Hash for Spare<T> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}
