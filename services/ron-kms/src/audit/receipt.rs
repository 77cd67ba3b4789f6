//! The offline receipt: `c2sp.org/tlog-proof@v1`, one entry's inclusion under a signed checkpoint.
//!
//! A text that needs nothing else: index, Merkle path and the checkpoint as it was signed. Whoever has
//! the entry and the log's public keys can check it years later, without the service.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    checkpoint::{CheckpointError, Trust, Verified, plain_decimal},
    merkle::{Hash, ProofError, leaf_hash, verify_inclusion},
    note::MAX_NOTE,
};

const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// No tree of 2^64 entries has a longer path.
const MAX_PATH: usize = 64;
/// The extra line is not ours to bound tightly, only to bound.
pub const MAX_EXTRA: usize = 64 * 1024;
const MAX_RECEIPT: usize = MAX_NOTE + 2 * MAX_EXTRA;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Not covered by any signature: never trusted.
    pub extra: Option<Vec<u8>>,
    pub index: u64,
    pub path: Vec<Hash>,
    /// The signed note, byte by byte.
    pub checkpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    #[error("not a receipt: the first line must be {HEADER}")]
    Header,
    #[error("the receipt is longer than {MAX_RECEIPT} bytes or its path than {MAX_PATH} hashes")]
    TooLarge,
    #[error("line {line} of the receipt is malformed: {expected} is expected")]
    Line { line: usize, expected: &'static str },
    #[error("the receipt's checkpoint does not verify")]
    Checkpoint(#[source] CheckpointError),
    #[error("the entry is not under the checkpoint")]
    Inclusion(#[source] ProofError),
}

impl Receipt {
    pub fn encode(&self) -> String {
        let mut text = format!("{HEADER}\n");
        if let Some(extra) = &self.extra {
            text.push_str("extra ");
            STANDARD.encode_string(extra, &mut text);
            text.push('\n');
        }
        text.push_str(&format!("index {}\n", self.index));
        for hash in &self.path {
            STANDARD.encode_string(hash, &mut text);
            text.push('\n');
        }
        text.push('\n');
        text.push_str(&self.checkpoint);
        text
    }

    pub fn parse(bytes: &[u8]) -> Result<Receipt, ReceiptError> {
        if bytes.len() > MAX_RECEIPT {
            return Err(ReceiptError::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ReceiptError::Header)?;
        let malformed = |line, expected| ReceiptError::Line { line, expected };
        // The head ends at the first empty line; what follows is the note, which has one of its own.
        let (head, checkpoint) = text.split_once("\n\n").ok_or(ReceiptError::Header)?;
        let mut lines = head.split('\n').zip(1..).peekable();
        if lines.next().is_none_or(|(line, _)| line != HEADER) {
            return Err(ReceiptError::Header);
        }
        let mut extra = None;
        if let Some((encoded, line)) = lines
            .peek()
            .and_then(|(text, line)| Some((text.strip_prefix("extra ")?, *line)))
        {
            let decoded = STANDARD.decode(encoded).ok();
            let decoded = decoded.filter(|extra| extra.len() <= MAX_EXTRA);
            extra = Some(decoded.ok_or(malformed(line, "extra <base64>"))?);
            lines.next();
        }
        let (index, line) = lines.next().ok_or(malformed(2, "index <number>"))?;
        let index = index
            .strip_prefix("index ")
            .and_then(plain_decimal)
            .ok_or(malformed(line, "index <number>"))?;
        let mut path = Vec::new();
        for (encoded, line) in lines {
            if path.len() == MAX_PATH {
                return Err(ReceiptError::TooLarge);
            }
            let hash = STANDARD.decode(encoded).ok();
            let hash = hash.and_then(|hash| Hash::try_from(hash).ok());
            path.push(hash.ok_or(malformed(line, "a base64 hash of 32 bytes"))?);
        }
        Ok(Receipt {
            extra,
            index,
            path,
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// Checks the signatures, then that `entry` stands at the receipt's index under them.
    pub fn verify(&self, entry: &[u8], trust: &Trust) -> Result<Verified, ReceiptError> {
        let verified = trust
            .verify(self.checkpoint.as_bytes())
            .map_err(ReceiptError::Checkpoint)?;
        let head = &verified.checkpoint;
        verify_inclusion(
            &leaf_hash(entry),
            self.index,
            head.size,
            &self.path,
            &head.root,
        )
        .map_err(ReceiptError::Inclusion)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, ML_DSA_44_SIGNING, PqdsaKeyPair};
    use proptest::prelude::*;

    use super::*;
    use crate::audit::{
        checkpoint::{Checkpoint, SigningKeys},
        merkle::node_hash,
    };

    const ORIGIN: &str = "example.com/kms";

    fn entry(n: u64) -> Vec<u8> {
        vec![n as u8; 10]
    }

    /// The second of three entries, proven by hand.
    fn receipt() -> (Receipt, Trust) {
        let leaves: Vec<Hash> = (0..3).map(|n| leaf_hash(&entry(n))).collect();
        let pair = node_hash(&leaves[0], &leaves[1]);
        let ed25519 = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap();
        let ml_dsa_44 = PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, &[3; 32]).unwrap();
        let keys = SigningKeys {
            ed25519: &ed25519,
            ml_dsa_44: &ml_dsa_44,
        };
        let head = Checkpoint {
            origin: ORIGIN.into(),
            size: 3,
            root: node_hash(&pair, &leaves[2]),
        };
        let receipt = Receipt {
            extra: None,
            index: 1,
            path: vec![leaves[0], leaves[2]],
            checkpoint: head.sign(&keys, 5).unwrap().encode(),
        };
        let trust = Trust {
            origin: ORIGIN.into(),
            keys: keys.verifiers(ORIGIN).unwrap(),
        };
        (receipt, trust)
    }

    #[test]
    fn a_receipt_proves_its_entry_and_no_other() {
        let (receipt, trust) = receipt();
        let verified = receipt.verify(&entry(1), &trust).unwrap();
        assert_eq!(verified.checkpoint.size, 3);
        let wrong_root = ReceiptError::Inclusion(ProofError::WrongRoot);
        assert_eq!(receipt.verify(&entry(2), &trust), Err(wrong_root.clone()));
        let moved = Receipt {
            index: 0,
            ..receipt.clone()
        };
        assert_eq!(moved.verify(&entry(1), &trust), Err(wrong_root));
        let beyond = Receipt {
            index: 3,
            ..receipt.clone()
        };
        assert!(beyond.verify(&entry(1), &trust).is_err());
        let forged = Receipt {
            checkpoint: receipt.checkpoint.replacen("\n3\n", "\n4\n", 1),
            ..receipt
        };
        let error = forged.verify(&entry(1), &trust).unwrap_err();
        assert!(matches!(error, ReceiptError::Checkpoint(_)), "{error}");
    }

    #[test]
    fn a_receipt_has_the_lines_of_the_format_and_reads_back() {
        let (mut receipt, _) = receipt();
        for extra in [None, Some(b"out of band".to_vec()), Some(Vec::new())] {
            receipt.extra = extra;
            let text = receipt.encode();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0], "c2sp.org/tlog-proof@v1");
            let index = 1 + usize::from(receipt.extra.is_some());
            assert_eq!(lines[index], "index 1");
            assert_eq!(lines[index + 3], "", "an empty line before the checkpoint");
            assert_eq!(lines[index + 4], ORIGIN);
            assert_eq!(Receipt::parse(text.as_bytes()), Ok(receipt.clone()));
        }
    }

    #[test]
    fn malformed_receipts_are_refused_with_the_line() {
        let (receipt, _) = receipt();
        let good = receipt.encode();
        let line = |line, expected| ReceiptError::Line { line, expected };
        let hash = STANDARD.encode([1; 32]);
        let long = format!("{hash}\n").repeat(MAX_PATH + 1);
        let table = [
            (String::new(), ReceiptError::Header),
            (good.replace("@v1", "@v2"), ReceiptError::Header),
            (format!("{HEADER}\n\nnote\n"), line(2, "index <number>")),
            (
                good.replace("index 1", "index 01"),
                line(2, "index <number>"),
            ),
            (
                good.replace("index 1", "index -1"),
                line(2, "index <number>"),
            ),
            (
                good.replace("index 1", "extra *"),
                line(2, "extra <base64>"),
            ),
            (
                good.replace("index 1\n", "index 1\nAAAA\n"),
                line(3, "a base64 hash of 32 bytes"),
            ),
            (
                good.replace("index 1\n", &format!("index 1\n{long}")),
                ReceiptError::TooLarge,
            ),
            ("a".repeat(MAX_RECEIPT + 1), ReceiptError::TooLarge),
        ];
        for (text, error) in table {
            assert_eq!(Receipt::parse(text.as_bytes()), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_receipt_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Receipt::parse(&bytes);
            let _ = Receipt::parse(&[HEADER.as_bytes(), &bytes].concat());
        }
    }
}
