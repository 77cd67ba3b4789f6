//! Ids of nodes and keys of records: one space of 256 bits, measured by XOR.

use std::{cmp::Ordering, fmt};

/// A place in the key space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(pub [u8; 32]);

/// How far two ids are apart; ordered from near to far.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Distance(pub [u8; 32]);

/// As many as the space has bits.
pub const BUCKETS: usize = 256;

const NODE_CONTEXT: &str = "ron svc-dht node id v1";
const VALUE_CONTEXT: &str = "ron svc-dht value v1";

impl Id {
    /// The id of the node that holds this Ed25519 key.
    pub fn of_node(public_key: &[u8; 32]) -> Id {
        Id(blake3::derive_key(NODE_CONTEXT, public_key))
    }

    /// Where a publisher's value of this name lies: nobody else can write there.
    pub fn of_value(publisher: &[u8; 32], name: &[u8]) -> Id {
        let mut hasher = blake3::Hasher::new_derive_key(VALUE_CONTEXT);
        hasher.update(publisher);
        hasher.update(name);
        Id(*hasher.finalize().as_bytes())
    }

    #[inline]
    pub fn distance(&self, other: &Id) -> Distance {
        let mut xor = [0; 32];
        for (out, (a, b)) in xor.iter_mut().zip(self.0.iter().zip(&other.0)) {
            *out = a ^ b;
        }
        Distance(xor)
    }

    /// Which of the two is nearer to this one.
    #[inline]
    pub fn compare(&self, a: &Id, b: &Id) -> Ordering {
        let (me, a, b) = (words(&self.0), words(&a.0), words(&b.0));
        let differs = (0..4).find(|n| a[*n] != b[*n]);
        differs.map_or(Ordering::Equal, |n| (a[n] ^ me[n]).cmp(&(b[n] ^ me[n])))
    }

    /// The bucket of `other` in the table of the node with this id: 255 for the far half of the space, 0 for the
    /// nearest neighbour. None for the id itself.
    pub fn bucket_of(&self, other: &Id) -> Option<u8> {
        self.distance(other).log2()
    }

    /// 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Id> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(text.chunks(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Id(id))
    }

    /// Its first eight bytes as a number: enough to tell ids apart in a trace.
    #[inline]
    pub fn short(&self) -> u64 {
        words(&self.0)[0]
    }
}

/// Ordered like the bytes. As four numbers they need no call to be compared, and a lookup compares thousands.
#[inline]
fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|n| u64::from_be_bytes(words[n]))
}

impl Ord for Id {
    #[inline]
    fn cmp(&self, other: &Id) -> Ordering {
        words(&self.0).cmp(&words(&other.0))
    }
}

impl PartialOrd for Id {
    #[inline]
    fn partial_cmp(&self, other: &Id) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Distance {
    #[inline]
    fn cmp(&self, other: &Distance) -> Ordering {
        words(&self.0).cmp(&words(&other.0))
    }
}

impl PartialOrd for Distance {
    #[inline]
    fn partial_cmp(&self, other: &Distance) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Distance {
    pub const ZERO: Distance = Distance([0; 32]);

    /// The highest bit that is set; none in zero.
    pub fn log2(&self) -> Option<u8> {
        let (i, byte) = self.0.iter().enumerate().find(|(_, byte)| **byte != 0)?;
        Some((255 - 8 * i as u32 - byte.leading_zeros()) as u8)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}…", self.short())
    }
}

impl fmt::Debug for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Id(self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bucket_is_the_highest_bit_that_differs() {
        let zero = Id([0; 32]);
        assert_eq!(zero.bucket_of(&zero), None);
        for bit in 0..=255_u8 {
            let mut other = [0; 32];
            other[31 - bit as usize / 8] = 1 << (bit % 8);
            assert_eq!(zero.bucket_of(&Id(other)), Some(bit));
        }
    }

    proptest! {
        #[test]
        fn distance_is_a_symmetric_metric(a: [u8; 32], b: [u8; 32]) {
            let (a, b) = (Id(a), Id(b));
            prop_assert_eq!(a.distance(&b), b.distance(&a));
            prop_assert_eq!(a.distance(&b) == Distance::ZERO, a == b);
        }

        #[test]
        fn ids_and_distances_are_ordered_byte_by_byte(
            a: [u8; 32],
            b: [u8; 32],
            target: [u8; 32],
            alike in 0..=32_usize,
        ) {
            let mut b = b;
            b[..alike].copy_from_slice(&a[..alike]);
            prop_assert_eq!(Id(a).cmp(&Id(b)), a.cmp(&b));
            prop_assert_eq!(Distance(a).cmp(&Distance(b)), a.cmp(&b));
            let (a, b, target) = (Id(a), Id(b), Id(target));
            let by_distance = target.distance(&a).0.cmp(&target.distance(&b).0);
            prop_assert_eq!(target.compare(&a, &b), by_distance);
        }

        #[test]
        fn an_id_is_read_as_it_was_written(id: [u8; 32]) {
            prop_assert_eq!(Id::parse(&Id(id).to_string()), Some(Id(id)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = Id::parse(&text);
        }
    }
}
