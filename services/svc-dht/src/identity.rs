//! Who a node is: an Ed25519 key, the id that is its hash, and signatures that mean one thing only.
//!
//! Always: what is signed is a BLAKE3 hash under a label, over parts that carry their lengths. So a signature made
//! for one purpose is worth nothing for another, and bytes cannot be moved from one part to the next.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::id::Id;

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];
pub type Signature = [u8; 64];

/// The key pair of a node.
pub struct Identity {
    pair: Ed25519KeyPair,
    public: PublicKey,
    id: Id,
}

/// Which network a node belongs to. Two networks never speak to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId(pub [u8; 16]);

impl Identity {
    /// The same seed gives the same identity.
    pub fn from_seed(seed: &[u8; 32]) -> Identity {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        let id = Id::of_node(&public);
        Identity { pair, public, id }
    }

    pub fn id(&self) -> Id {
        self.id
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Costs CPU time: not for a task that has a connection to serve.
    pub fn sign(&self, label: &'static str, parts: &[&[u8]]) -> Signature {
        let mut signature = [0; 64];
        let message = message(label, parts);
        signature.copy_from_slice(self.pair.sign(&message).as_ref());
        #[cfg(feature = "sim")]
        made_here::note(&self.public, &message, &signature);
        signature
    }
}

/// Whether the holder of the key signed these parts under this label. Costs CPU time, more than to sign.
pub fn verify(
    public: &PublicKey,
    label: &'static str,
    parts: &[&[u8]],
    signature: &Signature,
) -> bool {
    let message = message(label, parts);
    #[cfg(feature = "sim")]
    if made_here::has(public, &message, signature) {
        return true;
    }
    let key = UnparsedPublicKey::new(&ED25519, public);
    key.verify(&message, signature).is_ok()
}

fn message(label: &'static str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(label);
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// In a simulation all nodes share a thread, so most signatures that are verified were made on it. Those need no arithmetic,
/// which is more than half of what a run would cost. Every other one is verified as ever.
#[cfg(feature = "sim")]
mod made_here {
    use std::{cell::RefCell, collections::HashSet};

    use super::{PublicKey, Signature};

    /// More are forgotten, and verified by arithmetic.
    const MOST: usize = 1 << 17;

    thread_local! {
        static MADE: RefCell<HashSet<[u8; 32]>> = RefCell::default();
    }

    pub fn note(public: &PublicKey, message: &[u8; 32], signature: &Signature) {
        MADE.with_borrow_mut(|made| {
            if made.len() >= MOST {
                made.clear();
            }
            made.insert(key(public, message, signature));
        });
    }

    pub fn has(public: &PublicKey, message: &[u8; 32], signature: &Signature) -> bool {
        MADE.with_borrow(|made| made.contains(&key(public, message, signature)))
    }

    fn key(public: &PublicKey, message: &[u8; 32], signature: &Signature) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(public).update(message).update(signature);
        *hasher.finalize().as_bytes()
    }
}

impl NetworkId {
    pub fn of_name(name: &str) -> NetworkId {
        let hash = blake3::hash(name.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        NetworkId(id)
    }
}

impl fmt::Debug for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Says nothing of the private half.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LABEL: &str = "ron svc-dht test a";

    #[test]
    fn a_seed_gives_one_identity_and_its_id_is_the_hash_of_its_key() {
        let a = Identity::from_seed(&[1; 32]);
        assert_eq!(a.public(), Identity::from_seed(&[1; 32]).public());
        assert_ne!(a.public(), Identity::from_seed(&[2; 32]).public());
        assert_eq!(a.id(), Id::of_node(a.public()));
        // RFC 8032, section 7.1, the first test's key: the seed is used as it is.
        let seed = Id::parse("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = Id::parse("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(
            Identity::from_seed(&seed.unwrap().0).public(),
            &public.unwrap().0
        );
    }

    #[test]
    fn a_signature_holds_for_its_key_label_and_parts_alone() {
        let me = Identity::from_seed(&[1; 32]);
        let other = Identity::from_seed(&[2; 32]);
        let signature = me.sign(LABEL, &[b"ab", b"c"]);
        assert!(verify(me.public(), LABEL, &[b"ab", b"c"], &signature));
        assert!(!verify(other.public(), LABEL, &[b"ab", b"c"], &signature));
        assert!(!verify(
            me.public(),
            "ron svc-dht test b",
            &[b"ab", b"c"],
            &signature
        ));
        for parts in [
            &[&b"a"[..], b"bc"][..],
            &[b"abc"],
            &[b"ab", b"c", b""],
            &[b"ab"],
        ] {
            assert!(!verify(me.public(), LABEL, parts, &signature), "{parts:?}");
        }
    }

    #[test]
    fn networks_of_different_names_have_different_ids() {
        assert_eq!(NetworkId::of_name("ron"), NetworkId::of_name("ron"));
        assert_ne!(NetworkId::of_name("ron"), NetworkId::of_name("ron2"));
    }

    #[test]
    fn the_private_half_is_never_printed() {
        let text = format!("{:?}", Identity::from_seed(&[0xab; 32]));
        assert!(!text.contains("ab, ab") && !text.contains("171"), "{text}");
    }

    proptest! {
        #[test]
        fn a_flipped_bit_breaks_a_signature(bit in 0..512_usize, text: Vec<u8>) {
            let me = Identity::from_seed(&[3; 32]);
            let mut signature = me.sign(LABEL, &[&text]);
            signature[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify(me.public(), LABEL, &[&text], &signature));
        }
    }
}
