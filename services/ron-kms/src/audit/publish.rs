//! The right edge of the log as tiles: fed with every entry, it says which files to write.
//!
//! It holds the partial tile of each level and the partial bundle, never the log. Files come in a safe
//! order and are the same however often they are asked for: a crash between them is repaired by writing
//! them again. Always: the files of a growth are exactly those of [`tiles::growth`](super::tiles::growth).

use bytes::Bytes;

use super::{
    merkle::{Hash, leaf_hash},
    tiles::{self, Kind, TILE_WIDTH, Tile, TileError, complete_root},
};

/// A file to publish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    pub tile: Tile,
    /// Shared: a checkpoint that begins copies nothing while others wait for the log.
    pub bytes: Bytes,
}

/// Entries go in by `push`; [`Edge::pending`] is what has to be written so that the tree of this size is
/// published; [`Edge::published`] says that it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Edge {
    size: u64,
    published: u64,
    /// Entries of the partial bundle, encoded.
    entries: Vec<u8>,
    /// Hashes of the partial tile of each level.
    levels: Vec<Vec<Hash>>,
    /// Full tiles and bundles that are not published yet.
    full: Vec<Published>,
}

impl Edge {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn push(&mut self, entry: &[u8]) -> Result<Hash, TileError> {
        let hash = leaf_hash(entry);
        tiles::encode_entry(entry, &mut self.entries)?;
        self.size += 1;
        if self.size.is_multiple_of(TILE_WIDTH) {
            // The next bundle will be about as long.
            let next = Vec::with_capacity(self.entries.len());
            let bytes = std::mem::replace(&mut self.entries, next);
            let index = self.size / TILE_WIDTH - 1;
            self.complete(Kind::Entries, index, bytes)?;
        }
        self.push_hash(0, hash)?;
        Ok(hash)
    }

    /// What a tree of this size has and the published one does not.
    pub fn pending(&self) -> Result<Vec<Published>, TileError> {
        let mut files = self.full.clone();
        for tile in tiles::growth(self.published, self.size) {
            if tile.is_partial() {
                let bytes = match tile.kind() {
                    Kind::Entries => self.entries.clone(),
                    Kind::Hashes { level } => self.levels[usize::from(level)].concat(),
                };
                let bytes = bytes.into();
                files.push(Published { tile, bytes });
            }
        }
        Ok(files)
    }

    /// The full tiles and bundles that came up since this was last asked: to compare them with others.
    pub fn take_full(&mut self) -> Vec<Published> {
        std::mem::take(&mut self.full)
    }

    /// A tree of `size` is published: of what was pending, only younger tiles remain so.
    pub fn published(&mut self, size: u64) {
        self.published = size.min(self.size);
        self.full.retain(|file| end_of(&file.tile) > self.published);
    }

    fn push_hash(&mut self, level: u8, hash: Hash) -> Result<(), TileError> {
        let at = usize::from(level);
        if self.levels.len() == at {
            self.levels.push(Vec::new());
        }
        self.levels[at].push(hash);
        if self.levels[at].len() as u64 == TILE_WIDTH {
            let hashes = std::mem::take(&mut self.levels[at]);
            let index = (self.size >> (8 * (u32::from(level) + 1))) - 1;
            self.complete(Kind::Hashes { level }, index, hashes.concat())?;
            self.push_hash(level + 1, complete_root(&hashes))?;
        }
        Ok(())
    }

    fn complete(&mut self, kind: Kind, index: u64, bytes: Vec<u8>) -> Result<(), TileError> {
        let tile = Tile::new(kind, index, TILE_WIDTH as u16)?;
        let bytes = bytes.into();
        self.full.push(Published { tile, bytes });
        Ok(())
    }
}

