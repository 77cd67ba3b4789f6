//! The bucket by hand-made cases, and its laws under any sequence of updates.

use std::{collections::BTreeMap, net::SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::routing::Diversity;

const ME: Id = Id([0; 32]);

fn id(n: u8) -> Id {
    let mut id = [0; 32];
    (id[0], id[31]) = (0x80, n);
    Id(id)
}

/// Each in a network of its own.
fn peer(n: u8) -> Contact {
    at(n, [10, 0, n, 1])
}

fn at(n: u8, ip: [u8; 4]) -> Contact {
    let addr = SocketAddr::from((ip, 4000)).into();
    Contact { id: id(n), addr }
}

fn rules() -> Rules {
    Rules {
        k: 3,
        replacements: 2,
        fresh_s: 30,
        ..Rules::default()
    }
}

fn home(rules: Rules) -> Home {
    Home { me: ME, rules }
}

fn verified(contact: Contact) -> Update {
    Update::Verified {
        contact,
        rtt_ms: None,
    }
}

fn seen(n: u8) -> Update {
    Update::Seen {
        id: id(n),
        rtt_ms: None,
    }
}

fn failed(n: u8) -> Update {
    Update::Failed { id: id(n) }
}

fn told(bucket: &mut Bucket, update: Update, now_s: Seconds) -> Vec<BucketAction> {
    bucket.handle(update, now_s, &home(rules()), |_| 0)
}

/// With these peers, seen in this order at second 0.
fn bucket_of(peers: &[u8]) -> Bucket {
    let mut bucket = Bucket::new(255);
    for n in peers {
        let actions = told(&mut bucket, verified(peer(*n)), 0);
        assert_eq!(actions, [BucketAction::Added(peer(*n))]);
    }
    bucket
}

fn held(bucket: &Bucket) -> Vec<u8> {
    bucket
        .entries()
        .iter()
        .map(|e| e.contact.id.0[31])
        .collect()
}

fn waiting(bucket: &Bucket) -> Vec<u8> {
    bucket
        .waiting()
        .map(|(contact, _)| contact.id.0[31])
        .collect()
}

#[test]
fn a_newcomer_waits_while_the_least_recently_seen_is_asked() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    told(&mut bucket, seen(1), 10);
    let actions = told(&mut bucket, verified(peer(4)), 60);
    assert_eq!(actions, [BucketAction::Ping(peer(2))]);
    assert_eq!(held(&bucket), [2, 3, 1]);

    // It lives: it stays, and is now the one seen last.
    assert_eq!(told(&mut bucket, seen(2), 61), []);
    assert_eq!(held(&bucket), [3, 1, 2]);
    assert_eq!(waiting(&bucket), [4]);
}

#[test]
fn only_the_second_failure_in_a_row_costs_a_place() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    told(&mut bucket, verified(peer(4)), 60);
    // Asked once more before it is given up.
    assert_eq!(
        told(&mut bucket, failed(1), 61),
        [BucketAction::Ping(peer(1))]
    );
    let actions = told(&mut bucket, failed(1), 62);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(peer(1), Why::Dead),
            BucketAction::Added(peer(4))
        ]
    );
    assert_eq!(held(&bucket), [2, 3, 4]);

    // Failures that an answer came between do not add up.
    for update in [verified(peer(5)), failed(2), seen(2), failed(2), seen(2)] {
        told(&mut bucket, update, 63);
    }
    assert_eq!(held(&bucket), [3, 4, 2]);
}

#[test]
fn somebody_heard_of_just_now_is_not_asked_for_a_newcomers_sake() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    assert_eq!(told(&mut bucket, verified(peer(4)), 29), []);
    assert_eq!(told(&mut bucket, Update::Tick, 29), []);
    assert_eq!(
        told(&mut bucket, Update::Tick, 30),
        [BucketAction::Ping(peer(1))]
    );
}

#[test]
fn a_lost_report_is_asked_for_again() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    let ping = [BucketAction::Ping(peer(1))];
    assert_eq!(told(&mut bucket, verified(peer(4)), 60), ping);
    assert_eq!(told(&mut bucket, Update::Tick, 69), []);
    assert_eq!(told(&mut bucket, Update::Tick, 70), ping);

    // So is a proof.
    let mut bucket = bucket_of(&[1]);
    let hint = Update::Heard { contact: peer(9) };
    let verify = [BucketAction::Verify(peer(9))];
    assert_eq!(told(&mut bucket, hint, 60), verify);
    assert_eq!(told(&mut bucket, hint, 61), []);
    told(&mut bucket, Update::Tick, 70);
    assert_eq!(told(&mut bucket, hint, 71), verify);
}

