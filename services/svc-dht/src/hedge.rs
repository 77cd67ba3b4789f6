//! How much hedging a node may do: a share of its requests, and a small burst.
//!
//! Every plain request earns the share, every hedge costs one. Always: hedges started by a node stay within the burst
//! plus the share of its requests, however many lookups run at once. One number, shared by all lookups without a lock.

use std::sync::atomic::{AtomicU32, Ordering};

/// The budget of one node; lookups share it by reference.
#[derive(Debug)]
pub struct HedgeBudget {
    /// Hundredths of a hedge.
    saved: AtomicU32,
    percent: u32,
    cap: u32,
}

const ONE: u32 = 100;

impl HedgeBudget {
    /// Hedges of `percent` of the requests, and `burst` of them before the first request.
    pub fn new(percent: u32, burst: u32) -> HedgeBudget {
        let cap = burst.saturating_mul(ONE);
        HedgeBudget {
            saved: AtomicU32::new(cap),
            percent: percent.min(ONE),
            cap,
        }
    }

    /// A plain request was made.
    pub fn earn(&self) {
        self.change(|saved| Some(saved.saturating_add(self.percent).min(self.cap)));
    }

    /// Takes the price of one hedge, if it is there.
    pub fn try_take(&self) -> bool {
        self.change(|saved| saved.checked_sub(ONE))
    }

    /// Whole hedges that could start now.
    pub fn left(&self) -> u32 {
        self.saved.load(Ordering::Relaxed) / ONE
    }

    fn change(&self, step: impl FnMut(u32) -> Option<u32>) -> bool {
        let order = Ordering::Relaxed;
        self.saved.fetch_update(order, order, step).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // proves: DHT-13.3
    #[test]
    fn ten_percent_buys_a_hedge_every_ten_requests() {
        let budget = HedgeBudget::new(10, 1);
        assert!(budget.try_take());
        assert!(!budget.try_take());
        for n in 1..=20 {
            budget.earn();
            assert_eq!(budget.try_take(), n % 10 == 0, "after {n} requests");
        }
    }

    #[test]
    fn without_percent_or_burst_there_is_no_hedge() {
        for budget in [HedgeBudget::new(0, 0), HedgeBudget::new(10, 0)] {
            (0..1000).for_each(|_| budget.earn());
            assert!(!budget.try_take());
        }
    }

    proptest! {
        #[test]
        fn hedges_never_exceed_the_burst_and_the_share(
            percent in 0..200u32, burst in 0..20u32, steps in prop::collection::vec(any::<bool>(), 0..500),
        ) {
            let budget = HedgeBudget::new(percent, burst);
            let (mut requests, mut hedges) = (0, 0);
            for hedge in steps {
                match hedge {
                    true => hedges += u32::from(budget.try_take()),
                    false => { budget.earn(); requests += 1; }
                }
                prop_assert!(hedges * 100 <= burst * 100 + percent.min(100) * requests);
            }
        }
    }
}
