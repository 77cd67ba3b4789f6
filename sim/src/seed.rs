//! From one seed, many independent generators.
//!
//! Every concern (network, workload, each node's entropy …) draws from a stream of its own, so that
//! taking one fault out of a plan does not shift what all the others draw.

use std::time::Duration;

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_core::Rng;

pub type SimRng = ChaCha8Rng;

/// The generator named `label` of this seed.
pub fn stream(seed: u64, label: &str) -> SimRng {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(label.as_bytes());
    SimRng::from_seed(*hasher.finalize().as_bytes())
}

/// A number in `lo..=hi`, evenly.
pub fn pick(rng: &mut SimRng, lo: u64, hi: u64) -> u64 {
    assert!(lo <= hi, "empty range {lo}..={hi}");
    let span = u128::from(hi - lo) + 1;
    lo + ((u128::from(rng.next_u64()) * span) >> 64) as u64
}

/// A duration in `lo..=hi`, evenly, at nanosecond resolution.
pub fn pick_duration(rng: &mut SimRng, (lo, hi): (Duration, Duration)) -> Duration {
    Duration::from_nanos(pick(rng, lo.as_nanos() as u64, hi.as_nanos() as u64))
}

/// A duration from `lo` on, exponentially distributed with `rate` per `hi - lo`, and `hi` at most.
pub fn pick_on_curve(rng: &mut SimRng, (lo, hi): (Duration, Duration), rate: f64) -> Duration {
    // 53 bits, never 0.
    let even = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let part = (-even.ln() / rate).min(1.0);
    lo + (hi - lo).mul_f64(part)
}

/// True in `parts` of 10,000 cases.
pub fn chance(rng: &mut SimRng, parts_per_10_000: u32) -> bool {
    parts_per_10_000 > 0 && pick(rng, 0, 9_999) < u64::from(parts_per_10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, label| stream(seed, label).next_u64();
        assert_eq!(draw(7, "net"), draw(7, "net"));
        assert_ne!(draw(7, "net"), draw(7, "disk"));
        assert_ne!(draw(7, "net"), draw(8, "net"));
    }

    #[test]
    fn a_curve_stays_in_its_range_and_leans_to_the_short_end() {
        let mut rng = stream(1, "curve");
        let ms = Duration::from_millis;
        let drawn: Vec<_> = (0..2000)
            .map(|_| pick_on_curve(&mut rng, (ms(10), ms(110)), 5.0))
            .collect();
        assert!(drawn.iter().all(|d| (ms(10)..=ms(110)).contains(d)));
        let mean = drawn.iter().sum::<Duration>() / 2000;
        assert!((ms(28)..=ms(32)).contains(&mean), "{mean:?}");
    }

    #[test]
    fn pick_covers_both_ends_of_its_range() {
        let mut rng = stream(1, "pick");
        let drawn: std::collections::BTreeSet<_> = (0..200).map(|_| pick(&mut rng, 3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(pick(&mut rng, 9, 9), 9);
        pick(&mut rng, 0, u64::MAX);
    }
}