#[test]
fn a_dead_peer_keeps_its_place_until_somebody_comes_and_may_come_back() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    told(&mut bucket, failed(2), 1);
    assert!(!bucket.entries()[1].is_dead());
    told(&mut bucket, failed(2), 2);
    assert!(bucket.entries()[1].is_dead());
    assert_eq!(held(&bucket), [1, 2, 3]);

    let mut revived = bucket.clone();
    told(&mut revived, seen(2), 3);
    assert_eq!(held(&revived), [1, 3, 2]);
    assert!(
        revived
            .entries()
            .iter()
            .all(|e| !e.is_dead() && e.fails() == 0)
    );

    let actions = told(&mut bucket, verified(peer(4)), 3);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(peer(2), Why::Dead),
            BucketAction::Added(peer(4))
        ]
    );
    assert_eq!(held(&bucket), [1, 3, 4]);
}

#[test]
fn a_hint_is_proven_before_it_enters_and_displaces_nobody() {
    let mut bucket = bucket_of(&[1, 2]);
    let heard = |n| Update::Heard { contact: peer(n) };
    assert_eq!(
        told(&mut bucket, heard(3), 1),
        [BucketAction::Verify(peer(3))]
    );
    assert_eq!(held(&bucket), [1, 2]);
    assert_eq!(
        told(&mut bucket, verified(peer(3)), 2),
        [BucketAction::Added(peer(3))]
    );

    // Full: hints wait unasked, and give way to who has proven itself.
    assert_eq!(told(&mut bucket, heard(4), 3), []);
    assert_eq!(told(&mut bucket, heard(5), 3), []);
    assert_eq!(
        told(&mut bucket, heard(6), 3),
        [BucketAction::Refused(peer(6), Refused::Full)]
    );
    let actions = told(&mut bucket, verified(peer(7)), 3);
    assert_eq!(actions, [BucketAction::Refused(peer(4), Refused::Full)]);
    assert_eq!(waiting(&bucket), [5, 7]);

    // A place comes free: the proven one has it, and the hint is asked when there is another.
    let actions = told(&mut bucket, Update::Evict { id: id(1) }, 4);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(peer(1), Why::Evicted),
            BucketAction::Added(peer(7))
        ]
    );
    let actions = told(&mut bucket, Update::Evict { id: id(2) }, 5);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(peer(2), Why::Evicted),
            BucketAction::Verify(peer(5))
        ]
    );
    told(&mut bucket, failed(5), 6);
    assert_eq!(waiting(&bucket), [0_u8; 0]);
}

#[test]
fn one_network_has_two_places_in_a_bucket_and_ten_in_a_table() {
    let near = |n| at(n, [10, 9, 9, n]);
    let mut bucket = bucket_of(&[1]);
    // What is only claimed counts for nothing.
    for n in 20..30 {
        told(&mut bucket, Update::Heard { contact: near(n) }, 0);
    }
    assert_eq!(
        told(&mut bucket, verified(near(2)), 0),
        [BucketAction::Added(near(2))]
    );
    let crowded = [BucketAction::Refused(near(3), Refused::Crowded)];
    let full = bucket.handle(verified(near(3)), 0, &home(rules()), |_| 9);
    assert_eq!(full, crowded);
    let room = bucket.handle(verified(near(3)), 0, &home(rules()), |_| 8);
    assert_eq!(room, [BucketAction::Added(near(3))]);
    let third = told(&mut bucket, verified(near(4)), 0);
    assert_eq!(third, [BucketAction::Refused(near(4), Refused::Crowded)]);

    // Not even the dead leave a place to their neighbour's neighbour, only to one for one.
    told(&mut bucket, failed(2), 0);
    told(&mut bucket, failed(2), 0);
    let actions = told(&mut bucket, verified(near(4)), 0);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(near(2), Why::Dead),
            BucketAction::Added(near(4))
        ]
    );
    assert_eq!(held(&bucket), [1, 3, 4]);

    let open = Rules {
        diversity: Diversity::OFF,
        k: 20,
        ..rules()
    };
    let mut bucket = Bucket::new(255);
    for n in 1..=20 {
        bucket.handle(verified(near(n)), 0, &home(open), |_| 1000);
    }
    assert_eq!(bucket.entries().len(), 20);
}

