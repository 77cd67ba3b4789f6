//! The reward calculus: from weighed contributions to payouts, exact to the unit.
//!
//! Whole numbers only, and nothing but its arguments goes in: the same contributions in any order, split over any number of
//! workers, give the same payouts.
//!
//! Always: the payouts and the named parts of the residual sum to the pool.

use std::cmp::Reverse;

use ethnum::U256;

/// How an epoch's pool is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// In minor units.
    pub pool: u128,
    /// No account gets more; what is above stays in the residual.
    pub cap: Option<u128>,
    /// An account that would get less gets nothing; it stays in the residual.
    pub floor: u128,
}

/// Why no payouts can be worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalculusError {
    #[error("the contributions of account {0} stand there twice")]
    Duplicate(usize),
    #[error("the scores sum to more than 2^128")]
    Overflow,
    #[error("payouts and residual do not sum to the pool")]
    NotConserved,
}

/// What of the pool is paid to nobody, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residual {
    /// Above the cap.
    pub capped: u128,
    /// Below the floor.
    pub below_floor: u128,
    /// Nobody contributed anything.
    pub no_score: u128,
}

impl Residual {
    /// `None`: more than there can be.
    pub fn sum(&self) -> Option<u128> {
        self.capped
            .checked_add(self.below_floor)?
            .checked_add(self.no_score)
    }
}

/// What each account gets, in the order of the scores that went in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub payouts: Vec<u128>,
    pub residual: Residual,
}

/// Shares the pool out by score: to each its exact share rounded down, and the units that rounding leaves to those who lost
/// the largest fraction, of equals to the one that sorts first.
///
/// `accounts` are sorted, each with its score. That they are is checked: it makes the order of arrival irrelevant.
pub fn allocate<A: Ord>(
    accounts: &[(A, u128)],
    terms: &Terms,
) -> Result<Allocation, CalculusError> {
    for (at, pair) in accounts.windows(2).enumerate() {
        if pair[0].0 >= pair[1].0 {
            return Err(CalculusError::Duplicate(at + 1));
        }
    }
    let total = accounts
        .iter()
        .try_fold(0u128, |sum, (_, score)| sum.checked_add(*score));
    let total = total.ok_or(CalculusError::Overflow)?;
    let mut residual = Residual::default();
    let mut payouts = Vec::with_capacity(accounts.len());
    if total == 0 {
        residual.no_score = terms.pool;
        payouts.resize(accounts.len(), 0);
        return checked(payouts, residual, terms.pool);
    }
    let mut lost: Vec<(Reverse<u128>, u32)> = Vec::with_capacity(accounts.len());
    let mut left = terms.pool;
    for (at, (_, score)) in accounts.iter().enumerate() {
        let (share, fraction) = mul_div(terms.pool, *score, total);
        left -= share;
        payouts.push(share);
        lost.push((Reverse(fraction), at as u32));
    }
    // Fewer units are left than accounts lost a fraction: each of the first `left` gets one.
    let left = left as usize;
    if left > 0 {
        lost.select_nth_unstable(left - 1);
        for (_, at) in &lost[..left] {
            payouts[*at as usize] += 1;
        }
    }
    for payout in &mut payouts {
        let cap = terms.cap.unwrap_or(u128::MAX);
        if *payout > cap {
            residual.capped += *payout - cap;
            *payout = cap;
        }
        if *payout < terms.floor {
            residual.below_floor += *payout;
            *payout = 0;
        }
    }
    checked(payouts, residual, terms.pool)
}

/// The sum is worked out anew, whatever led to it: nothing leaves that does not sum to the pool.
fn checked(
    payouts: Vec<u128>,
    residual: Residual,
    pool: u128,
) -> Result<Allocation, CalculusError> {
    let paid = payouts
        .iter()
        .try_fold(0u128, |sum, payout| sum.checked_add(*payout));
    let sum = paid
        .zip(residual.sum())
        .and_then(|(paid, rest)| paid.checked_add(rest));
    match sum == Some(pool) {
        true => Ok(Allocation { payouts, residual }),
        false => Err(CalculusError::NotConserved),
    }
}

