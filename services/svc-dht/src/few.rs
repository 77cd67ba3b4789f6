//! A map for few: a sorted list that takes no more room than its entries, and none when it has none.
//!
//! A tree has room for a dozen from its first entry on, and a node that is asked little has one or two of most things.
//! Always: in the order of the keys, each once. To insert among `n` moves `n / 2`: it is for hundreds at most.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewMap<K, V>(Vec<(K, V)>);

/// Up to here there is room for no more than there are.
const SMALL: usize = 8;

impl<K: Ord, V> FewMap<K, V> {
    pub const fn new() -> Self {
        FewMap(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// What is there, or this from now on.
    pub fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let at = self.place(&key).unwrap_or_else(|at| {
            if self.0.len() < SMALL {
                self.0.reserve_exact(1);
            }
            self.0.insert(at, (key, value));
            at
        });
        &mut self.0[at].1
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.place(key).ok()?;
        let (_, value) = self.0.remove(at);
        self.fit();
        Some(value)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let before = self.0.len();
        self.0.retain_mut(|(key, value)| keep(key, value));
        if self.0.len() < before {
            self.fit();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(key))
    }

    /// Gives back what a crowd needed.
    fn fit(&mut self) {
        if self.0.len() < SMALL || self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }
}

impl<K: Ord, V> Default for FewMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_tree_and_is_empty_of_memory_when_empty(
            steps in prop::collection::vec((0..4u8, 0..20u8), 0..200),
        ) {
            let (mut few, mut tree) = (FewMap::new(), BTreeMap::new());
            for (n, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let there = *few.get_or_insert(key, n);
                        prop_assert_eq!(there, *tree.entry(key).or_insert(n));
                    }
                    2 => prop_assert_eq!(few.remove(&key), tree.remove(&key)),
                    _ => {
                        few.retain(|k, _| k % 3 != key % 3);
                        tree.retain(|k, _| k % 3 != key % 3);
                    }
                }
                prop_assert!(few.iter().eq(tree.iter()));
                prop_assert_eq!(few.contains_key(&key), tree.contains_key(&key));
                prop_assert!(few.len() >= SMALL || few.0.capacity() <= SMALL);
                prop_assert!(!few.is_empty() || few.0.capacity() == 0);
            }
        }
    }
}
