//! What the machine does in single situations, and that no course of events breaks its laws.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use proptest::prelude::*;
use rand_chacha::rand_core::SeedableRng;
use ron_core::Rng;

use super::*;
use crate::{
    contact::Contact,
    record::{Record, RecordKind},
};

const ME: u8 = 255;
const NOBODY: [u8; 0] = [];

fn id(n: u8) -> Id {
    let mut id = [0; 32];
    id[0] = n;
    Id(id)
}

/// Those below a hundred share a subnet, and so do those of each hundred above.
fn contact(n: u8) -> Contact {
    let addr = SocketAddr::from(([10, 0, n / 100, n], 1)).into();
    Contact { id: id(n), addr }
}

fn value(seq: u64, publisher: u8) -> Record {
    Record {
        kind: RecordKind::Value,
        key: id(0),
        publisher: [publisher; 32],
        seq,
        created_ms: 0,
        ttl_ms: 0,
        body: Vec::new(),
        signature: [0; 64],
    }
}

/// A lookup of id 0, so that a peer's number is its distance, with a clock and a budget.
struct Table {
    lookup: Lookup,
    zero: Instant,
    now: Instant,
    hedges: HedgeBudget,
    rng: Rng,
    /// The wait that the last poll ended with; none if it is done.
    waits: Option<Instant>,
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn small() -> LookupRules {
    LookupRules {
        k: 3,
        alpha: 2,
        ..LookupRules::default()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant can be had from nowhere else; its value plays no part"
)]
fn some_now() -> Instant {
    Instant::now()
}

impl Table {
    fn new(rules: LookupRules, goal: Goal, seeds: &[u8]) -> Table {
        let seeds = seeds.iter().map(|n| Seed {
            contact: contact(*n),
            rtt_ms: None,
            suspect: *n >= 200,
        });
        let zero = some_now();
        Table {
            lookup: Lookup::new(
                Arc::new(rules),
                goal,
                id(0),
                id(ME),
                seeds,
                zero,
                zero + ms(5000),
            ),
            zero,
            now: zero,
            hedges: HedgeBudget::new(10, 5),
            rng: Rng::from_seed([1; 32]),
            waits: None,
        }
    }

    /// Polls until it waits or is done: `(whom it asks, as a hedge?)`.
    fn poll(&mut self) -> Vec<(u8, bool)> {
        let mut asked = Vec::new();
        loop {
            match self.lookup.poll(self.now, &self.hedges, |_| None) {
                Next::Probe(probe) => {
                    assert_eq!(usize::from(probe.id.0), self.lookup.steps.len() - 1);
                    asked.push((probe.to.id.0[0], probe.hedge));
                }
                Next::Wait(until) => {
                    assert!(until > self.now, "it would spin");
                    self.waits = Some(until);
                    return asked;
                }
                Next::Done => {
                    self.waits = None;
                    return asked;
                }
            }
        }
    }

    fn plain(&mut self) -> Vec<u8> {
        self.poll().into_iter().map(|(n, _)| n).collect()
    }

    /// The latest probe to this peer.
    fn probe(&self, n: u8) -> ProbeId {
        let at = self.lookup.asked.iter().rposition(|asked| *asked == id(n));
        ProbeId(at.expect("it was asked") as u16)
    }

    fn answer(&mut self, n: u8, names: &[u8], records: Vec<Record>) {
        let closer = names.iter().map(|n| contact(*n)).collect();
        self.lookup
            .handle_answer(self.probe(n), Answer { closer, records }, self.now);
    }

    fn fail(&mut self, n: u8, failure: Failure) {
        self.lookup
            .handle_failure(self.probe(n), failure, self.now, &mut self.rng);
    }

    fn at(&mut self, offset_ms: u64) -> &mut Table {
        self.now = self.zero + ms(offset_ms);
        self
    }

