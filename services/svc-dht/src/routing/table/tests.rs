//! The table against a brute-force reference, under several writers at once, and its size.

use std::{net::SocketAddr, thread};

use proptest::prelude::*;

use super::*;
use crate::routing::{Diversity, saved};

const ME: Id = Id([0x55; 32]);

fn contact(id: Id, ip: [u8; 4]) -> Contact {
    let addr = SocketAddr::from((ip, 4000)).into();
    Contact { id, addr }
}

fn open() -> Rules {
    Rules {
        diversity: Diversity::OFF,
        ..Rules::default()
    }
}

fn verified(contact: Contact) -> Update {
    Update::Verified {
        contact,
        rtt_ms: Some(7),
    }
}

/// Tells the bucket of each; halves are claimed and dropped as they come.
fn tell(table: &Table, contacts: impl IntoIterator<Item = Contact>) {
    for contact in contacts {
        let Some(index) = table.bucket_of(&contact.id) else {
            continue;
        };
        table.claim(index).unwrap().handle(verified(contact), 1);
    }
}

/// Peers as a large network would give them, each in a network of its own: ids are spread evenly.
fn peers(n: u32) -> impl Iterator<Item = Contact> {
    (0..n).map(|n| {
        let [_, a, b, c] = n.to_be_bytes();
        contact(
            Id(*blake3::hash(&n.to_be_bytes()).as_bytes()),
            [10 + a, b, c, 1],
        )
    })
}

