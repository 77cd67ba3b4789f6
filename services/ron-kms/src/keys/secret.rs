//! Secret bytes: wiped when dropped, compared in constant time, never shown.
//!
//! There is no `Display`, no `Serialize` and no `Clone`; `Debug` tells the length alone. Whoever needs the
//! bytes says [`expose`](Secret::expose), which is easy to search for.

use std::fmt;

use aws_lc_rs::constant_time;
use zeroize::Zeroizing;

use super::Fill;

pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; the caller's own copies are the caller's to wipe.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    pub fn copy_of(bytes: &[u8]) -> Secret {
        Secret::new(bytes.to_vec())
    }

    pub fn random(len: usize, fill: Fill<'_>) -> Secret {
        let mut bytes = Zeroizing::new(vec![0; len]);
        fill(&mut bytes);
        Secret(bytes)
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Secret {
    /// Constant time for secrets of one length; the length is no secret.
    fn eq(&self, other: &Secret) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_tells_the_length_alone() {
        let secret = Secret::copy_of(&[0xAB; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(32 bytes)");
        assert_eq!(format!("{:?}", Some(&secret)), "Some(Secret(32 bytes))");
    }

    #[test]
    fn equal_means_same_bytes_and_same_length() {
        let of = Secret::copy_of;
        assert_eq!(of(b"abc"), of(b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert_ne!(of(b"abc"), of(other));
        }
    }

    #[test]
    fn random_bytes_are_the_callers() {
        let mut next = 0u8;
        let mut fill = |buf: &mut [u8]| {
            for byte in buf {
                *byte = next;
                next += 1;
            }
        };
        assert_eq!(Secret::random(3, &mut fill).expose(), [0, 1, 2]);
        assert_eq!(Secret::random(2, &mut fill).expose(), [3, 4]);
    }
}
