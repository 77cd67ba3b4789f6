//! Randomness from the operating system.

use ron_core::seam::Entropy;

use crate::TokioRuntime;

impl Entropy for TokioRuntime {
    fn fill(&self, buf: &mut [u8]) {
        // Without randomness no key and no id is safe: there is no way to go on.
        aws_lc_rs::rand::fill(buf).expect("the operating system gives no randomness");
    }
}
