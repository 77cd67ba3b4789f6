//! The generator behind every choice the simulated disk makes.
//!
//! Same seed, same calls: same throws. Latency has its own stream, so that changing a range of
//! latencies leaves the faults where they were. The generator is made at the first throw: a disk without faults
//! never needs that of its fate, and a world has many disks.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

pub(super) struct Dice {
    seed: u64,
    stream: u64,
    made: Option<Box<ChaCha8Rng>>,
}

impl Dice {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Dice {
            seed,
            stream,
            made: None,
        }
    }

    /// A number in `0..bound`; 0 if there is nothing to choose from.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let rng = self.made.get_or_insert_with(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            rng.set_stream(self.stream);
            Box::new(rng)
        });
        ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`; `low` if the range is empty.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    /// True in `per_10k` of 10 000 cases. What never happens draws nothing.
    pub(super) fn chance(&mut self, per_10k: u32) -> bool {
        per_10k > 0 && self.below(10_000) < u64::from(per_10k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_and_each_stream_throws_its_own() {
        let throws = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            [(); 4].map(|()| dice.below(1 << 32))
        };
        assert_eq!(throws(1, 0), throws(1, 0));
        assert_ne!(throws(1, 0), throws(1, 1));
        assert_ne!(throws(1, 0), throws(2, 0));
    }
}