#[test]
fn who_waits_is_of_many_networks_too() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    let rules = Rules {
        replacements: 5,
        ..rules()
    };
    for n in 10..20 {
        bucket.handle(verified(at(n, [10, 9, 9, n])), 0, &home(rules), |_| 0);
    }
    assert_eq!(waiting(&bucket), [10, 11]);
}

#[test]
fn a_peer_that_moved_is_kept_at_its_new_address_alone() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    let moved = at(2, [10, 7, 7, 7]);
    assert_eq!(
        told(&mut bucket, verified(moved), 5),
        [BucketAction::Moved(moved)]
    );
    assert_eq!(held(&bucket), [1, 3, 2]);
    assert_eq!(bucket.entries()[2].contact, moved);

    // Into a network that is full it does not follow.
    for n in [1, 3] {
        told(&mut bucket, verified(at(n, [10, 8, 8, n])), 6);
    }
    let crowded = at(2, [10, 8, 8, 9]);
    let actions = told(&mut bucket, verified(crowded), 7);
    assert_eq!(actions, [BucketAction::Refused(crowded, Refused::Crowded)]);
    assert_eq!(bucket.entries()[0].contact, moved);
}

#[test]
fn who_proves_another_id_at_an_address_replaces_who_was_there() {
    let mut bucket = bucket_of(&[1, 2, 3]);
    let reborn = Contact {
        id: id(9),
        ..peer(2)
    };
    let actions = told(&mut bucket, verified(reborn), 1);
    assert_eq!(
        actions,
        [
            BucketAction::Removed(peer(2), Why::AddressTaken),
            BucketAction::Added(reborn)
        ]
    );
    assert_eq!(held(&bucket), [1, 3, 9]);
}

#[test]
fn a_saved_peer_counts_as_heard_of_when_this_life_began() {
    let mut bucket = Bucket::new(255);
    for (n, dead) in [(1, false), (2, true), (3, false), (4, false), (1, false)] {
        let contact = peer(n);
        told(&mut bucket, Update::Saved { contact, dead }, 0);
    }
    // The live fourth has the dead one's place.
    assert_eq!(held(&bucket), [1, 3, 4]);
    assert!(
        bucket
            .entries()
            .iter()
            .all(|e| e.is_saved() && !e.is_dead())
    );
    assert_eq!(told(&mut bucket, verified(peer(5)), 1), []);
    assert_eq!(bucket.next_tick(&rules()), Some(30));
    assert_eq!(
        told(&mut bucket, Update::Tick, 30),
        [BucketAction::Ping(peer(1))]
    );
    told(&mut bucket, seen(1), 31);
    assert!(!bucket.entries()[2].is_saved());
}

#[test]
fn nobody_unfit_enters_by_any_door() {
    let mut misplaced = id(1).0;
    misplaced[0] = 0x40;
    let near = Contact {
        id: Id(misplaced),
        ..peer(1)
    };
    let own = Contact { id: ME, ..peer(1) };
    let nowhere = at(1, [0, 0, 0, 0]);
    let mut bucket = bucket_of(&[]);
    for (contact, why) in [
        (near, Refused::Misplaced),
        (own, Refused::Own),
        (nowhere, Refused::Unusable),
    ] {
        let saved = Update::Saved {
            contact,
            dead: false,
        };
        for update in [verified(contact), Update::Heard { contact }, saved] {
            let actions = told(&mut bucket, update, 0);
            assert_eq!(actions, [BucketAction::Refused(contact, why)]);
        }
    }
    assert_eq!((held(&bucket), waiting(&bucket)), (vec![], vec![]));
}

/// Contacts of a small world: few ids, few networks, some unfit.
fn contact() -> impl Strategy<Value = Contact> {
    let ids = prop_oneof![12 => (1_u8..10).prop_map(id), 1 => Just(ME), 1 => Just(Id([1; 32]))];
    let ips = prop_oneof![
        12 => (0_u8..4, 1_u8..4).prop_map(|(net, host)| [10, 0, net, host]),
        1 => Just([0, 0, 0, 0]),
    ];
    (ids, ips).prop_map(|(id, ip)| Contact {
        id,
        addr: SocketAddr::from((ip, 4000)).into(),
    })
}

