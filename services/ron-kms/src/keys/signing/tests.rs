//! Every signing algorithm through the same table: what it signs verifies, and nothing else does.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

/// Made once: an RSA key takes longer than all the rest.
fn rsa() -> &'static Secret {
    static KEY: OnceLock<Secret> = OnceLock::new();
    KEY.get_or_init(|| SigningKey::generate_rsa().unwrap())
}

fn counter(mut next: u8) -> impl FnMut(&mut [u8]) {
    move |buf: &mut [u8]| {
        for byte in buf {
            *byte = next;
            next = next.wrapping_add(1);
        }
    }
}

fn signing() -> impl Iterator<Item = Algorithm> {
    let signs = |a: &Algorithm| a.key_use() == Use::Sign;
    Algorithm::ALL.into_iter().filter(signs)
}

fn key(algorithm: Algorithm, from: u8) -> SigningKey {
    if algorithm == Algorithm::RsaPss3072 {
        return SigningKey::from_secret(algorithm, rsa()).unwrap();
    }
    let secret = SigningKey::generate(algorithm, &mut counter(from)).unwrap();
    SigningKey::from_secret(algorithm, &secret).unwrap()
}

#[test]
fn what_a_key_signs_verifies_and_a_change_anywhere_does_not() {
    for algorithm in signing() {
        let key = key(algorithm, 1);
        let signatures = key.sign(Input::Message(b"pay 1")).unwrap();
        let public = PublicKey::from_raw(algorithm, key.public().raw()).unwrap();
        assert_eq!(&public, key.public());
        assert_eq!(public.verify(Input::Message(b"pay 1"), &signatures), Ok(()));
        let first = SigningError::BadSignature(algorithm.parts()[0]);
        let other = public.verify(Input::Message(b"pay 2"), &signatures);
        assert_eq!(other, Err(first), "{algorithm}");
        for (i, part) in algorithm.parts().iter().enumerate() {
            assert_eq!(Some(signatures[i].bytes.len()), part.signature_len());
            for change in [0, signatures[i].bytes.len() - 1] {
                let mut changed = signatures.clone();
                changed[i].bytes[change] ^= 1;
                let refused = Err(SigningError::BadSignature(*part));
                assert_eq!(public.verify(Input::Message(b"pay 1"), &changed), refused);
            }
            for len in [0, 1, signatures[i].bytes.len() - 1] {
                let mut cut = signatures.clone();
                cut[i].bytes.truncate(len);
                assert!(public.verify(Input::Message(b"pay 1"), &cut).is_err());
            }
        }
    }
}

#[test]
fn hybrid_needs_both_signatures_once_in_any_order() {
    let hybrid = Algorithm::Ed25519MlDsa65;
    let key = key(hybrid, 9);
    let input = Input::Message(b"m");
    let both = key.sign(input).unwrap();
    let [ed, ml] = &both[..] else { panic!("two") };
    let verify = |sigs: &[&Signature]| {
        let sigs: Vec<_> = sigs.iter().copied().cloned().collect();
        key.public().verify(input, &sigs)
    };
    assert_eq!(verify(&[ed, ml]), Ok(()));
    assert_eq!(verify(&[ml, ed]), Ok(()));
    let wrong = Err(SigningError::WrongParts(hybrid));
    for sigs in [&[][..], &[ed], &[ml], &[ed, ed], &[ml, ml], &[ed, ml, ed]] {
        assert_eq!(verify(sigs), wrong, "{}", sigs.len());
    }
    // Each is a standard signature that the part's own public key verifies.
    let (ed_raw, ml_raw) = key.public().raw().split_at(32);
    for (part, raw, sig) in [(ed.algorithm, ed_raw, ed), (ml.algorithm, ml_raw, ml)] {
        let part = PublicKey::from_raw(part, raw).unwrap();
        assert_eq!(part.verify(input, std::slice::from_ref(sig)), Ok(()));
    }
}

