//! Entropy: bytes that do not repeat.

use rand_core::Rng;

use crate::{Pair, list};

list!("entropy": bytes_do_not_repeat, generators_are_independent);

async fn bytes_do_not_repeat(pair: Pair) {
    let [mut a, mut b] = [[0; 32]; 2];
    pair.client.fill_random(&mut a);
    pair.client.fill_random(&mut b);
    assert_ne!(a, b);
    assert_ne!(a, [0; 32]);
    pair.client.fill_random(&mut []);
}

async fn generators_are_independent(pair: Pair) {
    let (mut a, mut b) = (pair.client.rng(), pair.client.rng());
    assert_ne!(a.next_u64(), b.next_u64());
}