    fn finish(self) -> (Finished, Vec<u8>) {
        let finished = self.lookup.finish(self.now);
        let closest = finished.closest.iter().map(|c| c.id.0[0]).collect();
        (finished, closest)
    }
}

// proves: DHT-2.3
#[test]
fn it_asks_alpha_of_the_closest_then_closes_in_and_ends_with_the_k_closest() {
    let mut table = Table::new(small(), Goal::Closest, &[40, 30, 20, 10]);
    assert_eq!(table.plain(), [10, 20]);
    table.answer(10, &[2, 5, ME], vec![]);
    assert_eq!(table.plain(), [2]);
    table.answer(20, &[10, 5], vec![]);
    assert_eq!(table.plain(), [5]);
    table.answer(2, &[5, 10], vec![]);
    table.answer(5, &[2, 10], vec![]);
    assert_eq!(table.plain(), NOBODY);
    assert_eq!(table.waits, None);
    let (finished, closest) = table.finish();
    assert_eq!(closest, [2, 5, 10]);
    assert_eq!(
        (finished.depth, finished.rounds, finished.complete),
        (1, 2, true)
    );
    assert_eq!(finished.outcome, Ok(Outcome::Closest));
}

// proves: DHT-5.2, DHT-9.7
#[test]
fn an_overdue_probe_is_hedged_and_its_late_answer_still_counts() {
    let mut table = Table::new(small(), Goal::Closest, &[10, 20, 30, 40, 50]);
    assert_eq!(table.plain(), [10, 20]);
    assert_eq!(table.waits, Some(table.zero + ms(250)));
    assert_eq!(table.at(250).poll(), [(30, true), (40, true), (50, false)]);
    table.at(300).answer(10, &[], vec![]);
    table.answer(30, &[], vec![]);
    assert_eq!(table.poll(), [], "40 and 50 are under way");
    table.answer(40, &[], vec![]);
    assert_eq!(table.plain(), NOBODY);
    let waits = table
        .waits
        .expect("20 is awaited as long as the slowest answer took, and a quarter more");
    assert_eq!(waits, table.zero + ms(375));
    table.at(375).poll();
    assert_eq!(table.waits, None);
    let (finished, closest) = table.finish();
    assert_eq!(closest, [10, 30, 40]);
    assert_eq!(
        (
            finished.counts.late,
            finished.counts.hedges,
            finished.counts.hedges_canceled
        ),
        (1, 2, 0)
    );
    let losers: Vec<_> = finished
        .losers
        .iter()
        .map(|l| (l.to.id.0[0], l.overdue))
        .collect();
    assert_eq!(losers, [(20, true), (50, false)]);
}

// proves: DHT-13.3
#[test]
fn beta_and_the_budget_bound_hedges_but_never_the_replacement_of_silent_peers() {
    for (beta, burst, hedges) in [(2, 5, 2), (1, 5, 1), (2, 1, 1), (0, 5, 0)] {
        let mut table = Table::new(
            LookupRules { beta, ..small() },
            Goal::Closest,
            &[1, 2, 3, 4, 5, 6, 7, 8],
        );
        table.hedges = HedgeBudget::new(0, burst);
        table.poll();
        let asked = table.at(250).poll();
        assert_eq!(asked.iter().filter(|(_, hedge)| *hedge).count(), hedges);
        assert_eq!(
            asked.iter().filter(|(_, hedge)| !*hedge).count(),
            2.min(3 - hedges),
            "alpha of plain ones, and k in all"
        );
    }
}

// proves: DHT-5.2
#[test]
fn what_was_observed_only_shortens_the_delay() {
    for (observed, overdue_at) in [(None, 250), (Some(ms(80)), 80), (Some(ms(900)), 250)] {
        let mut table = Table::new(small(), Goal::Closest, &[1]);
        table.lookup.poll(table.now, &table.hedges, |_| observed);
        let next = table.lookup.poll(table.now, &table.hedges, |_| observed);
        assert_eq!(next, Next::Wait(table.zero + ms(overdue_at)));
    }
}

// proves: DHT-5.4
#[test]
fn a_reset_is_tried_three_times_with_growing_jittered_waits_and_a_timeout_never_again() {
    let mut table = Table::new(small(), Goal::Closest, &[1]);
    for (tries, low, high) in [(1, 50, 100), (2, 100, 200)] {
        assert_eq!(table.plain(), [1], "try {tries}");
        table.fail(1, Failure::Reset);
        assert_eq!(table.plain(), NOBODY);
        let wait = table.waits.unwrap() - table.now;
        assert!(
            wait >= ms(low) && wait <= ms(high),
            "{wait:?} after try {tries}"
        );
        table.now += wait;
    }
    assert_eq!(table.plain(), [1]);
    table.fail(1, Failure::Reset);
    assert_eq!(table.plain(), NOBODY);
    assert_eq!(table.waits, None);
    let (finished, _) = table.finish();
    assert_eq!((finished.counts.requests, finished.counts.retries), (3, 2));
    assert_eq!(finished.outcome, Err(LookupError::Unreachable));

    let failures = [
        Failure::Timeout,
        Failure::Unreachable,
        Failure::Misbehaved,
        Failure::Refused { retry_after: None },
    ];
    for failure in failures {
        let mut table = Table::new(small(), Goal::Closest, &[1]);
        table.poll();
        table.fail(1, failure);
        assert_eq!(table.plain(), NOBODY, "{failure:?}");
        assert_eq!(table.waits, None, "{failure:?}");
    }
}

// proves: DHT-5.2
#[test]
fn a_quorum_of_values_ends_it_the_newest_wins_and_losers_are_cancelled() {
    let mut table = Table::new(
        LookupRules {
            alpha: 3,
            ..small()
        },
        Goal::Value { quorum: 2 },
        &[1, 2, 3, 4],
    );
    table.poll();
    table.answer(1, &[], vec![value(7, 1)]);
    table.poll();
    assert!(table.waits.is_some(), "one is no quorum");
    table.answer(3, &[], vec![value(5, 1)]);
    table.poll();
    assert_eq!(table.waits, None);
    let (finished, _) = table.finish();
    let Ok(Outcome::Value { record, holders }) = finished.outcome else {
        panic!("no value")
    };
    assert_eq!((record.seq, holders), (7, 2));
    assert_eq!(
        finished
            .losers
            .iter()
            .map(|l| l.to.id.0[0])
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn providers_are_gathered_once_each_until_enough_are_known() {
    let mut table = Table::new(small(), Goal::Providers { wanted: 2 }, &[1, 2]);
    table.poll();
    table.answer(1, &[], vec![value(1, 1), value(2, 1)]);
    table.poll();
    assert!(table.waits.is_some());
    table.answer(2, &[], vec![value(1, 2)]);
    table.poll();
    let (finished, _) = table.finish();
    let Ok(Outcome::Providers(records)) = finished.outcome else {
        panic!("no providers")
    };
    assert_eq!(
        records
            .iter()
            .map(|r| (r.publisher[0], r.seq))
            .collect::<Vec<_>>(),
        [(1, 2), (2, 1)]
    );
}

// proves: DHT-5.3
#[test]
fn referrals_beyond_the_hop_budget_are_not_followed_and_a_lookup_within_it_is_no_error() {
    for (goal, outcome) in [
        (Goal::Closest, Ok(Outcome::Closest)),
        (Goal::Value { quorum: 1 }, Err(LookupError::HopExceeded)),
    ] {
        let mut table = Table::new(
            LookupRules {
                hop_budget: 2,
                ..small()
            },
            goal,
            &[90],
        );
        for (asked, named) in [(90, 80), (80, 70), (70, 60)] {
            assert_eq!(table.plain(), [asked]);
            table.answer(asked, &[named], vec![]);
        }
        assert_eq!(table.plain(), NOBODY, "60 is three referrals away");
        let (finished, closest) = table.finish();
        assert_eq!(
            (finished.outcome, finished.complete, finished.depth),
            (outcome, false, 2)
        );
        assert_eq!(closest, [70, 80, 90]);
    }
}

#[test]
fn every_end_has_its_outcome() {
    let (finished, _) = {
        let mut table = Table::new(small(), Goal::Closest, &[]);
        assert_eq!(table.plain(), NOBODY);
        table.finish()
    };
    assert_eq!(finished.outcome, Err(LookupError::NoPeers));

    let mut table = Table::new(
        LookupRules {
            rpc_timeout: ms(9000),
            ..small()
        },
        Goal::Closest,
        &[1],
    );
    table.poll();
    table.at(4999).poll();
    assert!(table.waits.is_some(), "somebody slow is better than nobody");
    table.at(5000).poll();
    assert_eq!(table.waits, None);
    assert_eq!(table.finish().0.outcome, Err(LookupError::Deadline));

    let mut table = Table::new(small(), Goal::Value { quorum: 1 }, &[1]);
    table.poll();
    table.answer(1, &[], vec![]);
    table.poll();
    assert_eq!(table.finish().0.outcome, Ok(Outcome::NotFound));
}

#[test]
fn suspects_are_asked_when_nobody_else_is_left() {
    let mut table = Table::new(small(), Goal::Closest, &[200, 201, 240, 250]);
    table.lookup.candidates.insert(contact(245), 0, false);
    assert_eq!(table.plain(), [245]);
    table.answer(245, &[], vec![]);
    assert_eq!(table.plain(), [200]);
}

#[test]
fn a_small_network_with_a_silent_peer_is_searched_without_waiting_for_its_timeout() {
    let mut table = Table::new(small(), Goal::Closest, &[1, 2]);
    table.poll();
    table.at(20).answer(1, &[2], vec![]);
    table.at(499).poll();
    assert_eq!(table.waits, Some(table.zero + ms(500)));
    table.at(500).poll();
    assert_eq!(table.waits, None);
    assert_eq!(table.finish().1, [1]);
}

#[test]
fn where_less_than_half_answer_in_time_the_others_are_awaited_until_they_time_out() {
    for (answer, ends_ms) in [(2, 1510), (3, 1510), (4, 510), (7, 510)] {
        let rules = LookupRules { k: 8, ..small() };
        let mut table = Table::new(rules, Goal::Closest, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(table.plain(), [1, 2]);
        table.at(10).answer(1, &[], vec![]);
        table.answer(2, &[], vec![]);
        assert_eq!(table.plain(), [3, 4, 5, 6, 7, 8]);
        for n in 3..=answer {
            table.at(400).answer(n, &[], vec![]);
        }
        table.at(ends_ms - 1).poll();
        assert!(table.waits.is_some(), "too early with {answer} of 8");
        table.at(ends_ms).poll();
        assert_eq!(table.waits, None, "too late with {answer} of 8");
        let closest: Vec<u8> = (1..=answer).collect();
        assert_eq!(table.finish().1, closest);
    }
}

#[test]
fn many_ids_in_one_network_are_one_holder_of_a_value() {
    for (diverse, over) in [(false, true), (true, false)] {
        let rules = LookupRules {
            diverse,
            alpha: 3,
            ..small()
        };
        let mut table = Table::new(rules, Goal::Value { quorum: 2 }, &[1, 2, 3]);
        table.poll();
        table.answer(1, &[], vec![value(5, 1)]);
        table.answer(2, &[], vec![value(5, 1)]);
        table.poll();
        assert_eq!(table.waits.is_none(), over);
    }
}

#[test]
fn of_one_network_only_so_many_count_among_the_closest_and_others_are_asked_in_their_place() {
    let rules = LookupRules {
        per_subnet: 2,
        alpha: 3,
        ..small()
    };
    let mut table = Table::new(rules, Goal::Closest, &[1, 2, 3, 4, 101]);
    assert_eq!(table.plain(), [1, 2, 3]);
    for n in [1, 2, 3] {
        table.answer(n, &[], vec![]);
    }
    assert_eq!(table.plain(), [101], "4 could not count either");
    table.answer(101, &[], vec![]);
    table.poll();
    assert_eq!(table.waits, None);
    assert_eq!(table.finish().1, [1, 2, 101]);
}

#[test]
fn the_story_tells_each_probe_with_its_times_and_its_end() {
    let mut table = Table::new(small(), Goal::Closest, &[1, 2, 3]);
    table.poll();
    table.at(10).answer(1, &[], vec![]);
    table.at(30).poll();
    table.fail(2, Failure::Unreachable);
    table.at(40).poll();
    let story = table.finish().0.explanation;
    let steps: Vec<_> = story
        .steps
        .iter()
        .map(|s| (s.peer >> 56, s.start_ms, s.end_ms, s.end))
        .collect();
    let told = [
        (1, 0, 10, End::Answered),
        (2, 0, 30, End::Unreachable),
        (3, 30, 40, End::Canceled),
    ];
    assert_eq!((steps.as_slice(), story.took_ms), (told.as_slice(), 40));
}

#[derive(Clone, Debug)]
enum Step_ {
    Answer { which: usize, names: Vec<u8> },
    Fail { which: usize, kind: u8 },
    Pass { ms: u64 },
}

fn any_step() -> impl Strategy<Value = Step_> {
    let which = 0..8usize;
    prop_oneof![
        3 => (which.clone(), prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(which, names)| Step_::Answer { which, names }),
        1 => (which, 0..4u8).prop_map(|(which, kind)| Step_::Fail { which, kind }),
        2 => (0..400u64).prop_map(|ms| Step_::Pass { ms }),
    ]
}

proptest! {
    #[test]
    fn no_course_of_events_breaks_its_laws(seeds in prop::collection::vec(any::<u8>(), 0..8), steps in prop::collection::vec(any_step(), 0..60)) {
        let mut table = Table::new(small(), Goal::Closest, &seeds);
        let (mut asked, mut open, mut answered) = (BTreeMap::<u8, u8>::new(), Vec::new(), BTreeSet::new());
        for step in steps {
            for (n, _) in table.poll() {
                prop_assert!(n != ME && !open.contains(&n) && !answered.contains(&n));
                *asked.entry(n).or_default() += 1;
                prop_assert!(asked[&n] <= 3);
                open.push(n);
            }
            let hedges = table.lookup.candidates.iter().filter_map(Candidate::asked).filter(|a| a.hedge).count();
            prop_assert!(hedges <= 2);
            if table.waits.is_none() {
                break;
            }
            match step {
                Step_::Answer { which, names } if which < open.len() => {
                    let n = open.remove(which);
                    answered.insert(n);
                    table.answer(n, &names, vec![]);
                }
                Step_::Fail { which, kind } if which < open.len() => {
                    let n = open.remove(which);
                    let kinds = [Failure::Timeout, Failure::Reset, Failure::Unreachable, Failure::Refused { retry_after: Some(ms(20)) }];
                    table.fail(n, kinds[usize::from(kind)]);
                }
                Step_::Pass { ms: n } => {
                    table.now += ms(n);
                    // What timed out is closed for the machine; an answer may still come and counts.
                }
                _ => {}
            }
        }
        table.at(5000).poll();
        prop_assert_eq!(table.waits, None, "it ends by its deadline");
        let (_, closest) = table.finish();
        let expected: Vec<u8> = answered.iter().copied().take(3).collect();
        prop_assert_eq!(closest, expected);
    }
}