/// `a * b / of` and what is left, exactly; `b` is at most `of`, so the quotient is at most `a`.
fn mul_div(a: u128, b: u128, of: u128) -> (u128, u128) {
    debug_assert!(b <= of && of > 0);
    match a.checked_mul(b) {
        Some(product) => (product / of, product % of),
        None => {
            let (product, of) = (U256::from(a) * U256::from(b), U256::from(of));
            ((product / of).as_u128(), (product % of).as_u128())
        }
    }
}

/// What an account's contributions weigh: each dimension's sum times its weight in basis points.
pub fn score(sums: &[u128], weights_bp: &[u32]) -> Result<u128, CalculusError> {
    let weighed = sums
        .iter()
        .zip(weights_bp)
        .try_fold(0u128, |score, (sum, weight)| {
            score.checked_add(sum.checked_mul(u128::from(*weight))?)
        });
    weighed.ok_or(CalculusError::Overflow)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    const fn pool(pool: u128) -> Terms {
        Terms {
            pool,
            cap: None,
            floor: 0,
        }
    }

    fn shared(scores: &[u128], terms: &Terms) -> Allocation {
        let accounts: Vec<(usize, u128)> = scores.iter().copied().enumerate().collect();
        allocate(&accounts, terms).unwrap()
    }

    #[test]
    fn units_that_rounding_leaves_go_to_the_largest_fractions_and_of_equals_to_the_first() {
        for (of, scores, payouts) in [
            (100, &[1, 1, 1][..], &[34, 33, 33][..]),
            (10, &[1, 1, 1, 1], &[3, 3, 2, 2]),
            (10, &[3, 3, 1], &[4, 4, 2]),
            (7, &[5, 3, 2], &[4, 2, 1]),
            (1, &[1, 2], &[0, 1]),
            (0, &[1, 2], &[0, 0]),
            (5, &[0, 3, 0], &[0, 5, 0]),
            (3, &[1], &[3]),
        ] {
            let got = shared(scores, &pool(of));
            assert_eq!(got.payouts, payouts, "{of} by {scores:?}");
            assert_eq!(got.residual, Residual::default());
        }
    }

    #[test]
    fn what_nobody_gets_is_named() {
        let got = shared(&[0, 0], &pool(9));
        assert_eq!((got.payouts, got.residual.no_score), (vec![0, 0], 9));
        assert_eq!(shared(&[], &pool(9)).residual.no_score, 9);
        let terms = Terms {
            pool: 100,
            cap: Some(40),
            floor: 10,
        };
        let got = shared(&[80, 15, 5], &terms);
        assert_eq!(got.payouts, [40, 15, 0]);
        let wanted = Residual {
            capped: 40,
            below_floor: 5,
            no_score: 0,
        };
        assert_eq!(got.residual, wanted);
        for (floor, paid) in [(5, 5), (6, 0)] {
            let terms = Terms { floor, ..terms };
            assert_eq!(shared(&[80, 15, 5], &terms).payouts[2], paid);
        }
        for (cap, paid) in [(79, 79), (80, 80), (81, 80)] {
            let terms = Terms {
                cap: Some(cap),
                ..terms
            };
            assert_eq!(shared(&[80, 15, 5], &terms).payouts[0], paid);
        }
    }

    #[test]
    fn the_largest_numbers_are_shared_exactly_and_larger_ones_refused() {
        let half = u128::MAX / 2;
        let got = shared(&[half, half, 1], &pool(u128::MAX));
        assert_eq!(got.payouts, [half, half, 1]);
        let too_much = allocate(&[(0, u128::MAX), (1, 1)], &pool(1));
        assert_eq!(too_much, Err(CalculusError::Overflow));
        assert_eq!(score(&[u128::MAX], &[1]), Ok(u128::MAX));
        assert_eq!(score(&[u128::MAX], &[2]), Err(CalculusError::Overflow));
        assert_eq!(score(&[3, 4], &[10_000, 5]), Ok(30_020));
    }

    #[test]
    fn accounts_that_are_not_sorted_or_stand_there_twice_are_refused() {
        for accounts in [&[("a", 1), ("a", 2)], &[("b", 1), ("a", 2)]] {
            assert_eq!(
                allocate(accounts, &pool(9)),
                Err(CalculusError::Duplicate(1))
            );
        }
    }

    /// By rational numbers and a full sort, written from the rule alone.
    fn reference(scores: &[u128], terms: &Terms) -> Vec<BigUint> {
        let total: BigUint = scores.iter().map(|s| BigUint::from(*s)).sum();
        let exact = |s: &u128| BigUint::from(terms.pool) * BigUint::from(*s);
        let mut payouts: Vec<BigUint> = scores.iter().map(|s| exact(s) / &total).collect();
        let mut by_fraction: Vec<usize> = (0..scores.len()).collect();
        by_fraction.sort_by(|a, b| {
            let fraction = |at: &usize| exact(&scores[*at]) % &total;
            fraction(b).cmp(&fraction(a)).then(a.cmp(b))
        });
        let paid: BigUint = payouts.iter().sum();
        let mut left = BigUint::from(terms.pool) - paid;
        for at in by_fraction {
            if left == BigUint::ZERO {
                break;
            }
            payouts[at] += 1u32;
            left -= 1u32;
        }
        let (cap, floor) = (
            terms.cap.unwrap_or(u128::MAX).into(),
            BigUint::from(terms.floor),
        );
        let bounded = payouts
            .into_iter()
            .map(|payout| payout.min(BigUint::clone(&cap)));
        bounded
            .map(|payout| {
                if payout < floor {
                    BigUint::ZERO
                } else {
                    payout
                }
            })
            .collect()
    }

    fn scores() -> impl Strategy<Value = Vec<u128>> {
        let some = prop_oneof![
            0u128..10,
            0u128..1_000_000,
            (0u32..120).prop_map(|bits| 1u128 << bits),
            0u128..(u128::MAX >> 8),
        ];
        proptest::collection::vec(some, 1..40)
    }

    proptest! {
        #[test]
        fn payouts_are_those_of_the_rational_reference_and_sum_to_the_pool(
            scores in scores(),
            pool in prop_oneof![0u128..1_000, 0u128..u128::MAX],
            cap in proptest::option::of(0u128..u128::MAX),
            floor in prop_oneof![Just(0u128), 0u128..1_000],
        ) {
            prop_assume!(scores.iter().any(|score| *score > 0));
            let terms = Terms { pool, cap, floor };
            let got = shared(&scores, &terms);
            let plain: Vec<BigUint> = got.payouts.iter().map(|p| BigUint::from(*p)).collect();
            prop_assert_eq!(plain, reference(&scores, &terms));
            let paid: u128 = got.payouts.iter().sum();
            prop_assert_eq!(paid + got.residual.sum().unwrap(), pool);
        }

        #[test]
        fn who_is_who_does_not_depend_on_the_order_of_arrival(scores in scores(), pool in 0u128..u128::MAX, turn in 0usize..40) {
            let named: Vec<(String, u128)> = scores.iter().enumerate().map(|(at, s)| (format!("acc-{:03}", at * 7919 % 997), *s)).collect();
            let terms = Terms { pool, cap: None, floor: 0 };
            let by_name = |mut accounts: Vec<(String, u128)>| {
                accounts.sort();
                let payouts = allocate(&accounts, &terms).unwrap().payouts;
                let mut paid: Vec<(String, u128)> = accounts.into_iter().map(|(name, _)| name).zip(payouts).collect();
                paid.sort();
                paid
            };
            let mut turned = named.clone();
            turned.rotate_left(turn % named.len());
            turned.reverse();
            prop_assert_eq!(by_name(named), by_name(turned));
        }
    }
}
