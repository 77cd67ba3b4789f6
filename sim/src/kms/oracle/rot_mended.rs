//! A start finds every published file that has rotten, and makes it whole again from the records.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.rot_mended",
    law: "a start mends as many published files as have rotten, those at the edge of the tree too",
    premise: EVERYWHERE,
    make: || Box::new(RotMended::default()),
};

const TILE: u64 = 256;

#[derive(Default)]
struct RotMended {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    /// Records under the newest checkpoint.
    covered: u64,
    /// Published files with a flipped bit, and how many flips: two may undo each other.
    rotten: BTreeMap<String, u32>,
    mended: u64,
    /// Flips in what is not published, or not by this law's reckoning.
    unsure: BTreeSet<String>,
}

impl Oracle for RotMended {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let node = self
            .nodes
            .entry(event.node.unwrap_or_default())
            .or_default();
        match &event.what {
            What::Fault { text } if text.starts_with("bit ") => {
                let path = text.rsplit(' ').next().unwrap_or_default();
                match is_published(path, node.covered) {
                    true => *node.rotten.entry(path.to_owned()).or_default() += 1,
                    false => _ = node.unsure.insert(path.to_owned()),
                }
            }
            What::Probe {
                event: name, id, ..
            } => match *name {
                // Whatever the edge was, it is another one now.
                "kms.checkpointed" => {
                    node.covered = *id;
                    node.rotten.retain(|path, _| is_published(path, *id));
                }
                "kms.tiles_mended" => node.mended = *id,
                "kms.opened" => return node.opened(),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}

impl Node {
    fn opened(&mut self) -> Verdict {
        let least = self.rotten.values().filter(|flips| **flips == 1).count() as u64;
        let most = (self.rotten.len() + self.unsure.len()) as u64;
        let mended = std::mem::take(&mut self.mended);
        if mended < least || mended > most {
            return Err(format!(
                "{mended} files were mended, and {least} to {most} had rotten: {:?}",
                self.rotten
            ));
        }
        self.rotten.clear();
        self.unsure.clear();
        Ok(())
    }
}

/// Whether a checkpoint of so many records stands on this hash tile or bundle of the lowest level.
fn is_published(path: &str, covered: u64) -> bool {
    let parts = || {
        let rest = path.strip_prefix("audit/tile/")?;
        let (level, rest) = rest.split_once('/')?;
        let (index, width) = match rest.split_once(".p/") {
            Some((index, width)) => (index, width.parse().ok()?),
            None => (rest, TILE),
        };
        // More than a thousand tiles, or a higher level: no run of ours.
        let known = matches!(level, "0" | "entries");
        known.then_some((index.parse::<u64>().ok()?, width))
    };
    parts().is_some_and(|(index, width)| {
        let there = covered.saturating_sub(index * TILE).min(TILE);
        there == width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_is_published_and_what_it_left_behind_is_not() {
        for (path, covered, published) in [
            ("audit/tile/0/000", 256, true),
            ("audit/tile/0/000", 255, false),
            ("audit/tile/0/000.p/255", 255, true),
            ("audit/tile/entries/001.p/4", 260, true),
            ("audit/tile/entries/001.p/3", 260, false),
            ("audit/tile/1/000.p/1", 260, false),
            ("audit/log", 260, false),
        ] {
            assert_eq!(is_published(path, covered), published, "{path}");
        }
    }
}