/// Ids that share long prefixes with each other and with this node, and differ late.
fn near_id() -> impl Strategy<Value = Id> {
    (0_usize..256, any::<[u8; 32]>(), any::<bool>()).prop_map(|(bits, random, sparse)| {
        let mut id = ME.0;
        for bit in bits..256 {
            let mask = 0x80 >> (bit % 8);
            let flip = random[bit / 8] & mask != 0 && !(sparse && bit % 5 != 0);
            if flip || bit == bits {
                id[bit / 8] ^= mask;
            }
        }
        Id(id)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: DHT-4.2
    #[test]
    fn closest_is_what_sorting_the_whole_table_gives(
        ids in prop::collection::vec(near_id(), 0..150),
        dead in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        target in prop_oneof![near_id(), any::<[u8; 32]>().prop_map(Id), Just(ME)],
        n in 0_usize..70,
        excluded: prop::sample::Index,
    ) {
        let table = Table::new(ME, open());
        tell(&table, ids.iter().enumerate().map(|(n, id)| contact(*id, [10, 0, n as u8, 1])));
        for at in dead.iter().filter(|_| !ids.is_empty()) {
            let id = ids[at.index(ids.len())];
            let Some(index) = table.bucket_of(&id) else { continue };
            let mut half = table.claim(index).unwrap();
            half.handle(Update::Failed { id }, 2);
            half.handle(Update::Failed { id }, 2);
        }
        let exclude = (!ids.is_empty()).then(|| &ids[excluded.index(ids.len())]);
        let mut all: Vec<Entry> = (0..=u8::MAX).flat_map(|i| table.view(i).to_vec()).collect();
        all.retain(|e| Some(e.id()) != exclude);
        all.sort_by_key(|e| e.id().distance(&target));
        let live = all.iter().filter(|e| !e.is_dead()).take(n).map(|e| e.contact).collect::<Vec<_>>();
        prop_assert_eq!(table.closest(&target, n, Liveness::SkipDead, exclude), live);
        all.truncate(n);
        prop_assert_eq!(table.closest_entries(&target, n, Liveness::All, exclude), all);
    }

    #[test]
    fn a_random_id_of_a_bucket_belongs_there(me: [u8; 32], index: u8, random: [u8; 32]) {
        let table = Table::new(Id(me), open());
        prop_assert_eq!(table.bucket_of(&table.id_in(index, random)), Some(index));
    }

    #[test]
    fn a_restart_from_the_file_has_the_same_peers(ids in prop::collection::vec(near_id(), 0..60)) {
        let table = Table::new(ME, open());
        tell(&table, ids.iter().enumerate().map(|(n, id)| contact(*id, [10, 0, n as u8, 1])));
        let file = saved::encode(&[1; 16], &saved::peers(&table));
        let again = Table::new(ME, open());
        for peer in saved::decode(&file, &[1; 16]).unwrap() {
            let index = again.bucket_of(&peer.contact.id).unwrap();
            again.claim(index).unwrap().handle(peer.update(), 0);
        }
        prop_assert_eq!(saved::peers(&again), saved::peers(&table));
        prop_assert_eq!(again.non_empty(), table.non_empty());
        prop_assert!(again.buckets().all(|(_, view)| view.iter().all(Entry::is_saved)));
    }
}

// proves: DHT-1.2
#[test]
fn a_bucket_has_one_writer_at_a_time_which_cannot_be_cloned() {
    let table = Table::new(ME, open());
    let mut half = table.claim(3).unwrap();
    assert!(table.claim(3).is_none());
    assert!(table.clone().claim(3).is_none());
    assert!(table.claim(4).is_some());
    let peer = contact(table.id_in(3, [9; 32]), [10, 0, 0, 1]);
    half.handle(verified(peer), 1);
    drop(half);
    // The next one goes on where it ended.
    let half = table.claim(3).unwrap();
    assert_eq!(half.bucket().entries()[0].contact, peer);
    assert!(table.claim(3).is_none());

    // Ambiguous, and so an error of the compiler, if it could be cloned.
    trait Once<A> {
        fn once() {}
    }
    impl<T> Once<()> for T {}
    impl<T: Clone> Once<u8> for T {}
    <BucketWriterHalf as Once<_>>::once();
}

// proves: DHT-4.2
#[test]
fn a_reader_keeps_what_it_saw_and_sees_the_next_change_at_once() {
    let table = Table::new(ME, open());
    let ids: Vec<Id> = (0..3).map(|n| table.id_in(9, [n; 32])).collect();
    let mut half = table.claim(9).unwrap();
    let reader = table.clone();
    let empty = reader.view(9);
    for (n, id) in ids.iter().enumerate() {
        half.handle(verified(contact(*id, [10, 0, n as u8, 1])), 1);
        assert_eq!(
            reader.counts(),
            Counts {
                peers: n + 1,
                dead: 0,
                buckets: 1
            }
        );
    }
    let full = reader.view(9);
    for id in &ids {
        half.handle(Update::Evict { id: *id }, 2);
        assert!(reader.get(id).is_none());
    }
    assert_eq!((empty.len(), full.len(), reader.view(9).len()), (0, 3, 0));
    assert_eq!(reader.non_empty(), 0);
    assert!(reader.closest(&ids[0], 20, Liveness::All, None).is_empty());
}

// proves: DHT-10.3
#[test]
fn writers_at_work_together_keep_the_limits_of_the_whole_table() {
    const WRITERS: u8 = 6;
    let limits = Diversity {
        per_bucket: 2,
        per_table: 3,
    };
    let rules = Rules {
        diversity: limits,
        ..Rules::default()
    };
    for round in 0..50 {
        let table = Table::new(ME, rules);
        let write = |index: u8| {
            let mut half = table.claim(index).unwrap();
            for n in 0..8 {
                let id = table.id_in(index, [n ^ round; 32]);
                half.handle(verified(contact(id, [10, 0, n % 2, 10 * index + n])), 1);
                // Whoever reads meanwhile sees no more than the limits allow, and nothing half done.
                let all: Vec<Entry> = table.buckets().flat_map(|(_, v)| v.to_vec()).collect();
                let subnet = contact(id, [10, 0, n % 2, 0]).addr.subnet();
                assert!(diversity::count(&all, &subnet) <= 3);
                assert!(table.claim(index).is_none());
            }
        };
        let write = &write;
        thread::scope(|scope| {
            for index in 0..WRITERS {
                scope.spawn(move || write(index));
            }
        });
        assert_eq!(table.counts().peers, 6);
    }
}

#[test]
fn an_answer_is_news_once_in_a_while_or_after_trouble() {
    let table = Table::new(ME, open());
    let peer = peers(1).next().unwrap();
    assert!(table.is_news(&peer.id, 0));
    tell(&table, [peer]);
    assert!(!table.is_news(&peer.id, 2));
    assert!(table.is_news(&peer.id, 60));
    let index = table.bucket_of(&peer.id).unwrap();
    table
        .claim(index)
        .unwrap()
        .handle(Update::Failed { id: peer.id }, 2);
    assert!(table.is_news(&peer.id, 2));
}

#[test]
fn an_idle_table_is_small_and_one_of_200_peers_below_16_kib() {
    let idle = Table::new(ME, Rules::default());
    println!("idle table: {} bytes", idle.heap_bytes());
    assert!(idle.heap_bytes() < 512);

    // What a node knows in a network of ten thousand, and all that its writers remember besides.
    let table = Table::new(ME, Rules::default());
    let mut halves: Vec<Option<BucketWriterHalf>> = (0..256).map(|_| None).collect();
    for peer in peers(10_000) {
        let index = table.bucket_of(&peer.id).unwrap();
        let half = halves[usize::from(index)].get_or_insert_with(|| table.claim(index).unwrap());
        half.handle(verified(peer), 1);
    }
    let halves: Vec<_> = halves.into_iter().flatten().collect();
    let buckets = halves
        .iter()
        .map(|half| size_of_val(half) + half.bucket().heap_bytes());
    let bytes = table.heap_bytes() + buckets.sum::<usize>();
    let counts = table.counts();
    println!(
        "{} peers in {} buckets: {bytes} bytes with writers and replacement caches, {} per peer",
        counts.peers,
        counts.buckets,
        bytes / counts.peers
    );
    assert!((180..=240).contains(&counts.peers), "{counts:?}");
    let of_200 = bytes * 200 / counts.peers;
    println!("for 200 peers: {of_200} bytes");
    assert!(of_200 < 16 * 1024, "{of_200}");
    let saved = saved::encode(&[0; 16], &saved::peers(&table)).len();
    println!("saved: {saved} bytes");
}