fn update() -> impl Strategy<Value = Update> {
    let rtt = prop::option::of(0_u16..500);
    prop_oneof![
        6 => (contact(), rtt.clone()).prop_map(|(contact, rtt_ms)| Update::Verified { contact, rtt_ms }),
        3 => contact().prop_map(|contact| Update::Heard { contact }),
        4 => (1_u8..10, rtt).prop_map(|(n, rtt_ms)| Update::Seen { id: id(n), rtt_ms }),
        6 => (1_u8..10).prop_map(failed),
        1 => (1_u8..10).prop_map(|n| Update::Evict { id: id(n) }),
        1 => (contact(), any::<bool>()).prop_map(|(contact, dead)| Update::Saved { contact, dead }),
        3 => Just(Update::Tick),
    ]
}

fn check_laws(bucket: &Bucket, rules: &Rules, elsewhere: usize) -> Result<(), TestCaseError> {
    let entries = bucket.entries();
    prop_assert!(entries.len() <= rules.k);
    prop_assert!(bucket.waiting().len() <= rules.replacements);
    for (n, entry) in entries.iter().enumerate() {
        let contact = entry.contact;
        prop_assert_eq!(ME.bucket_of(&contact.id), Some(255));
        prop_assert!(contact.addr.is_usable());
        let same = |c: &Contact| c.id == contact.id || c.addr == contact.addr;
        prop_assert!(!entries[n + 1..].iter().any(|e| same(&e.contact)));
        prop_assert!(!bucket.waiting().any(|(c, _)| c.id == contact.id));
        let alike = diversity::count(entries, &contact.addr.subnet());
        prop_assert!(alike <= usize::from(rules.diversity.per_bucket));
        prop_assert!(alike + elsewhere <= usize::from(rules.diversity.per_table));
        prop_assert_eq!(entry.is_dead(), entry.fails() >= rules.dead_after);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_after_any_updates(
        updates in prop::collection::vec((update(), 0_u32..40), 0..80),
        k in 1_usize..5,
        replacements in 0_usize..4,
        elsewhere in 0_usize..4,
    ) {
        let diversity = Diversity { per_bucket: 2, per_table: 5 };
        let rules = Rules { k, replacements, diversity, fresh_s: 30, ..Rules::default() };
        let mut bucket = Bucket::new(255);
        let mut now_s = 0;
        // By its own account: failures since the last answer, and who answered in which order.
        let mut fails: BTreeMap<Id, u32> = BTreeMap::new();
        for (update, passed_s) in updates {
            now_s += passed_s;
            let before = bucket.clone();
            let adds_nobody = bucket.adds_nobody(&update);
            let actions = bucket.handle(update, now_s, &home(rules), |_| elsewhere);
            check_laws(&bucket, &rules, elsewhere)?;
            match update {
                Update::Failed { id } => *fails.entry(id).or_default() += 1,
                Update::Seen { id, .. } => { fails.remove(&id); }
                _ => {}
            }
            for action in &actions {
                match action {
                    BucketAction::Added(contact) => {
                        prop_assert!(!adds_nobody);
                        let dead = matches!(update, Update::Saved { dead: true, .. });
                        fails.insert(contact.id, if dead { 2 } else { 0 });
                    }
                    // Nobody who might live is pushed out by a newcomer.
                    BucketAction::Removed(contact, Why::Dead) => {
                        prop_assert!(fails.get(&contact.id).is_some_and(|n| *n >= 2));
                    }
                    BucketAction::Removed(contact, Why::Evicted) => {
                        prop_assert_eq!(update, Update::Evict { id: contact.id });
                    }
                    _ => {}
                }
            }
            if let Update::Verified { contact, .. } = update
                && !actions.iter().any(|a| matches!(a, BucketAction::Refused(c, _) if *c == contact))
            {
                fails.remove(&contact.id);
            }
            if update == Update::Tick && before.next_tick(&rules).is_none_or(|at_s| now_s < at_s) {
                prop_assert_eq!(&bucket, &before);
            }
            // Exactly those who came and went are told of.
            let count = |what: fn(&BucketAction) -> bool| actions.iter().filter(|a| what(a)).count();
            let came = count(|a| matches!(a, BucketAction::Added(_)));
            let went = count(|a| matches!(a, BucketAction::Removed(..)));
            prop_assert_eq!(before.entries().len() + came, bucket.entries().len() + went);
            // Who answered last is at the end.
            if let Update::Seen { id, .. } = update
                && let Some(at) = bucket.position(&id)
            {
                prop_assert_eq!(at + 1, bucket.entries().len());
                prop_assert_eq!(bucket.entries()[at].last_seen_s(), now_s);
            }
        }
    }
}
