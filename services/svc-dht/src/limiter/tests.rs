//! The limiter against an account that remembers everything, and its shares.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    requests_per_s: 10,
    bytes_per_s: 1000,
    in_flight: 5,
    peer_share_percent: 100,
    peers: 8,
};

#[allow(
    clippy::disallowed_methods,
    reason = "a point to count from; no time passes"
)]
fn start() -> Instant {
    Instant::now()
}

fn peer(n: u8) -> Id {
    Id([n; 32])
}

/// Takes and gives back at once.
fn pass(limiter: &mut Limiter, now: Instant, peer: &Id, bytes: u32) -> Result<(), Exhausted> {
    limiter
        .try_take(now, peer, bytes)
        .map(|permit| limiter.give_back(permit))
}

/// No window that ends here may hold more than a second's worth and what the rate adds.
fn allowed(passed: &[(u128, u128)], now: u128, cost: u128, rate: u128) -> bool {
    (0..=passed.len()).all(|skip| {
        let used: u128 = passed[skip..].iter().map(|(_, cost)| cost).sum();
        let since = passed.get(skip).map_or(now, |(at, _)| *at);
        (used + cost) * 1_000_000_000 <= rate * 1_000_000_000 + (now - since) * rate
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: DHT-2.8
    #[test]
    fn exactly_what_the_rates_allow_passes_however_the_clock_moves(
        requests in 1_u32..30,
        bytes in 1_u32..2000,
        // Fine and coarse steps, long jumps, and readings from before.
        steps in prop::collection::vec(
            (prop_oneof![0_i64..2_000_000, 0_i64..300_000_000, Just(1_000_000_000), Just(3_600_000_000_000), -500_000_000_i64..0], 0_u32..800),
            1..100,
        ),
    ) {
        let limits = Limits { requests_per_s: requests, bytes_per_s: bytes, ..LIMITS };
        let start = start();
        let mut limiter = Limiter::new(limits, start);
        let (mut clock, mut latest) = (0_u128, 0_u128);
        let (mut asked, mut carried) = (Vec::new(), Vec::new());
        for (step, size) in steps {
            clock = clock.saturating_add_signed(i128::from(step));
            latest = latest.max(clock);
            let now = start + Duration::from_nanos(clock as u64);
            let cost = u128::from(size.min(bytes));
            let by_requests = allowed(&asked, latest, 1, u128::from(requests));
            let by_bytes = allowed(&carried, latest, cost, u128::from(bytes));
            let mut before = limiter.clone();
            match pass(&mut limiter, now, &peer(1), size) {
                Ok(()) => {
                    prop_assert!(by_requests && by_bytes);
                    asked.push((latest, 1));
                    carried.push((latest, cost));
                }
                Err(refused) => {
                    prop_assert!(!(by_requests && by_bytes));
                    let kind = if by_requests { Kind::Bytes } else { Kind::Requests };
                    prop_assert_eq!(refused.kind, kind);
                    // The advice is exact, and asking in vain took nothing.
                    let there = start + Duration::from_nanos(latest as u64) + refused.retry_after;
                    let early = pass(&mut before.clone(), there - Duration::from_nanos(1), &peer(1), size);
                    prop_assert!(early.is_err());
                    let on_time = pass(&mut before, there, &peer(1), size);
                    prop_assert!(on_time.is_ok() || kind == Kind::Requests);
                }
            }
        }
    }

    // proves: DHT-3.5
    #[test]
    fn no_more_are_in_flight_than_may_be_and_each_place_comes_back(
        steps in prop::collection::vec((0_u8..12, any::<bool>()), 0..120),
    ) {
        let limits = Limits { requests_per_s: 1_000_000, bytes_per_s: 1_000_000, peer_share_percent: 40, ..LIMITS };
        let now = start();
        let mut limiter = Limiter::new(limits, now);
        let mut held: Vec<(u8, Permit)> = Vec::new();
        for (n, enter) in steps {
            if enter {
                let of_peer = held.iter().filter(|(at, _)| *at == n).count();
                match limiter.try_take(now, &peer(n), 1) {
                    Ok(permit) => {
                        prop_assert!(held.len() < 5 && of_peer < 2);
                        held.push((n, permit));
                    }
                    Err(refused) => {
                        let all = refused.kind == Kind::InFlight && held.len() == 5;
                        // Who is not told apart shares with others.
                        let own = refused.kind == Kind::PeerInFlight && (of_peer == 2 || limiter.peers() == 8);
                        prop_assert!(all || own, "{:?}", refused);
                    }
                }
            } else if !held.is_empty() {
                let (_, permit) = held.swap_remove(usize::from(n) % held.len());
                limiter.give_back(permit);
            }
            prop_assert_eq!(limiter.in_flight() as usize, held.len());
            prop_assert!(limiter.peers() <= 8);
        }
    }
}

#[test]
fn one_peer_cannot_take_what_is_meant_for_all() {
    let limits = Limits {
        peer_share_percent: 30,
        ..LIMITS
    };
    let now = start();
    let mut limiter = Limiter::new(limits, now);
    let greedy = (0..20).map(|_| pass(&mut limiter, now, &peer(1), 1));
    let results: Vec<_> = greedy.collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 3);
    assert_eq!(results[19].unwrap_err().kind, Kind::PeerRequests);
    // Its refused requests cost the others nothing.
    let others = (2..9).map(|n| pass(&mut limiter, now, &peer(n), 1));
    assert_eq!(others.filter(Result::is_ok).count(), 7);
    assert_eq!(
        pass(&mut limiter, now, &peer(9), 1).unwrap_err().kind,
        Kind::Requests
    );

    let mut limiter = Limiter::new(limits, now);
    assert_eq!(pass(&mut limiter, now, &peer(1), 299), Ok(()));
    assert_eq!(
        pass(&mut limiter, now, &peer(1), 2).unwrap_err().kind,
        Kind::PeerBytes
    );
}

#[test]
fn an_answers_bytes_are_owed_up_to_a_seconds_worth() {
    let now = start();
    let mut limiter = Limiter::new(LIMITS, now);
    let permit = limiter.try_take(now, &peer(1), 0).unwrap();
    limiter.charge(now, &permit, u32::MAX);
    limiter.give_back(permit);
    let refused = pass(&mut limiter, now, &peer(1), 1).unwrap_err();
    assert_eq!(refused.kind, Kind::Bytes);
    assert_eq!(refused.retry_after, Duration::from_micros(1_001_000));
    assert!(pass(&mut limiter, now + refused.retry_after, &peer(1), 1).is_ok());
}

#[test]
fn a_peer_that_rests_takes_no_memory_and_a_crowd_shares() {
    let now = start();
    let mut limiter = Limiter::new(LIMITS, now);
    for n in 0..8 {
        pass(&mut limiter, now, &peer(n), 1).unwrap();
    }
    // The ninth and tenth have one share between them, and cannot push the others out.
    pass(&mut limiter, now, &peer(8), 1).unwrap();
    pass(&mut limiter, now, &peer(9), 1).unwrap();
    assert_eq!(limiter.peers(), 8);
    let later = now + Duration::from_secs(2);
    pass(&mut limiter, later, &peer(10), 1).unwrap();
    assert_eq!(limiter.peers(), 1);
}

// proves: DHT-3.5
#[test]
fn a_dropped_place_is_free_again() {
    let now = start();
    let limiter = SharedLimiter::new(LIMITS, now);
    let held: Vec<_> = (0..5)
        .map(|n| limiter.try_enter(now, &peer(n), 1).unwrap())
        .collect();
    held[0].charge(now, 10);
    let refused = limiter.try_enter(now, &peer(7), 1).unwrap_err();
    assert_eq!(refused.kind, Kind::InFlight);
    drop(held);
    assert_eq!(limiter.in_flight(), 0);
    assert!(limiter.try_enter(now, &peer(7), 1).is_ok());
}
