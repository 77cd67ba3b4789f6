//! The key-encryption key: seals what is stored, and nothing leaves it.
//!
//! A sealed secret is `format | nonce | ciphertext and tag` (AES-256-GCM-SIV); its format, the algorithm and
//! the `kid#vN` are authenticated, so a blob moved to another version or read as another algorithm does
//! not open. Nonces are random; a repeated one would only show that two equal secrets are equal.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::keys::{Algorithm, Fill, Secret, VersionedKid};

pub const KEK_LEN: usize = 32;
/// How sealed bytes begin; references of other backends begin otherwise.
pub const SEALED_FORMAT: u8 = 1;

pub struct Kek {
    aead: LessSafeKey,
    secret: Secret,
}

impl Kek {
    pub fn random(fill: Fill<'_>) -> Kek {
        loop {
            // Only a wrong length is refused, which this is not.
            if let Some(kek) = Kek::from_secret(Secret::random(KEK_LEN, fill)) {
                return kek;
            }
        }
    }

    /// `None` unless it has [`KEK_LEN`] bytes.
    pub fn from_secret(secret: Secret) -> Option<Kek> {
        let key = UnboundKey::new(&AES_256_GCM_SIV, secret.expose()).ok()?;
        Some(Kek {
            aead: LessSafeKey::new(key),
            secret,
        })
    }

    /// The secret of a key version; `None` only if the cipher fails.
    pub fn seal_key(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        secret: &Secret,
        fill: Fill<'_>,
    ) -> Option<Vec<u8>> {
        self.seal(&name_of(id, algorithm), secret.expose(), fill)
    }

    pub fn open_key(
        &self,
        id: &VersionedKid,
        algorithm: Algorithm,
        sealed: &[u8],
    ) -> Option<Secret> {
        self.open(&name_of(id, algorithm), sealed)
    }

    pub(super) fn seal(&self, name: &str, plain: &[u8], fill: Fill<'_>) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce);
        let mut buf = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_LEN));
        buf.extend_from_slice(plain);
        self.aead
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound(name)),
                &mut *buf,
            )
            .ok()?;
        Some([&[SEALED_FORMAT], &nonce[..], &buf].concat())
    }

    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Secret> {
        let (&SEALED_FORMAT, rest) = sealed.split_first()? else {
            return None;
        };
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut buf = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .aead
            .open_in_place(nonce, Aad::from(bound(name)), &mut buf);
        let len = opened.ok()?.len();
        Some(Secret::copy_of(&buf[..len]))
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek")
    }
}

const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

fn name_of(id: &VersionedKid, algorithm: Algorithm) -> String {
    format!("key {algorithm} {id}")
}

fn bound(name: &str) -> Vec<u8> {
    [&[SEALED_FORMAT], name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Kid;

    fn counting() -> impl FnMut(&mut [u8]) {
        let mut next = 0u8;
        move |buf: &mut [u8]| {
            next += 1;
            buf.fill(next);
        }
    }

    #[test]
    fn opens_only_what_it_sealed_for_this_version_and_algorithm() {
        let fill = &mut counting();
        let (kek, other) = (Kek::random(fill), Kek::random(fill));
        let kid = Kid::random(fill);
        let [one, two] = [1, 2].map(|n| kid.version(n).unwrap());
        let secret = Secret::copy_of(&[7; 32]);
        let sealed = kek
            .seal_key(&one, Algorithm::Ed25519, &secret, fill)
            .unwrap();
        assert_eq!(sealed.len(), 1 + 12 + 32 + 16);
        let open = |kek: &Kek, id, algorithm, sealed: &[u8]| kek.open_key(id, algorithm, sealed);
        let whole = open(&kek, &one, Algorithm::Ed25519, &sealed);
        assert_eq!(whole, Some(secret));
        assert_eq!(open(&other, &one, Algorithm::Ed25519, &sealed), None);
        assert_eq!(open(&kek, &two, Algorithm::Ed25519, &sealed), None);
        assert_eq!(open(&kek, &one, Algorithm::MlDsa65, &sealed), None);
        for cut in 0..sealed.len() {
            assert_eq!(open(&kek, &one, Algorithm::Ed25519, &sealed[..cut]), None);
            let mut flipped = sealed.clone();
            flipped[cut] ^= 1;
            assert_eq!(open(&kek, &one, Algorithm::Ed25519, &flipped), None);
        }
    }

    #[test]
    fn equal_secrets_are_sealed_to_different_bytes() {
        let fill = &mut counting();
        let kek = Kek::random(fill);
        let id = Kid::random(fill).version(1).unwrap();
        let secret = Secret::copy_of(&[7; 32]);
        let [one, two] = [(); 2].map(|()| kek.seal_key(&id, Algorithm::XWing, &secret, fill));
        assert_ne!(one, two);
    }
}
