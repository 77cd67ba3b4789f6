//! Objects of a token: how a key of each algorithm is described, made, found and used there.
//!
//! Secrets are token objects that are sensitive and cannot be extracted. Public halves are read once and
//! kept by the key store, so the token holds none. Signatures have the form that the software backend's
//! have; messages are hashed here where the standard hashes first.

use aws_lc_rs::digest;
use cryptoki::{
    mechanism::{
        Mechanism, MechanismType,
        eddsa::{EddsaParams, EddsaSignatureScheme},
        rsa::{PkcsMgfType, PkcsPssParams},
    },
    object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle},
    session::Session,
};
use zeroize::Zeroize;

use super::{Reference, token::Failure};
use crate::{
    backend::Message,
    keys::{
        Algorithm, Secret, Use,
        algorithm::Prehash,
        public::der_value,
        signing::{Checked, SigningError},
    },
};

/// What a token must offer for an algorithm; `None` for those that no token is asked for.
pub(super) fn mechanisms(algorithm: Algorithm) -> Option<[MechanismType; 2]> {
    Some(match algorithm {
        Algorithm::Ed25519 => [
            MechanismType::ECC_EDWARDS_KEY_PAIR_GEN,
            MechanismType::EDDSA,
        ],
        Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => {
            [MechanismType::ECC_KEY_PAIR_GEN, MechanismType::ECDSA]
        }
        Algorithm::RsaPss3072 => [
            MechanismType::RSA_PKCS_KEY_PAIR_GEN,
            MechanismType::RSA_PKCS_PSS,
        ],
        Algorithm::Aes256Gcm => [MechanismType::AES_KEY_GEN, MechanismType::AES_GCM],
        _ => return None,
    })
}

/// Makes the key and returns its public half, raw.
pub(super) fn generate(
    session: &Session,
    algorithm: Algorithm,
    reference: &Reference,
) -> Result<Vec<u8>, Failure> {
    let secret = guarded(algorithm, reference);
    if algorithm == Algorithm::Aes256Gcm {
        let length = Attribute::ValueLen(AES_LEN.into());
        let template = [&secret[..], &[length]].concat();
        session.generate_key(&Mechanism::AesKeyGen, &template)?;
        return Ok(Vec::new());
    }
    let mechanism = match algorithm {
        Algorithm::Ed25519 => Mechanism::EccEdwardsKeyPairGen,
        Algorithm::RsaPss3072 => Mechanism::RsaPkcsKeyPairGen,
        _ => Mechanism::EccKeyPairGen,
    };
    let mut public = vec![Attribute::Token(false), Attribute::Verify(true)];
    match algorithm {
        Algorithm::RsaPss3072 => public.extend([
            Attribute::ModulusBits(RSA_BITS.into()),
            Attribute::PublicExponent(RSA_EXPONENT.to_vec()),
        ]),
        _ => public.push(Attribute::EcParams(curve(algorithm).to_vec())),
    }
    let (public, private) = session.generate_key_pair(&mechanism, &public, &secret)?;
    let raw = read_public(session, public, algorithm);
    session.destroy_object(public)?;
    if raw.is_err() {
        // Without its public half the key is of no use.
        session.destroy_object(private)?;
    }
    raw
}

/// Puts a secret into the token that was made elsewhere.
pub(super) fn import(
    session: &Session,
    algorithm: Algorithm,
    reference: &Reference,
    secret: &Secret,
) -> Result<(), Failure> {
    let mut template = guarded(algorithm, reference);
    let (class, key_type) = kind(algorithm);
    template.extend([Attribute::Class(class), Attribute::KeyType(key_type)]);
    match algorithm {
        Algorithm::RsaPss3072 => {
            let numbers = rsa_numbers(secret.expose());
            template.extend(numbers.ok_or(SigningError::BadSecret(algorithm))?);
        }
        Algorithm::Aes256Gcm => template.push(Attribute::Value(secret.expose().to_vec())),
        _ => template.extend([
            Attribute::EcParams(curve(algorithm).to_vec()),
            Attribute::Value(secret.expose().to_vec()),
        ]),
    }
    let created = session.create_object(&template);
    template.iter_mut().for_each(wipe);
    created?;
    Ok(())
}

pub(super) fn find_all(
    session: &Session,
    algorithm: Algorithm,
    reference: &Reference,
) -> Result<Vec<ObjectHandle>, Failure> {
    let found = session.find_objects(&[
        Attribute::Class(kind(algorithm).0),
        Attribute::Token(true),
        Attribute::Id(reference.number.to_vec()),
        Attribute::Label(reference.id.to_string().into_bytes()),
    ])?;
    Ok(found)
}

pub(super) fn sign(
    session: &Session,
    object: ObjectHandle,
    algorithm: Algorithm,
    message: &Message,
) -> Result<Vec<u8>, Failure> {
    let checked = Checked::new(algorithm, message.input())?;
    let mechanism = match algorithm {
        Algorithm::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure)),
        Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => Mechanism::Ecdsa,
        _ => Mechanism::RsaPkcsPss(PkcsPssParams {
            hash_alg: MechanismType::SHA256,
            mgf: PkcsMgfType::MGF1_SHA256,
            s_len: SALT_LEN.into(),
        }),
    };
    let signed = match (checked, algorithm.prehash()) {
        (Checked::Digest(digest), _) => session.sign(&mechanism, object, digest.as_ref()),
        (Checked::Message(message), None) => session.sign(&mechanism, object, message),
        (Checked::Message(message), Some(hash)) => {
            let hash = match hash {
                Prehash::Sha256 => &digest::SHA256,
                Prehash::Sha384 => &digest::SHA384,
            };
            let digest = digest::digest(hash, message);
            session.sign(&mechanism, object, digest.as_ref())
        }
    };
    Ok(signed?)
}

