//! The tree over the entries, computed anew, and every published hash tile held against it.
//!
//! Holds one tile per level: a full one is compared and dropped at once, what is left at the end must be
//! the partial ones. So a root of the past can be had at any time: from here, or from a tile that was
//! compared before.

use super::{
    fault::{Fault, OfflineError},
    files::Place,
};
use crate::audit::{
    merkle::{Frontier, Hash, NoNode, Nodes, root_at},
    tiles::{Kind, TILE_WIDTH, Tile, complete_root, parse_hashes},
};

pub struct TreeCheck<'a> {
    place: &'a Place<'a>,
    /// Entries that the checkpoint covers.
    covered: u64,
    frontier: Frontier,
    levels: Vec<Level>,
}

/// Hashes of a level that are not compared yet, behind `full` tiles that are.
#[derive(Default)]
struct Level {
    full: u64,
    hashes: Vec<Hash>,
}

impl<'a> TreeCheck<'a> {
    pub fn new(place: &'a Place<'a>, covered: u64) -> TreeCheck<'a> {
        TreeCheck {
            place,
            covered,
            frontier: Frontier::default(),
            levels: Vec::new(),
        }
    }

    pub fn push(&mut self, leaf: Hash) -> Result<(), OfflineError> {
        self.frontier.push(leaf);
        let mut hash = leaf;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Level::default());
            }
            self.levels[level].hashes.push(hash);
            if (self.levels[level].hashes.len() as u64) < TILE_WIDTH {
                break;
            }
            self.compare(level)?;
            let own = &mut self.levels[level];
            hash = complete_root(&own.hashes);
            own.hashes.clear();
            own.full += 1;
        }
        Ok(())
    }

    /// Compares the partial tiles and gives the root.
    pub fn finish(&self) -> Result<Hash, OfflineError> {
        for level in 0..self.levels.len() {
            if !self.levels[level].hashes.is_empty() {
                self.compare(level)?;
            }
        }
        Ok(self.frontier.root())
    }

    /// The root over the first `size` entries, which were pushed before.
    pub fn root_at(&self, size: u64) -> Result<Hash, OfflineError> {
        root_at(size, self).map_err(|no_node| {
            let why = std::io::Error::other(no_node.to_string());
            OfflineError::new("tile", Fault::Unreadable(why))
        })
    }

    fn compare(&self, level: usize) -> Result<(), OfflineError> {
        let own = &self.levels[level];
        let first = own.full * TILE_WIDTH;
        let published = self.read(level, first)?;
        let pairs = published.1.iter().zip(&own.hashes);
        match pairs.clone().position(|(theirs, ours)| theirs != ours) {
            None => Ok(()),
            Some(at) => Err(OfflineError::new(published.0, Fault::Hash { at })),
        }
    }

    /// The published tile that holds this hash of this level.
    fn read(&self, level: usize, at: u64) -> Result<(Tile, Vec<Hash>), OfflineError> {
        let kind = Kind::Hashes { level: level as u8 };
        let Some(tile) = Tile::holding(kind, at, self.covered) else {
            unreachable!("no more is pushed than the checkpoint covers");
        };
        let most = u64::from(tile.width()) * size_of::<Hash>() as u64;
        let bytes = self.place.read(&tile.path(), most)?;
        let hashes = parse_hashes(tile.width(), &bytes);
        let hashes = hashes.map_err(|error| OfflineError::new(tile, Fault::Tile(error)))?;
        Ok((tile, hashes))
    }
}

impl Nodes for TreeCheck<'_> {
    fn node(&self, level: u8, index: u64) -> Result<Hash, NoNode> {
        let no_node = |why: String| NoNode { level, index, why };
        // Between two tile levels a node is made of a run of one tile's hashes.
        let run = 1_u64 << (level % 8);
        let (tile_level, first) = (usize::from(level / 8), index * run);
        let own = self.levels.get(tile_level);
        let own = own.ok_or_else(|| no_node("the tree is not so high".into()))?;
        let start = (first % TILE_WIDTH) as usize;
        let run = start..start + run as usize;
        let hashes = match first / TILE_WIDTH < own.full {
            true => {
                let read = self.read(tile_level, first);
                read.map_err(|error| no_node(error.to_string()))?.1
            }
            false => own.hashes.clone(),
        };
        let nodes = hashes.get(run);
        let nodes = nodes.ok_or_else(|| no_node("the tree is not so large".into()))?;
        Ok(complete_root(nodes))
    }
}
