//! How many peers of one network may be in the table, so that who owns a network does not own our view.
//!
//! Counted are peers that are in the table, and only those: what somebody claims takes nobody's place.
//! Always: with the limits on, no bucket holds more than `per_bucket` of one subnet, no table more than `per_table`.

use crate::contact::Subnet;

use super::Entry;

/// The limits for a /24 of IPv4 or a /48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Diversity {
    pub per_bucket: u16,
    pub per_table: u16,
}

impl Diversity {
    /// For networks whose nodes are all neighbours, such as a test's.
    pub const OFF: Diversity = Diversity {
        per_bucket: u16::MAX,
        per_table: u16::MAX,
    };

    /// May one more come to so many in the bucket and so many in all other buckets? Those are counted only if it
    /// matters, since that takes reading the whole table.
    pub fn admits(&self, in_bucket: usize, elsewhere: impl FnOnce() -> usize) -> bool {
        if *self == Self::OFF {
            return true;
        }
        in_bucket < usize::from(self.per_bucket)
            && in_bucket + elsewhere() < usize::from(self.per_table)
    }
}

impl Default for Diversity {
    fn default() -> Self {
        Diversity {
            per_bucket: 2,
            per_table: 10,
        }
    }
}

/// How many of these are of that network.
pub fn count(entries: &[Entry], subnet: &Subnet) -> usize {
    let of = |entry: &&Entry| entry.contact.addr.subnet() == *subnet;
    entries.iter().filter(of).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_on_unless_switched_off() {
        let limits = Diversity::default();
        for (in_bucket, elsewhere, admitted) in [
            (0, 0, true),
            (1, 8, true),
            (1, 9, false),
            (2, 0, false),
            (0, 9, true),
            (0, 10, false),
        ] {
            assert_eq!(
                limits.admits(in_bucket, || elsewhere),
                admitted,
                "{in_bucket} {elsewhere}"
            );
        }
        assert!(Diversity::OFF.admits(100_000, || 100_000));
    }
}