#[test]
fn hash_is_taken_where_the_standard_hashes_first_and_refused_elsewhere() {
    let message = b"the message";
    for algorithm in signing() {
        let key = key(algorithm, 3);
        let wanted = algorithm.prehash();
        let kind = match wanted {
            Some(Prehash::Sha384) => &digest::SHA384,
            _ => &digest::SHA256,
        };
        let hashed = digest::digest(kind, message);
        let input = Input::Prehashed {
            hash: wanted.unwrap_or(Prehash::Sha256),
            digest: hashed.as_ref(),
        };
        let Some(wanted) = wanted else {
            let refused = SigningError::PrehashRefused(algorithm);
            assert_eq!(key.sign(input).unwrap_err(), refused);
            assert_eq!(key.public().verify(input, &[]), Err(refused));
            continue;
        };
        let by_hash = key.sign(input).unwrap();
        let by_message = key.sign(Input::Message(message)).unwrap();
        for signatures in [by_hash, by_message] {
            assert_eq!(key.public().verify(input, &signatures), Ok(()));
            let whole = key.public().verify(Input::Message(message), &signatures);
            assert_eq!(whole, Ok(()), "{algorithm}");
        }
        let other = match wanted {
            Prehash::Sha256 => Prehash::Sha384,
            Prehash::Sha384 => Prehash::Sha256,
        };
        let wrong = SigningError::WrongPrehash { algorithm, wanted };
        for (hash, digest) in [(wanted, &b"short"[..]), (other, hashed.as_ref())] {
            let input = Input::Prehashed { hash, digest };
            assert_eq!(key.sign(input).unwrap_err(), wrong);
        }
    }
}

#[test]
fn the_same_random_bytes_make_the_same_key_and_others_another() {
    for algorithm in signing().filter(|a| *a != Algorithm::RsaPss3072) {
        let raw = |from| key(algorithm, from).public().raw().to_vec();
        assert_eq!(raw(1), raw(1), "{algorithm}");
        assert_ne!(raw(1), raw(2), "{algorithm}");
    }
    let none = SigningKey::generate(Algorithm::RsaPss3072, &mut counter(0));
    assert_eq!(
        none,
        Err(SigningError::NotFromRandom(Algorithm::RsaPss3072))
    );
}

#[test]
fn scalar_out_of_range_is_drawn_again() {
    for (algorithm, len) in [(Algorithm::EcdsaP256, 32), (Algorithm::EcdsaP384, 48)] {
        for bad in [0x00, 0xFF] {
            let mut draws = 0;
            let mut fill = |buf: &mut [u8]| {
                draws += 1;
                buf.fill(if draws == 1 { bad } else { 5 });
            };
            let secret = SigningKey::generate(algorithm, &mut fill).unwrap();
            assert_eq!(secret.expose(), vec![5; len]);
            assert_eq!(draws, 2);
        }
        let stuck = SigningKey::generate(algorithm, &mut |buf: &mut [u8]| buf.fill(0));
        assert_eq!(stuck, Err(SigningError::BadSecret(algorithm)));
    }
}

#[test]
fn secret_of_another_size_or_use_is_refused() {
    for algorithm in Algorithm::ALL {
        let refused = if algorithm.key_use() == Use::Sign {
            SigningError::BadSecret(algorithm)
        } else {
            SigningError::NotForSigning(algorithm)
        };
        for len in [0, 1, 31, 33, 47, 49, 63, 65, 2000] {
            let secret = Secret::new(vec![1; len]);
            let got = SigningKey::from_secret(algorithm, &secret).unwrap_err();
            assert_eq!(got, refused, "{algorithm} {len}");
        }
    }
}

