//! How many nodes the network has, from how close the closest ones are, and what follows for the buckets.
//!
//! Ids are spread evenly, so where our nearest m neighbours lie within a share d of the space, there are about
//! (m - 1) / d nodes in all. Sums, products and quotients only: the same numbers on every machine.

use crate::id::{BUCKETS, Distance, Id};

/// Fewer neighbours than this say nothing about density.
const ENOUGH: usize = 4;

/// No network is larger; a forged neighbour cannot make the estimate absurd.
const LARGEST: f64 = (1_u64 << 40) as f64;

/// Nodes in the network with ourselves. `nearest` are the closest peers to `me`, from near to far; the more, the
/// better: with 20 it is off by a quarter.
pub fn estimate(me: &Id, nearest: &[Id]) -> u64 {
    let known = nearest.len() as u64 + 1;
    let Some(farthest) = nearest.last().filter(|_| nearest.len() >= ENOUGH) else {
        return known;
    };
    let share = share(&me.distance(farthest));
    let others = (nearest.len() - 1) as f64 / share.max(f64::MIN_POSITIVE);
    (others.min(LARGEST) as u64 + 1).max(known)
}

/// How many buckets of one node hold somebody if it knows all it should in a network of so many nodes.
pub fn expected_buckets(nodes: u64) -> f64 {
    let others = nodes.saturating_sub(1);
    let mut share = 1.0;
    let mut expected = 0.0;
    for _ in 0..BUCKETS {
        share /= 2.0;
        expected += 1.0 - power(1.0 - share, others);
    }
    expected
}

/// How full the table is, in percent of what can be expected; at most 100, and 0 if nobody is known.
pub fn fill_percent(non_empty: usize, nodes: u64) -> u32 {
    let expected = expected_buckets(nodes);
    if non_empty == 0 {
        return 0;
    }
    let percent = 100.0 * non_empty as f64 / expected.max(1.0);
    percent.min(100.0) as u32
}

/// How much of the space is closer than this.
fn share(distance: &Distance) -> f64 {
    let add = |sum: f64, byte: &u8| (sum + f64::from(*byte)) / 256.0;
    distance.0.iter().rev().fold(0.0, add)
}

fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut square, mut product) = (base, 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(nodes: u64) -> Vec<Id> {
        let id = |n: u64| Id(*blake3::hash(&n.to_be_bytes()).as_bytes());
        (0..nodes).map(id).collect()
    }

    fn nearest(me: &Id, all: &[Id], n: usize) -> Vec<Id> {
        let mut others: Vec<Id> = all.iter().copied().filter(|id| id != me).collect();
        others.sort_by_key(|id| id.distance(me));
        others.truncate(n);
        others
    }

    #[test]
    fn the_estimate_is_right_on_average_and_rarely_off_by_half() {
        for nodes in [30, 300, 5000] {
            let all = world(nodes);
            let estimates: Vec<u64> = all
                .iter()
                .take(30)
                .map(|me| estimate(me, &nearest(me, &all, 20)))
                .collect();
            let mean = estimates.iter().sum::<u64>() / 30;
            assert!(
                mean > nodes * 8 / 10 && mean < nodes * 12 / 10,
                "{nodes}: {mean}"
            );
            let wild = estimates
                .iter()
                .filter(|e| **e > nodes * 2 || **e < nodes / 2)
                .count();
            assert!(wild <= 2, "{nodes}: {estimates:?}");
        }
    }

    #[test]
    fn who_knows_everybody_counts_them() {
        let all = world(4);
        assert_eq!(estimate(&all[0], &[]), 1);
        assert_eq!(estimate(&all[0], &nearest(&all[0], &all, 20)), 4);
    }

    #[test]
    fn a_forged_neighbour_at_no_distance_makes_no_absurd_number() {
        let me = Id([9; 32]);
        let near = |n: u8| Id(std::array::from_fn(|i| if i == 31 { 9 ^ n } else { 9 }));
        let forged: Vec<Id> = (1..=20).map(near).collect();
        assert_eq!(estimate(&me, &forged), LARGEST as u64 + 1);
        assert!(expected_buckets(estimate(&me, &forged)) < 45.0);
    }

    #[test]
    fn as_many_buckets_are_expected_as_are_found_filled() {
        for nodes in [2_u64, 3, 10, 300, 3000] {
            let all = world(nodes);
            let filled = |me: &Id| {
                let mut buckets: Vec<_> = all.iter().filter_map(|id| me.bucket_of(id)).collect();
                buckets.sort_unstable();
                buckets.dedup();
                buckets.len()
            };
            let sample = all.len().min(50);
            let sum: usize = all.iter().take(sample).map(filled).sum();
            let found = sum as f64 / sample as f64;
            let expected = expected_buckets(nodes);
            assert!(
                (found - expected).abs() < 0.5,
                "{nodes}: {found} {expected}"
            );
        }
    }

    #[test]
    fn fill_is_a_percentage() {
        for (non_empty, nodes, percent) in [
            (0, 1, 0),
            (0, 1000, 0),
            (1, 1, 100),
            (1, 2, 100),
            (200, 2, 100),
        ] {
            assert_eq!(
                fill_percent(non_empty, nodes),
                percent,
                "{non_empty} of {nodes}"
            );
        }
        let half = fill_percent(6, 3000);
        assert!((40..60).contains(&half), "{half}");
    }
}
