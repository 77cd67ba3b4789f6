//! A generator that is made when first asked: most processes never restart a task, and it is a third of a kilobyte.
//!
//! Always: what it draws is what [`Env::rng`](crate::Env::rng) would have drawn at the time it was seeded.

use std::convert::Infallible;

use rand_core::{Rng as _, SeedableRng, TryRng};

use crate::{Env, Rng};

pub(super) struct LateRng {
    seed: [u8; 32],
    made: Option<Box<Rng>>,
}

impl LateRng {
    pub fn new(env: &Env) -> Self {
        let mut seed = [0; 32];
        env.fill_random(&mut seed);
        LateRng { seed, made: None }
    }

    fn made(&mut self) -> &mut Rng {
        self.made
            .get_or_insert_with(|| Box::new(Rng::from_seed(self.seed)))
    }
}

impl TryRng for LateRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.made().next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.made().next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.made().fill_bytes(bytes);
        Ok(())
    }
}