#[test]
fn pkcs8_of_the_right_algorithm_gives_the_stored_form_and_no_other_does() {
    let ed = Ed25519KeyPair::generate().unwrap();
    let p256 = EcdsaKeyPair::generate(P256.signing).unwrap();
    let p384 = EcdsaKeyPair::generate(P384.signing).unwrap();
    let ml = PqdsaKeyPair::generate(&ML_DSA_65_SIGNING).unwrap();
    let documents = [
        (
            Algorithm::Ed25519,
            ed.to_pkcs8v1().unwrap(),
            ed.public_key().as_ref().to_vec(),
        ),
        (
            Algorithm::EcdsaP256,
            p256.to_pkcs8v1().unwrap(),
            p256.public_key().as_ref().to_vec(),
        ),
        (
            Algorithm::EcdsaP384,
            p384.to_pkcs8v1().unwrap(),
            p384.public_key().as_ref().to_vec(),
        ),
        (
            Algorithm::MlDsa65,
            ml.to_pkcs8v1().unwrap(),
            ml.public_key().as_ref().to_vec(),
        ),
    ];
    for (own, document, public) in &documents {
        for algorithm in signing() {
            let imported = SigningKey::import_pkcs8(algorithm, document.as_ref());
            if algorithm == *own {
                let secret = imported.unwrap();
                assert_eq!(Some(secret.len()), algorithm.secret_len());
                let key = SigningKey::from_secret(algorithm, &secret).unwrap();
                assert_eq!(key.public().raw(), public);
            } else {
                assert!(imported.is_err(), "{own} as {algorithm}");
            }
        }
    }
    let rsa = SigningKey::import_pkcs8(Algorithm::RsaPss3072, rsa().expose()).unwrap();
    assert_eq!(&rsa, super::tests::rsa());
    let small = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let small: Pkcs8V1Der<'_> = small.as_der().unwrap();
    let small = SigningKey::import_pkcs8(Algorithm::RsaPss3072, small.as_ref());
    assert_eq!(small, Err(SigningError::BadSecret(Algorithm::RsaPss3072)));
}

#[test]
fn debug_and_errors_never_show_the_secret() {
    for algorithm in signing().filter(|a| *a != Algorithm::RsaPss3072) {
        let secret = SigningKey::generate(algorithm, &mut counter(0x61)).unwrap();
        let key = SigningKey::from_secret(algorithm, &secret).unwrap();
        assert_eq!(format!("{key:?}"), format!("SigningKey({algorithm})"));
        assert_eq!(
            format!("{secret:?}"),
            format!("Secret({} bytes)", secret.len())
        );
    }
}

#[test]
fn jwk_has_the_members_of_its_kind() {
    let members = |algorithm| {
        let jwks = key(algorithm, 1).public().jwks();
        let names = |jwk: &super::super::public::Jwk| {
            let names: Vec<_> = jwk.keys().copied().collect();
            format!("{} {} {}", jwk["kty"], jwk["alg"], names.join(","))
        };
        jwks.iter().map(names).collect::<Vec<_>>()
    };
    let okp = "OKP EdDSA alg,crv,kty,use,x";
    let akp = "AKP ML-DSA-65 alg,kty,pub,use";
    assert_eq!(members(Algorithm::Ed25519), [okp]);
    assert_eq!(members(Algorithm::MlDsa65), [akp]);
    assert_eq!(members(Algorithm::Ed25519MlDsa65), [okp, akp]);
    assert_eq!(
        members(Algorithm::EcdsaP256),
        ["EC ES256 alg,crv,kty,use,x,y"]
    );
    assert_eq!(
        members(Algorithm::EcdsaP384),
        ["EC ES384 alg,crv,kty,use,x,y"]
    );
    assert_eq!(
        members(Algorithm::RsaPss3072),
        ["RSA PS256 alg,e,kty,n,use"]
    );
    let jwk = &key(Algorithm::RsaPss3072, 1).public().jwks()[0];
    assert_eq!((jwk["n"].len(), &jwk["e"][..]), (512, "AQAB"));
    let jwk = &key(Algorithm::EcdsaP384, 1).public().jwks()[0];
    assert_eq!((jwk["x"].len(), jwk["y"].len()), (64, 64));
}

#[test]
fn spki_holds_the_raw_key_at_its_end() {
    for algorithm in signing() {
        let key = key(algorithm, 1);
        let spki = key.public().spki().unwrap();
        assert_eq!(spki.len(), algorithm.parts().len());
        let mut raw = Vec::new();
        for (part, der) in algorithm.parts().iter().zip(&spki) {
            assert_eq!(der[0], 0x30);
            let len = part.public_len().unwrap_or(key.public().raw().len());
            raw.extend_from_slice(&der[der.len() - len..]);
        }
        assert_eq!(raw, key.public().raw(), "{algorithm}");
    }
}

proptest! {
    #[test]
    fn foreign_public_key_bytes_are_refused_without_panic(
        raw in proptest::collection::vec(any::<u8>(), 0..2100)
    ) {
        for algorithm in Algorithm::ALL {
            if let Ok(key) = PublicKey::from_raw(algorithm, &raw) {
                prop_assert_eq!(key.raw(), &raw[..]);
                prop_assert!(key.verify(Input::Message(b""), &[]).is_err());
            }
        }
    }
}
