//! Against the draft's own vectors, and against another implementation in both directions.

use aws_lc_rs::digest::{SHA256, digest};
use x_wing::{Decapsulate, DecapsulationKey, Decapsulator, EncapsulationKey, KeyExport};

use super::*;
use crate::keys::Kid;

fn counting() -> impl FnMut(&mut [u8]) {
    let mut next = 0u8;
    move |buf: &mut [u8]| {
        for byte in buf {
            next = next.wrapping_mul(5).wrapping_add(3);
            *byte = next;
        }
    }
}

fn id(version: u32) -> VersionedKid {
    Kid::random(&mut |buf: &mut [u8]| buf.fill(1))
        .version(version)
        .unwrap()
}

fn key(seed: &[u8], version: u32) -> XWingKey {
    XWingKey::from_secret(id(version), &Secret::copy_of(seed)).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Seed, randomness of the encapsulation, shared secret; SHA-256 of public key and encapsulation.
const DRAFT: [[&str; 5]; 3] = [
    [
        "7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26",
        "3cb1eea988004b93103cfb0aeefd2a686e01fa4a58e8a3639ca8a1e3f9ae57e235b8cc873c23dc62b8d260169afa2f75ab916a58d974918835d25e6a435085b2",
        "d2df0522128f09dd8e2c92b1e905c793d8f57a54c3da25861f10bf4ca613e384",
        "2e816deebcd76c5c80d0cd2d174478871658e8e2ff42bc9d4a6e486372e856bb",
        "17cd532d657e44c897ca6583e548a5424fc70bf54f99515a4d2bcf99e3469f33",
    ],
    [
        "badfd6dfaac359a5efbb7bcc4b59d538df9a04302e10c8bc1cbf1a0b3a5120ea",
        "17cda7cfad765f5623474d368ccca8af0007cd9f5e4c849f167a580b14aabdefaee7eef47cb0fca9767be1fda69419dfb927e9df07348b196691abaeb580b32d",
        "f2e86241c64d60f6649fbc6c5b7d17180b780a3f34355e64a85749949c45f150",
        "c42ba5f8430d7d2c83739338203819f090e8303ce9c8b02107c272bfa5376916",
        "1661ea86d608a1924ba30840cb0a65f13ae051e3aec9cf0f064efc0bc92f2154",
    ],
    [
        "ef58538b8d23f87732ea63b02b4fa0f4873360e2841928cd60dd4cee8cc0d4c9",
        "22a96188d032675c8ac850933c7aff1533b94c834adbb69c6115bad4692d8619f90b0cdf8a7b9c264029ac185b70b83f2801f2f4b3f70c593ea3aeeb613a7f1b",
        "953f7f4e8c5b5049bdc771d1dffada0dd961477d1a2ae0988baa7ea6898d893f",
        "6b080d6b84f095342092fa7a22423e58bd681397ad0ef00eac92bd254db4fa95",
        "d3ca5578500344b5896cffc4fd740c9311946b82951df155e6fd86a7966b43c6",
    ],
];

#[test]
fn the_vectors_of_the_draft_come_out() {
    for [seed, randomness, shared, public, encapsulation] in DRAFT.map(|v| v.map(hex)) {
        let key = key(&seed, 1);
        let raw = key.public().raw();
        assert_eq!(raw.len(), PUBLIC_LEN);
        assert_eq!(digest(&SHA256, &raw).as_ref(), public);
        let (sent, secret) = key
            .public()
            .encapsulate(randomness.as_slice().try_into().unwrap());
        assert_eq!(sent.len(), ENCAPSULATION_LEN);
        assert_eq!(digest(&SHA256, &sent).as_ref(), encapsulation);
        assert_eq!(secret.expose(), shared);
        assert_eq!(key.decapsulate(&sent).unwrap().expose(), shared);
    }
}

#[test]
fn another_implementation_agrees_in_both_directions() {
    let fill = &mut counting();
    for _ in 0..8 {
        let (mut seed, mut randomness) = ([0; SEED_LEN], [0; RANDOMNESS_LEN]);
        fill(&mut seed);
        fill(&mut randomness);
        let (ours, theirs) = (key(&seed, 1), DecapsulationKey::from(seed));
        let public = theirs.encapsulation_key().to_bytes();
        assert_eq!(ours.public().raw(), &public[..]);

        let recipient = Recipient::from_raw(&public).unwrap();
        let (sent, secret) = recipient.encapsulate(&randomness);
        let opened = theirs.decapsulate(&sent.as_slice().try_into().unwrap());
        assert_eq!(secret.expose(), &opened[..]);

        let recipient = EncapsulationKey::try_from(&ours.public().raw()[..]).unwrap();
        let (sent, secret) = recipient.encapsulate_deterministic(&randomness.into());
        assert_eq!(ours.decapsulate(&sent).unwrap().expose(), &secret[..]);
    }
}

#[test]
fn a_blob_opens_only_under_its_version_key_and_context() {
    let fill = &mut counting();
    let own = key(&[1; 32], 1);
    let blob = own.wrap(b"secret", b"context", fill).unwrap();
    assert_eq!(blob.len(), HEADER_LEN + 6 + TAG_LEN);
    assert_eq!(blob[..3], [BLOB_FORMAT, 3, KEM_VERSION]);
    assert_eq!(own.unwrap(&blob, b"context").unwrap().expose(), b"secret");
    for (other, context) in [
        (key(&[1; 32], 2), &b"context"[..]),
        (key(&[2; 32], 1), b"context"),
        (key(&[1; 32], 1), b"contex"),
        (key(&[1; 32], 1), b""),
    ] {
        let refused = other.unwrap(&blob, context);
        assert_eq!(refused, Err(SealingError::DoesNotOpen));
    }
    let again = own.wrap(b"secret", b"context", fill).unwrap();
    assert_ne!(blob[3..], again[3..], "each blob has a key of its own");
}

#[test]
fn a_blob_wrapped_with_the_public_half_alone_opens() {
    let own = key(&[1; 32], 7);
    let public = Recipient::from_raw(&own.public().raw()).unwrap();
    let blob = public.wrap(&id(7), b"s", b"c", &mut counting()).unwrap();
    assert_eq!(own.unwrap(&blob, b"c").unwrap().expose(), b"s");
}

#[test]
fn cut_changed_and_foreign_blobs_are_refused_each_with_its_reason() {
    let own = key(&[1; 32], 1);
    let blob = own.wrap(b"secret", b"", &mut counting()).unwrap();
    for cut in 0..HEADER_LEN + TAG_LEN {
        let short = SealingError::Truncated {
            least: HEADER_LEN + TAG_LEN,
            got: cut,
        };
        assert_eq!(own.unwrap(&blob[..cut], b""), Err(short));
    }
    let with = |at: usize, byte: u8| {
        let mut blob = blob.clone();
        blob[at] = byte;
        own.unwrap(&blob, b"").unwrap_err()
    };
    assert_eq!(with(0, 0), SealingError::NotABlob);
    assert_eq!(with(0, 2), SealingError::NewerFormat(2));
    assert_eq!(with(1, 1), SealingError::OtherAlgorithm(Algorithm::XWing));
    assert_eq!(with(2, 2), SealingError::NewerFormat(2));
    for at in (3..blob.len()).step_by(61).chain([blob.len() - 1]) {
        assert_eq!(with(at, blob[at] ^ 1), SealingError::DoesNotOpen, "{at}");
    }
}

#[test]
fn a_point_that_fixes_the_x25519_half_is_refused() {
    let own = key(&[1; 32], 1);
    let (mut sent, _) = own.public().encapsulate(&[3; RANDOMNESS_LEN]);
    sent[ML_KEM_CIPHERTEXT..].fill(0);
    assert_eq!(own.decapsulate(&sent), Err(SealingError::DoesNotOpen));
}

#[test]
fn what_is_too_long_or_no_key_is_refused() {
    let own = key(&[1; 32], 1);
    let fill = &mut counting();
    let long = Err(SealingError::TooLong);
    assert_eq!(own.wrap(&vec![0; MAX_PLAIN + 1], b"", fill), long);
    assert_eq!(own.wrap(b"", &vec![0; MAX_CONTEXT + 1], fill), long);
    let most = own.wrap(&vec![7; MAX_PLAIN], &vec![1; MAX_CONTEXT], fill);
    let opened = own.unwrap(&most.unwrap(), &vec![1; MAX_CONTEXT]).unwrap();
    assert_eq!(opened.expose(), vec![7; MAX_PLAIN]);
    let over = vec![1; HEADER_LEN + MAX_PLAIN + TAG_LEN + 1];
    assert_eq!(own.unwrap(&over, b""), Err(SealingError::TooLong));

    let bad = SealingError::BadSecret(Algorithm::XWing);
    for len in [0, 31, 33, 64] {
        let made = XWingKey::from_secret(id(1), &Secret::copy_of(&vec![1; len]));
        assert_eq!(made.map(|_| ()).unwrap_err(), bad);
    }
    for len in [0, PUBLIC_LEN - 1, PUBLIC_LEN + 1] {
        let public = Recipient::from_raw(&vec![1; len]);
        assert_eq!(public.map(|_| ()).unwrap_err(), bad);
    }
    // A coefficient that is not below the modulus.
    let public = Recipient::from_raw(&[0xFF; PUBLIC_LEN]);
    assert_eq!(public.map(|_| ()).unwrap_err(), bad);
}
