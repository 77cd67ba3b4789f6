//! One receipt, checked years later: the file, the log's public keys, nothing else.
//!
//! The receipts of this service carry the entry in their `extra` line, so that one file is enough. That
//! line is covered by no signature, and need not be: the Merkle path covers the entry wherever it came
//! from. A receipt without it is checked against an entry of the caller's.

use crate::audit::{
    checkpoint::{Trust, Verified},
    receipt::{Receipt, ReceiptError},
    record::{Record, RecordError},
};

/// What a receipt proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenEntry {
    pub record: Record,
    /// The leaf, as it stands in the log.
    pub entry: Vec<u8>,
    /// The checkpoint above it.
    pub verified: Verified,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptFault {
    #[error("{error}{}", because(.error))]
    Receipt { error: ReceiptError },
    #[error("the receipt does not carry its entry: give the entry too")]
    NoEntry,
    #[error("the entry is proven, but cannot be read: {0}")]
    Record(RecordError),
    #[error("the entry says that it has index {said}, the receipt proves index {proven}")]
    OtherIndex { said: u64, proven: u64 },
}

/// `entry` goes before what the receipt carries.
pub fn verify_receipt(
    receipt: &[u8],
    entry: Option<&[u8]>,
    trust: &Trust,
) -> Result<ProvenEntry, ReceiptFault> {
    let refused = |error| ReceiptFault::Receipt { error };
    let receipt = Receipt::parse(receipt).map_err(refused)?;
    let carried = entry.or(receipt.extra.as_deref());
    let entry = carried.ok_or(ReceiptFault::NoEntry)?;
    let verified = receipt.verify(entry, trust).map_err(refused)?;
    let record = Record::decode(entry).map_err(ReceiptFault::Record)?;
    let (said, proven) = (record.index, receipt.index);
    match said == proven {
        true => Ok(ProvenEntry {
            record,
            entry: entry.to_owned(),
            verified,
        }),
        false => Err(ReceiptFault::OtherIndex { said, proven }),
    }
}

/// The cause belongs on the same line.
fn because(error: &ReceiptError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or(String::new(), |cause| format!(": {cause}"))
}
