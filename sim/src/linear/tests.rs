//! Histories that some order explains and histories that none does, and the same verdict as stateright's own
//! tester on many small ones.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

use super::*;

/// `1+R` client 1 asks to rotate, `1+r` to read; `1-3` it hears 3; `1?` it never will; `1!` it was refused.
fn heads(text: &str) -> History<VersionHead> {
    let mut history = History::default();
    let mut under_way: BTreeMap<u64, (OpId, HeadOp)> = BTreeMap::new();
    for word in text.split_whitespace() {
        let client: u64 = word[..1].parse().expect("a client");
        match (&word[1..2], &word[2..]) {
            ("+", op) => {
                let op = match op {
                    "R" => HeadOp::Rotate,
                    _ => HeadOp::Read,
                };
                under_way.insert(client, (history.invoke(client, op), op));
            }
            ("-", version) => {
                let (id, op) = under_way.remove(&client).expect("it asked");
                let version = version.parse().expect("a version");
                let ret = match op {
                    HeadOp::Rotate => HeadRet::Rotated(version),
                    HeadOp::Read => HeadRet::Head(version),
                };
                history.returned(id, ret);
            }
            ("?", _) => history.unknown(under_way.remove(&client).expect("it asked").0),
            _ => history.refused(under_way.remove(&client).expect("it asked").0),
        }
    }
    history
}

#[test]
fn an_order_is_found_where_there_is_one() {
    for text in [
        "",
        "1+R 1-1 1+r 1-1",
        // Two at once, answered either way round.
        "1+R 2+R 1-2 2-1",
        // A read beside a rotation may see it or not.
        "1+R 2+r 2-0 1-1",
        "1+R 2+r 2-1 1-1",
        // An unknown rotation happened, …
        "1+R 1? 2+r 2-1",
        // … or never did, …
        "1+R 1? 2+r 2-0 2+R 2-1",
        // … or only much later.
        "1+R 1? 2+r 2-0 2+r 2-0 3+r 3-1",
        "1+R 1? 2+R 2-1 2+r 2-2",
        "1+R 1? 2+R 2? 3+r 3-1 3+r 3-2",
        // A refused one changed nothing.
        "1+R 1! 2+r 2-0",
        // Still under way at the end: like unknown.
        "1+R 2+r 2-1",
    ] {
        assert_eq!(heads(text).check(VersionHead(0)), Ok(()), "{text}");
    }
}

#[test]
fn a_history_that_no_order_explains_is_told_by_the_operation_that_fits_nowhere() {
    for (text, at) in [
        // A stale read.
        ("1+R 1-1 2+r 2-0", "Read by client 2, answered Head(0)"),
        // A version given out twice.
        ("1+R 2+R 1-1 2-1", "answered Rotated(1)"),
        ("1+R 1-1 2+R 2-1", "Rotate by client 2, answered Rotated(1)"),
        // A read that goes back.
        ("1+R 2+r 2-1 2+r 2-0 1-1", "answered Head(0)"),
        // A version nobody made.
        ("1+r 1-1", "Head(1)"),
        ("1+R 1-2", "Rotated(2)"),
        // One unknown rotation explains one step, not two.
        ("1+R 1? 2+r 2-2", "Head(2)"),
        // It may come late, but once it was seen it stays.
        ("1+R 1? 2+r 2-1 2+r 2-0", "Head(0)"),
        // An unknown one cannot have happened before it was asked for.
        ("2+r 2-1 1+R 1?", "Head(1)"),
        // A refused one did not happen.
        ("1+R 1! 2+r 2-1", "Head(1)"),
    ] {
        match heads(text).check(VersionHead(0)) {
            Err(Fault::NotLinearizable { operation, known }) => {
                assert!(operation.contains(at), "{text}: {operation}");
                assert!(!known.is_empty());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn keys_are_judged_one_by_one_and_the_bad_one_is_named() {
    let mut histories: Histories<&str, VersionHead> = Histories::default();
    for key in ["good", "bad"] {
        let id = histories.of(key).invoke(1, HeadOp::Rotate);
        histories.of(key).returned(id, HeadRet::Rotated(1));
    }
    assert_eq!(histories.check(|_| VersionHead(0)), Ok(()));
    let id = histories.of("bad").invoke(1, HeadOp::Read);
    histories.of("bad").returned(id, HeadRet::Head(0));
    let why = histories
        .check(|_| VersionHead(0))
        .expect_err("a stale read");
    assert!(why.starts_with("\"bad\": no order explains Read"), "{why}");
}

/// Many clients, ever more unknown rotations: what a long run with a bad network brings.
fn long(clients: u64, rounds: u64, spoiled: bool) -> History<VersionHead> {
    let mut history = History::default();
    let mut version = 0;
    for round in 0..rounds {
        let asked: Vec<_> = (0..clients)
            .map(|client| history.invoke(client, HeadOp::Rotate))
            .collect();
        for (client, id) in asked.into_iter().enumerate() {
            if (round + client as u64).is_multiple_of(7) {
                history.unknown(id);
                // Every second one took effect all the same.
                version += round % 2;
            } else {
                version += 1;
                history.returned(id, HeadRet::Rotated(version));
            }
        }
    }
    let id = history.invoke(0, HeadOp::Read);
    history.returned(id, HeadRet::Head(if spoiled { 0 } else { version }));
    history
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it bounds its own running time")]
fn a_long_history_with_many_unknowns_is_judged_quickly() {
    let begin = Instant::now();
    assert_eq!(long(8, 300, false).check(VersionHead(0)), Ok(()));
    let spoiled = long(8, 300, true).check(VersionHead(0));
    assert!(
        matches!(spoiled, Err(Fault::NotLinearizable { .. })),
        "{spoiled:?}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_search_that_would_take_too_long_says_that_it_gave_up() {
    let history = long(8, 40, false);
    let verdict = Search::new(&history, 10).run(VersionHead(0));
    assert_eq!(verdict, Err(Fault::Undecided { explored: 11 }));
}

/// What happens in a small random history: who acts, and what is asked or heard.
fn acts() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0..3u8, 0..3u8, 0..3u8), 0..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_is_that_of_stateright(acts in acts()) {
        let mut ours: History<Register<u8>> = History::default();
        let mut theirs = LinearizabilityTester::new(Register(0u8));
        let mut under_way: BTreeMap<u8, (OpId, usize, RegisterOp<u8>)> = BTreeMap::new();
        for (thread, (client, what, value)) in acts.into_iter().enumerate() {
            match under_way.remove(&client) {
                // Asked and not yet answered: an answer, or none for ever.
                Some((id, _, _)) if what == 0 => ours.unknown(id),
                Some((id, asked, op)) => {
                    let ret = match op {
                        RegisterOp::Write(_) => RegisterRet::WriteOk,
                        RegisterOp::Read => RegisterRet::ReadOk(value),
                    };
                    ours.returned(id, ret.clone());
                    theirs.on_return(asked, ret).expect("it is under way");
                }
                None => {
                    let op = if what == 0 { RegisterOp::Read } else { RegisterOp::Write(value) };
                    // To stateright each operation is a thread of its own: only real time orders them.
                    theirs.on_invoke(thread, op.clone()).expect("a new thread");
                    let id = ours.invoke(u64::from(client), op.clone());
                    under_way.insert(client, (id, thread, op));
                }
            }
        }
        prop_assert_eq!(ours.check(Register(0)).is_ok(), theirs.is_consistent());
    }
}
