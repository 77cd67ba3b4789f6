//! Which entries of a bounded store make room: a clock with one hand (second chance).
//!
//! A hit only sets a mark, which readers can do side by side; the writer moves the hand. Always: the sizes of what is kept
//! never sum to more than the bound, and an entry that was used since the hand passed is passed over once more.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Set by whoever uses an entry.
#[derive(Clone, Debug, Default)]
pub struct Used(Arc<AtomicBool>);

impl Used {
    pub fn mark(&self) {
        self.0.store(true, Relaxed);
    }
}

#[derive(Debug)]
pub struct Clock<K: Ord> {
    max_bytes: u64,
    bytes: u64,
    entries: BTreeMap<K, Held>,
    /// In the order in which the hand comes to them. One that is no longer held is skipped.
    hand: VecDeque<(K, u64)>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    bytes: u64,
    used: Used,
    /// Tells an entry from an older one of the same key.
    number: u64,
}

impl<K: Ord + Clone> Clock<K> {
    pub fn new(max_bytes: u64) -> Self {
        Clock {
            max_bytes,
            bytes: 0,
            entries: BTreeMap::new(),
            hand: VecDeque::new(),
            next: 0,
        }
    }

    /// Takes an entry in, in place of an older one of its key. Who has to go for it; `None` if it is larger than everything
    /// may be, and then nothing changed.
    pub fn insert(&mut self, key: K, bytes: u64) -> Option<(Used, Vec<K>)> {
        if bytes > self.max_bytes {
            return None;
        }
        self.remove(&key);
        let gone = self.make_room(bytes);
        self.next += 1;
        let (used, number) = (Used::default(), self.next);
        self.bytes += bytes;
        self.hand.push_back((key.clone(), number));
        self.entries.insert(
            key,
            Held {
                bytes,
                used: used.clone(),
                number,
            },
        );
        Some((used, gone))
    }

    /// True if it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(held) = self.entries.remove(key) else {
            return false;
        };
        self.bytes -= held.bytes;
        // What was removed stays in the hand's way until it comes by: never more of it than is held.
        if self.hand.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            let held =
                |(key, number): &(K, u64)| entries.get(key).is_some_and(|h| h.number == *number);
            self.hand.retain(held);
        }
        true
    }

    /// Another bound, as after a reload: who has to go.
    pub fn resize(&mut self, max_bytes: u64) -> Vec<K> {
        self.max_bytes = max_bytes;
        self.make_room(0)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn make_room(&mut self, bytes: u64) -> Vec<K> {
        let mut gone = Vec::new();
        while self.bytes + bytes > self.max_bytes {
            let Some((key, number)) = self.hand.pop_front() else {
                break;
            };
            match self.entries.get(&key) {
                Some(held) if held.number != number => {}
                None => {}
                Some(held) if held.used.0.swap(false, Relaxed) => {
                    self.hand.push_back((key, number))
                }
                Some(_) => {
                    self.remove(&key);
                    gone.push(key);
                }
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_makes_room() {
        let mut clock = Clock::new(30);
        let (a, gone) = clock.insert("a", 10).unwrap();
        assert!(gone.is_empty());
        let (_b, _) = clock.insert("b", 10).unwrap();
        let (_c, _) = clock.insert("c", 10).unwrap();
        a.mark();
        assert_eq!(clock.insert("d", 10).unwrap().1, ["b"]);
        assert_eq!(clock.insert("e", 10).unwrap().1, ["c"]);
        assert_eq!(
            clock.insert("f", 10).unwrap().1,
            ["a"],
            "the mark counts once"
        );
        assert_eq!((clock.bytes(), clock.len()), (30, 3));
    }

    #[test]
    fn an_entry_larger_than_everything_changes_nothing() {
        let mut clock = Clock::new(30);
        clock.insert("a", 30).unwrap();
        assert!(clock.insert("b", 31).is_none());
        assert!(clock.insert("a", 31).is_none());
        assert_eq!(clock.bytes(), 30);
        assert_eq!(clock.insert("b", 30).unwrap().1, ["a"]);
        assert_eq!(clock.resize(29), ["b"]);
    }

    proptest! {
        #[test]
        fn sizes_never_sum_to_more_than_the_bound_and_every_key_is_held_or_was_told(
            steps in proptest::collection::vec((0u8..12, 0u64..40, any::<bool>(), 0u8..6), 0..200)
        ) {
            let mut clock = Clock::new(100);
            let mut held: BTreeMap<u8, (u64, Used)> = BTreeMap::new();
            for (key, bytes, mark, what) in steps {
                match what {
                    0 => prop_assert_eq!(clock.remove(&key), held.remove(&key).is_some()),
                    _ => {
                        let (used, gone) = clock.insert(key, bytes).expect("smaller than the bound");
                        held.insert(key, (bytes, used));
                        for key in gone {
                            prop_assert!(held.remove(&key).is_some(), "told twice");
                        }
                    }
                }
                if mark && let Some((_, used)) = held.get(&key) {
                    used.mark();
                }
                let sum: u64 = held.values().map(|(bytes, _)| bytes).sum();
                prop_assert_eq!((clock.bytes(), clock.len()), (sum, held.len()));
                prop_assert!(sum <= 100);
                prop_assert!(clock.hand.len() <= 2 * clock.len() + 17, "the hand's way is bounded");
            }
        }
    }
}
