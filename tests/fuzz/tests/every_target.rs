//! Each target over seeded inputs: plain noise, and noise that repeats so that lengths and counts agree now and then.
//! The fuzzer goes on from here; this shows on every run that no target fails at once.

use rand_chacha::{
    ChaCha12Rng,
    rand_core::{Rng, SeedableRng},
};

const INPUTS: u64 = 3_000;

#[test]
fn every_target_holds_over_seeded_inputs() {
    for (name, run) in fuzz::TARGETS {
        for seed in 0..INPUTS {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut input = vec![0; (rng.next_u32() % 600) as usize];
            rng.fill_bytes(&mut input);
            if seed % 3 == 1 {
                // Few different bytes, most of them small.
                input
                    .iter_mut()
                    .for_each(|byte| *byte = (*byte % 17).saturating_sub(9));
            } else if seed % 3 == 2 {
                // Text.
                input.iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
            }
            let held = std::panic::catch_unwind(|| run(&input));
            assert!(held.is_ok(), "{name}, seed {seed}: {input:?}");
        }
    }
}
