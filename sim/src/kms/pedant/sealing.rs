//! Blobs by their format: what stands in one in the clear, and what is in it, where the secret is known.
//!
//! `format | algorithm | nonce | ciphertext and tag`, bound to the version's name and the caller's context. Always: the
//! number in a blob is the next one of its version.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};

use super::{
    key::Key,
    wire::{Answer, Verdict},
};

const TAG: usize = 16;
const COUNTED: usize = 2 + 12;
/// Format, algorithm, version of the encapsulation, and the encapsulation.
const ENCAPSULATED: usize = 3 + 1088 + 32;

pub const MAX_PLAIN: usize = 65_536;
pub const MAX_CONTEXT: usize = 4096;

pub fn header_len(key: &Key) -> usize {
    match key.alg.counts_nonces {
        true => COUNTED,
        false => ENCAPSULATED,
    }
}

/// A blob longer than this is none.
pub fn longest(key: &Key) -> usize {
    header_len(key) + MAX_PLAIN + TAG
}

/// What the blob of an answer shows, and that it opens, if it can be opened here.
pub fn check(
    answer: &Answer,
    key: &Key,
    version: u32,
    nonce: Option<u64>,
    (blob, context, plain): (&[u8], &[u8], &[u8]),
) -> Verdict {
    let length = header_len(key) + plain.len() + TAG;
    answer.must(
        blob.len() == length,
        format_args!("a blob of {length} bytes"),
    )?;
    let named = blob.starts_with(&[1, key.alg.blob]);
    answer.must(named, "a blob that names its format and algorithm")?;
    match nonce {
        Some(nonce) => {
            let number = [&[0; 4][..], &nonce.to_be_bytes()].concat();
            answer.must(
                blob[2..COUNTED] == number[..],
                format_args!("nonce {nonce}"),
            )?;
        }
        None => answer.must(blob[2] == 1, "the encapsulation's version")?,
    }
    let secret = key
        .version(version)
        .and_then(|version| version.secret.as_deref());
    let Some(secret) = secret.filter(|_| key.alg.counts_nonces) else {
        return Ok(());
    };
    let opened = open(secret, key, version, blob, context);
    answer.must(
        opened.as_deref() == Some(plain),
        "a blob of what was wrapped",
    )
}

/// With a secret that was made elsewhere: each version seals with a key derived for it alone.
fn open(secret: &[u8], key: &Key, version: u32, blob: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let name = key.name(version);
    let info = [name.as_bytes()];
    let derived = Salt::new(HKDF_SHA256, b"ron-kms imported key v1").extract(secret);
    let mut own = [0; 32];
    derived
        .expand(&info, HKDF_SHA256)
        .ok()?
        .fill(&mut own)
        .ok()?;
    let algorithm = match key.alg.blob {
        1 => &AES_256_GCM,
        _ => &CHACHA20_POLY1305,
    };
    let aead = LessSafeKey::new(UnboundKey::new(algorithm, &own).ok()?);
    let (head, sealed) = blob.split_at_checked(COUNTED)?;
    let length = (name.len() as u32).to_be_bytes();
    let bound = [head, &length, name.as_bytes(), context].concat();
    let nonce = Nonce::try_assume_unique_for_key(&head[2..]).ok()?;
    let mut plain = sealed.to_vec();
    let opened = aead
        .open_in_place(nonce, Aad::from(bound), &mut plain)
        .ok()?;
    Some(opened.to_vec())
}