/// The size of the tree that first has this full tile.
fn end_of(tile: &Tile) -> u64 {
    let level = match tile.kind() {
        Kind::Entries => 0,
        Kind::Hashes { level } => u32::from(level),
    };
    (tile.index() + 1) << (8 * (level + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::audit::{
        merkle::{
            Frontier, prove_consistency, prove_inclusion, root_at, verify_consistency,
            verify_inclusion,
        },
        tiles::TileNodes,
    };

    fn entry(n: u64) -> Vec<u8> {
        format!("entry number {n}").into_bytes()
    }

    #[test]
    fn published_tiles_give_root_and_proofs_at_every_checkpoint() {
        let mut edge = Edge::default();
        let mut frontier = Frontier::default();
        let mut store: BTreeMap<Tile, Vec<u8>> = BTreeMap::new();
        let mut past = Vec::new();
        for size in [1, 2, 255, 256, 257, 600, 65_535, 65_536, 65_793, 66_000] {
            let old = edge.size();
            while edge.size() < size {
                let hash = edge.push(&entry(edge.size())).unwrap();
                frontier.push(hash);
            }
            let files = edge.pending().unwrap();
            let names: BTreeSet<Tile> = files.iter().map(|f| f.tile).collect();
            let expected: BTreeSet<Tile> = tiles::growth(old, size).into_iter().collect();
            assert_eq!(names, expected, "{old} -> {size}");
            assert_eq!(files.len(), names.len(), "nothing twice");
            store.extend(files.into_iter().map(|f| (f.tile, f.bytes.to_vec())));
            edge.published(size);
            assert_eq!(edge.pending(), Ok(Vec::new()));

            let nodes = TileNodes {
                size,
                read: |tile: &Tile| store.get(tile).cloned(),
            };
            let root = frontier.root();
            assert_eq!(root_at(size, &nodes), Ok(root));
            for index in [0, size / 3, size / 2, size - 1] {
                let proof = prove_inclusion(index, size, &nodes).unwrap();
                let leaf = leaf_hash(&entry(index));
                assert_eq!(verify_inclusion(&leaf, index, size, &proof, &root), Ok(()));
            }
            for (old, old_root) in &past {
                let proof = prove_consistency(*old, size, &nodes).unwrap();
                assert_eq!(
                    verify_consistency(*old, old_root, size, &root, &proof),
                    Ok(())
                );
            }
            past.push((size, root));
            for tile in tiles::growth(0, size) {
                if tile.kind() == Kind::Entries {
                    let all = tiles::parse_entries(tile.width(), &store[&tile]).unwrap();
                    let first = tile.index() * TILE_WIDTH;
                    let expected: Vec<_> = (first..).map(entry).take(all.len()).collect();
                    assert_eq!(all, expected, "{tile}");
                }
            }
        }
    }

    #[test]
    fn an_older_checkpoint_leaves_the_younger_tiles_pending() {
        let mut edge = Edge::default();
        for n in 0..300 {
            edge.push(&entry(n)).unwrap();
        }
        edge.published(100);
        let names = |edge: &Edge| -> BTreeSet<Tile> {
            let files = edge.pending().unwrap();
            files.iter().map(|f| f.tile).collect()
        };
        assert_eq!(names(&edge), tiles::growth(100, 300).into_iter().collect());
        edge.published(256);
        assert_eq!(names(&edge), tiles::growth(256, 300).into_iter().collect());
    }

    #[test]
    fn a_missing_or_damaged_tile_is_named_and_never_a_wrong_proof() {
        let mut edge = Edge::default();
        for n in 0..10 {
            edge.push(&entry(n)).unwrap();
        }
        let missing = TileNodes {
            size: 10,
            read: |_: &Tile| None,
        };
        let error = prove_inclusion(3, 10, &missing).unwrap_err().to_string();
        assert!(error.contains("tile/0/000.p/10 is missing"), "{error}");
        let short = TileNodes {
            size: 10,
            read: |_: &Tile| Some(vec![0; 31]),
        };
        let error = root_at(10, &short).unwrap_err().to_string();
        assert!(error.contains("31 bytes, expected 320"), "{error}");
    }

    proptest! {
        #[test]
        fn files_are_those_of_the_growth_however_the_log_is_cut(cuts in prop::collection::vec(1_u64..200, 1..12)) {
            let mut edge = Edge::default();
            for step in cuts {
                let old = edge.size();
                for _ in 0..step {
                    edge.push(&entry(edge.size())).unwrap();
                }
                let names: BTreeSet<Tile> = edge.pending().unwrap().iter().map(|f| f.tile).collect();
                let expected: BTreeSet<Tile> = tiles::growth(old, edge.size()).into_iter().collect();
                prop_assert_eq!(names, expected);
                edge.published(edge.size());
            }
        }
    }
}