const AES_LEN: u64 = 32;
const RSA_BITS: u64 = 3072;
const RSA_EXPONENT: [u8; 3] = [1, 0, 1];
const SALT_LEN: u64 = 32;

fn kind(algorithm: Algorithm) -> (ObjectClass, KeyType) {
    match algorithm {
        Algorithm::Ed25519 => (ObjectClass::PRIVATE_KEY, KeyType::EC_EDWARDS),
        Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => (ObjectClass::PRIVATE_KEY, KeyType::EC),
        Algorithm::RsaPss3072 => (ObjectClass::PRIVATE_KEY, KeyType::RSA),
        _ => (ObjectClass::SECRET_KEY, KeyType::AES),
    }
}

/// What every secret object is: kept, guarded, for one use.
fn guarded(algorithm: Algorithm, reference: &Reference) -> Vec<Attribute> {
    let mut template = vec![
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Id(reference.number.to_vec()),
        Attribute::Label(reference.id.to_string().into_bytes()),
    ];
    match algorithm.key_use() {
        Use::Sign => template.push(Attribute::Sign(true)),
        Use::Wrap => template.extend([Attribute::Encrypt(true), Attribute::Decrypt(true)]),
    }
    template
}

/// The curve's object identifier, in DER.
fn curve(algorithm: Algorithm) -> &'static [u8] {
    match algorithm {
        Algorithm::Ed25519 => &[6, 3, 0x2B, 0x65, 0x70],
        Algorithm::EcdsaP256 => &[6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7],
        _ => &[6, 5, 0x2B, 0x81, 4, 0, 0x22],
    }
}

fn read_public(
    session: &Session,
    public: ObjectHandle,
    algorithm: Algorithm,
) -> Result<Vec<u8>, Failure> {
    let wanted = match algorithm {
        Algorithm::RsaPss3072 => &[AttributeType::Modulus, AttributeType::PublicExponent][..],
        _ => &[AttributeType::EcPoint],
    };
    let attributes = session.get_attributes(public, wanted)?;
    let raw = match &attributes[..] {
        [Attribute::Modulus(n), Attribute::PublicExponent(e)] => {
            let numbers = [der_integer(n), der_integer(e)].concat();
            Some(der(SEQUENCE, &numbers))
        }
        [Attribute::EcPoint(point)] => bare_point(point, algorithm),
        _ => None,
    };
    raw.ok_or(SigningError::BadPublicKey(algorithm).into())
}

/// The standard wraps a point into an octet string; some tokens do not.
fn bare_point(point: &[u8], algorithm: Algorithm) -> Option<Vec<u8>> {
    let proper = |bytes: &[u8]| algorithm.public_len() == Some(bytes.len());
    if proper(point) {
        return Some(point.to_vec());
    }
    let (bare, _) = der_value(point, OCTET_STRING)?;
    proper(bare).then(|| bare.to_vec())
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;

fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let head = match len {
        0..=0x7F => vec![tag, len as u8],
        0x80..=0xFF => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [&head[..], contents].concat()
}

/// Not negative: a leading zero where the first bit is set.
fn der_integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bare = &bytes[zeros.min(bytes.len().saturating_sub(1))..];
    match bare.first() {
        Some(first) if *first >= 0x80 => der(INTEGER, &[&[0], bare].concat()),
        _ => der(INTEGER, bare),
    }
}

/// The numbers of an RSA key in PKCS#8: modulus, exponents, primes, exponents of the primes, coefficient.
fn rsa_numbers(pkcs8: &[u8]) -> Option<Vec<Attribute>> {
    let (info, _) = der_value(pkcs8, SEQUENCE)?;
    let (_, rest) = der_value(info, INTEGER)?;
    let (_, rest) = der_value(rest, SEQUENCE)?;
    let (key, _) = der_value(rest, OCTET_STRING)?;
    let (numbers, _) = der_value(key, SEQUENCE)?;
    let (_, mut rest) = der_value(numbers, INTEGER)?;
    let made: [fn(Vec<u8>) -> Attribute; 8] = [
        Attribute::Modulus,
        Attribute::PublicExponent,
        Attribute::PrivateExponent,
        Attribute::Prime1,
        Attribute::Prime2,
        Attribute::Exponent1,
        Attribute::Exponent2,
        Attribute::Coefficient,
    ];
    let mut attributes = Vec::new();
    for attribute in made {
        let (number, after) = der_value(rest, INTEGER)?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        attributes.push(attribute(number[zeros..].to_vec()));
        rest = after;
    }
    Some(attributes)
}

/// The template's copies of the secret are ours to wipe.
fn wipe(attribute: &mut Attribute) {
    match attribute {
        Attribute::Value(bytes)
        | Attribute::PrivateExponent(bytes)
        | Attribute::Prime1(bytes)
        | Attribute::Prime2(bytes)
        | Attribute::Exponent1(bytes)
        | Attribute::Exponent2(bytes)
        | Attribute::Coefficient(bytes) => bytes.zeroize(),
        _ => {}
    }
}
