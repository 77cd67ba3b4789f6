//! Results as the audit log keeps them beside their records, for callers who repeat an operation id.
//!
//! Signatures and wrapped bytes only: a data key's plain bytes are never kept, they are unwrapped again;
//! evidence is not kept either, the newest goes with each answer that asks for it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde::{Deserialize, Serialize};

use crate::{
    ask::{Receipt, Reply},
    audit::frames::MAX_ATTACHMENT,
    error::KmsError,
    keys::{Algorithm, Kid, Secret, signing::Signature},
    op_ids::Done,
};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Kept {
    Signed {
        version: u32,
        alg: Algorithm,
        sigs: Vec<Vec<(Algorithm, String)>>,
    },
    Wrapped {
        version: u32,
        blob: String,
    },
    DataKey {
        version: u32,
        blob: String,
    },
}

/// `None` for what is not kept.
pub fn encode(reply: &Reply) -> Option<Vec<u8>> {
    let kept = match reply {
        Reply::Signed {
            key,
            algorithm,
            signatures,
            ..
        } => Kept::Signed {
            version: key.version(),
            alg: *algorithm,
            sigs: signatures
                .iter()
                .map(|parts| {
                    let part = |s: &Signature| (s.algorithm, B64.encode(&s.bytes));
                    parts.iter().map(part).collect()
                })
                .collect(),
        },
        Reply::Wrapped { key, blob, .. } => Kept::Wrapped {
            version: key.version(),
            blob: B64.encode(blob),
        },
        Reply::DataKey { key, blob, .. } => Kept::DataKey {
            version: key.version(),
            blob: B64.encode(blob),
        },
        Reply::Key { .. } | Reply::Unwrapped { .. } => return None,
    };
    serde_json::to_vec(&kept).ok()
}

/// The most messages whose signatures by this algorithm can be kept, whatever its version.
pub fn most_messages(algorithm: Algorithm) -> usize {
    MAX_ATTACHMENT.saturating_sub(FRAME) / each_len(algorithm).max(1)
}

/// What one message adds to a kept result: its list, and the comma before the next one.
fn each_len(algorithm: Algorithm) -> usize {
    let part = |part: &Algorithm| {
        let signature = part.signature_len().unwrap_or(0);
        let text = base64::encoded_len(signature, false).unwrap_or(usize::MAX / 4);
        part.name().len() + text + r#"["",""],"#.len()
    };
    let parts: usize = algorithm.parts().iter().map(part).sum();
    parts + "[]".len()
}

/// Names, brackets, the longest version and the longest name of an algorithm: less than this.
const FRAME: usize = 128;

/// The reply again, with this evidence; a data key without its plain bytes.
pub fn decode(kid: &Kid, done: &Done, evidence: Option<String>) -> Result<Reply, KmsError> {
    let damaged = || KmsError::Store("a kept result is damaged".into());
    let kept: Kept = serde_json::from_slice(&done.result).map_err(|_| damaged())?;
    let receipt = Receipt {
        seq: done.seq,
        index: Some(done.index),
    };
    let bytes = |text: &str| B64.decode(text).map_err(|_| damaged());
    let id = |version| kid.version(version).ok_or_else(damaged);
    Ok(match kept {
        Kept::Signed { version, alg, sigs } => Reply::Signed {
            key: id(version)?,
            algorithm: alg,
            signatures: sigs
                .iter()
                .map(|parts| {
                    let part = |(algorithm, text): &(Algorithm, String)| {
                        Ok(Signature {
                            algorithm: *algorithm,
                            bytes: bytes(text)?,
                        })
                    };
                    parts.iter().map(part).collect::<Result<_, KmsError>>()
                })
                .collect::<Result<_, _>>()?,
            attestation: evidence,
            receipt,
        },
        Kept::Wrapped { version, blob } => Reply::Wrapped {
            key: id(version)?,
            blob: bytes(&blob)?,
            receipt,
        },
        Kept::DataKey { version, blob } => Reply::DataKey {
            key: id(version)?,
            plain: Secret::new(Vec::new()),
            blob: bytes(&blob)?,
            receipt,
        },
    })
}

#[cfg(test)]
mod tests;
