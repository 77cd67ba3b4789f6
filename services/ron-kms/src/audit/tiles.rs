//! The C2SP tlog-tiles layout: hash tiles of 256, entry bundles beside them, and their paths.
//!
//! Pure names and bytes: which tiles a tree of some size has, where each lies, what it holds. A path has
//! exactly one spelling; any other is refused, so that a path from a request can be looked up as it is.

use std::fmt;

use super::merkle::{Hash, NoNode, Nodes, node_hash};

/// Hashes, or entries, of a full tile: the tile height is 8.
pub const TILE_WIDTH: u64 = 256;
/// The highest level the layout has a name for.
pub const MAX_LEVEL: u8 = 63;
/// An entry's length travels in 16 bits.
pub const MAX_ENTRY: usize = u16::MAX as usize;

/// What a tile holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Hashes of complete subtrees of `256^level` entries.
    Hashes { level: u8 },
    /// The entries themselves.
    Entries,
}

/// One tile or bundle by name. `width` is 1..=256; less than 256 is a partial one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    kind: Kind,
    index: u64,
    width: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    #[error("not a tile path: expected tile/<level>/<index>[.p/<width>] or tile/entries/...")]
    Path,
    #[error("a tile holds 1 to 256 hashes or entries, at a level up to 63")]
    Shape,
    #[error("the tile holds {got} bytes, expected {expected}")]
    Length { got: usize, expected: usize },
    #[error("the entry bundle ends within entry {at}")]
    Truncated { at: usize },
    #[error("the entry bundle has {extra} bytes after its last entry")]
    Trailing { extra: usize },
    #[error("entry {at} is longer than 65535 bytes")]
    TooLong { at: usize },
}

impl Tile {
    pub fn new(kind: Kind, index: u64, width: u16) -> Result<Tile, TileError> {
        let level_ok = !matches!(kind, Kind::Hashes { level } if level > MAX_LEVEL);
        let width_ok = (1..=TILE_WIDTH).contains(&u64::from(width));
        match level_ok && width_ok {
            true => Ok(Tile { kind, index, width }),
            false => Err(TileError::Shape),
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn index(&self) -> u64 {
        self.index
    }

    pub fn width(&self) -> u16 {
        self.width
    }

    pub fn is_partial(&self) -> bool {
        u64::from(self.width) < TILE_WIDTH
    }

    /// The tile that holds the `at`-th hash (or entry) of its kind, as wide as a tree of `size` makes it;
    /// `None` if that tree has no such hash.
    pub fn holding(kind: Kind, at: u64, size: u64) -> Option<Tile> {
        let count = count_at(kind, size);
        if at >= count {
            return None;
        }
        let index = at / TILE_WIDTH;
        let width = (count - index * TILE_WIDTH).min(TILE_WIDTH) as u16;
        Some(Tile { kind, index, width })
    }

    /// The path below the log's prefix.
    pub fn path(&self) -> String {
        self.to_string()
    }

    pub fn parse(path: &str) -> Result<Tile, TileError> {
        let rest = path.strip_prefix("tile/").ok_or(TileError::Path)?;
        let (kind, rest) = rest.split_once('/').ok_or(TileError::Path)?;
        let kind = match kind {
            "entries" => Kind::Entries,
            level => Kind::Hashes {
                level: u8::try_from(decimal(level)?).map_err(|_| TileError::Path)?,
            },
        };
        let (index, width) = match rest.split_once(".p/") {
            None => (rest, TILE_WIDTH),
            Some((index, width)) => match decimal(width)? {
                width @ 1..TILE_WIDTH => (index, width),
                _ => return Err(TileError::Path),
            },
        };
        let tile = Tile::new(kind, grouped(index)?, width as u16)?;
        // One tile, one spelling.
        match tile.path() == path {
            true => Ok(tile),
            false => Err(TileError::Path),
        }
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Hashes { level } => write!(f, "tile/{level}/")?,
            Kind::Entries => f.write_str("tile/entries/")?,
        }
        let mut groups = vec![self.index % 1000];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        for group in groups.iter().skip(1).rev() {
            write!(f, "x{group:03}/")?;
        }
        write!(f, "{:03}", groups[0])?;
        match self.is_partial() {
            true => write!(f, ".p/{}", self.width),
            false => Ok(()),
        }
    }
}

/// All tiles and bundles of a tree of `new` entries that one of `old` does not have: what a growth must
/// write, bundles first, then tiles from the leaves up.
pub fn growth(old: u64, new: u64) -> Vec<Tile> {
    let mut tiles = Vec::new();
    grow(Kind::Entries, old, new, &mut tiles);
    for level in 0..=MAX_LEVEL {
        let kind = Kind::Hashes { level };
        if count_at(kind, new) == 0 {
            break;
        }
        grow(kind, old, new, &mut tiles);
    }
    tiles
}

/// Hashes of a tile from its bytes.
pub fn parse_hashes(width: u16, bytes: &[u8]) -> Result<Vec<Hash>, TileError> {
    let expected = usize::from(width) * size_of::<Hash>();
    let (hashes, rest) = bytes.as_chunks::<32>();
    match bytes.len() == expected && rest.is_empty() {
        true => Ok(hashes.to_vec()),
        false => Err(TileError::Length {
            got: bytes.len(),
            expected,
        }),
    }
}

/// The entries of a bundle, which must have exactly `width` of them.
pub fn parse_entries(width: u16, mut bytes: &[u8]) -> Result<Vec<&[u8]>, TileError> {
    let mut entries = Vec::with_capacity(usize::from(width).min(bytes.len() / 2));
    for at in 0..usize::from(width) {
        let truncated = TileError::Truncated { at };
        let (length, rest) = bytes.split_first_chunk().ok_or(truncated.clone())?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, rest) = rest.split_at_checked(length).ok_or(truncated)?;
        entries.push(entry);
        bytes = rest;
    }
    match bytes.len() {
        0 => Ok(entries),
        extra => Err(TileError::Trailing { extra }),
    }
}

/// Entries as a bundle.
pub fn encode_entries<'a>(
    entries: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, TileError> {
    let mut bytes = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        encode_entry(entry, &mut bytes).map_err(|_| TileError::TooLong { at })?;
    }
    Ok(bytes)
}

/// One entry behind those that are there.
pub fn encode_entry(entry: &[u8], bundle: &mut Vec<u8>) -> Result<(), TileError> {
    let length = u16::try_from(entry.len()).map_err(|_| TileError::TooLong { at: 0 })?;
    bundle.extend(length.to_be_bytes());
    bundle.extend(entry);
    Ok(())
}

/// Published tiles as the source of proofs, for a tree of `size`. `read` gives a tile's bytes.
pub struct TileNodes<F> {
    pub size: u64,
    pub read: F,
}

impl<F: Fn(&Tile) -> Option<Vec<u8>>> Nodes for TileNodes<F> {
    fn node(&self, level: u8, index: u64) -> Result<Hash, NoNode> {
        let no_node = |why: String| NoNode { level, index, why };
        let kind = Kind::Hashes { level: level / 8 };
        // Between two tile levels a node is made of a run of one tile's hashes.
        let run = 1_u64 << (level % 8);
        let first = index * run;
        let tile = Tile::holding(kind, first + run - 1, self.size)
            .ok_or_else(|| no_node(format!("a tree of {} has none", self.size)))?;
        let bytes = (self.read)(&tile).ok_or_else(|| no_node(format!("{tile} is missing")))?;
        let hashes = parse_hashes(tile.width, &bytes)
            .map_err(|error| no_node(format!("{tile}: {error}")))?;
        let start = (first % TILE_WIDTH) as usize;
        Ok(complete_root(&hashes[start..start + run as usize]))
    }
}

/// The root over a power of two of hashes.
pub fn complete_root(hashes: &[Hash]) -> Hash {
    match hashes {
        [one] => *one,
        _ => {
            let (left, right) = hashes.split_at(hashes.len() / 2);
            node_hash(&complete_root(left), &complete_root(right))
        }
    }
}

/// How many hashes, or entries, of a kind a tree has.
fn count_at(kind: Kind, size: u64) -> u64 {
    match kind {
        Kind::Entries => size,
        Kind::Hashes { level } => size.checked_shr(8 * u32::from(level)).unwrap_or(0),
    }
}

fn grow(kind: Kind, old: u64, new: u64, tiles: &mut Vec<Tile>) {
    let (old, new) = (count_at(kind, old), count_at(kind, new));
    if new <= old {
        return;
    }
    for index in old / TILE_WIDTH..new.div_ceil(TILE_WIDTH) {
        let width = (new - index * TILE_WIDTH).min(TILE_WIDTH) as u16;
        tiles.push(Tile { kind, index, width });
    }
}

fn decimal(text: &str) -> Result<u64, TileError> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match plain {
        true => text.parse().map_err(|_| TileError::Path),
        false => Err(TileError::Path),
    }
}

/// `x001/x234/067` is 1234067.
fn grouped(text: &str) -> Result<u64, TileError> {
    let mut index = 0_u64;
    let mut groups = text.split('/').peekable();
    while let Some(group) = groups.next() {
        let digits = match groups.peek() {
            Some(_) => group.strip_prefix('x').ok_or(TileError::Path)?,
            None => group,
        };
        if digits.len() != 3 {
            return Err(TileError::Path);
        }
        let next = index.checked_mul(1000);
        index = next
            .and_then(|next| next.checked_add(decimal(digits).ok()?))
            .ok_or(TileError::Path)?;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hashes(level: u8, index: u64, width: u16) -> Tile {
        Tile::new(Kind::Hashes { level }, index, width).unwrap()
    }

    fn entries(index: u64, width: u16) -> Tile {
        Tile::new(Kind::Entries, index, width).unwrap()
    }

    #[test]
    fn each_tile_has_its_path() {
        let table = [
            (hashes(0, 0, 256), "tile/0/000"),
            (hashes(0, 0, 1), "tile/0/000.p/1"),
            (hashes(0, 273, 112), "tile/0/273.p/112"),
            (hashes(1, 999, 255), "tile/1/999.p/255"),
            (hashes(1, 1000, 256), "tile/1/x001/000"),
            (hashes(2, 1_234_067, 256), "tile/2/x001/x234/067"),
            (hashes(63, 1_000_000, 17), "tile/63/x001/x000/000.p/17"),
            (entries(5, 256), "tile/entries/005"),
            (entries(1_234_067, 8), "tile/entries/x001/x234/067.p/8"),
            (
                hashes(0, u64::MAX, 256),
                "tile/0/x018/x446/x744/x073/x709/x551/615",
            ),
        ];
        for (tile, path) in table {
            assert_eq!(tile.path(), path);
            assert_eq!(Tile::parse(path), Ok(tile), "{path}");
        }
    }

    #[test]
    fn any_other_spelling_is_refused() {
        for path in [
            "",
            "tile",
            "tile/",
            "tile/0",
            "tile/0/",
            "tile/0/0",
            "tile/0/0000",
            "tile/00/000",
            "tile/64/000",
            "tile/256/000",
            "tile/-1/000",
            "tile/+1/000",
            "tile/0/x000/000",
            "tile/0/x000/x001/000",
            "tile/0/001/000",
            "tile/0/x001/x000",
            "tile/0/000.p/0",
            "tile/0/000.p/256",
            "tile/0/000.p/01",
            "tile/0/000.p/",
            "tile/0/000.p",
            "tile/0/000.p/1/2",
            "tile/0/000/../../x",
            "tile/entries",
            "tile/data/000",
            "/tile/0/000",
            "tile/0/000 ",
            "tile/0/٠٠٠",
            "tile/0/x018/x446/x744/x073/x709/x551/616",
            "tile/0/x999/x999/x999/x999/x999/x999/x999/999",
        ] {
            assert!(Tile::parse(path).is_err(), "{path} was taken");
        }
    }

    #[test]
    fn a_tree_of_70000_has_the_tiles_of_the_specification() {
        let all = growth(0, 70_000);
        let of = |kind| -> Vec<Tile> { all.iter().copied().filter(|t| t.kind == kind).collect() };
        let level = |level| of(Kind::Hashes { level });
        let shape = |tiles: &[Tile]| {
            let partial: Vec<u16> = tiles
                .iter()
                .filter(|t| t.is_partial())
                .map(|t| t.width)
                .collect();
            (tiles.len() - partial.len(), partial)
        };
        assert_eq!(shape(&of(Kind::Entries)), (273, vec![112]));
        assert_eq!(shape(&level(0)), (273, vec![112]));
        assert_eq!(shape(&level(1)), (1, vec![17]));
        assert_eq!(shape(&level(2)), (0, vec![1]));
        assert_eq!(shape(&level(3)), (0, vec![]));
        assert_eq!(
            growth(0, 256),
            [entries(0, 256), hashes(0, 0, 256), hashes(1, 0, 1)]
        );
    }

    #[test]
    fn growth_writes_what_changed_and_nothing_else() {
        let table: [(u64, u64, &[&str]); 6] = [
            (0, 0, &[]),
            (5, 5, &[]),
            (0, 1, &["tile/entries/000.p/1", "tile/0/000.p/1"]),
            (1, 3, &["tile/entries/000.p/3", "tile/0/000.p/3"]),
            (
                255,
                257,
                &[
                    "tile/entries/000",
                    "tile/entries/001.p/1",
                    "tile/0/000",
                    "tile/0/001.p/1",
                    "tile/1/000.p/1",
                ],
            ),
            (256, 257, &["tile/entries/001.p/1", "tile/0/001.p/1"]),
        ];
        for (old, new, paths) in table {
            let written: Vec<String> = growth(old, new).iter().map(Tile::path).collect();
            assert_eq!(written, paths, "{old} -> {new}");
        }
        assert!(growth(7, 3).is_empty());
    }

    #[test]
    fn malformed_bundles_and_tiles_say_what_is_wrong() {
        let good = encode_entries([&b"one"[..], b"", b"three"]).unwrap();
        assert_eq!(
            parse_entries(3, &good),
            Ok(vec![&b"one"[..], b"", b"three"])
        );
        assert_eq!(parse_entries(4, &good), Err(TileError::Truncated { at: 3 }));
        assert_eq!(
            parse_entries(2, &good),
            Err(TileError::Trailing { extra: 7 })
        );
        for cut in 0..good.len() {
            assert!(parse_entries(3, &good[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(
            parse_hashes(2, &[0; 63]),
            Err(TileError::Length {
                got: 63,
                expected: 64
            })
        );
        assert!(parse_hashes(2, &[0; 96]).is_err());
        let long = vec![0; MAX_ENTRY + 1];
        assert_eq!(
            encode_entries([&long[..]]),
            Err(TileError::TooLong { at: 0 })
        );
        assert!(encode_entries([&long[1..]]).is_ok());
        for (level, width) in [(64, 1), (0, 0), (0, 257)] {
            assert_eq!(
                Tile::new(Kind::Hashes { level }, 0, width),
                Err(TileError::Shape)
            );
        }
    }

    proptest! {
        #[test]
        fn a_path_reads_back_as_its_tile(level in 0_u8..=64, index: u64, width in 1_u16..=256) {
            let kind = if level == 64 { Kind::Entries } else { Kind::Hashes { level } };
            let tile = Tile::new(kind, index, width).unwrap();
            prop_assert_eq!(Tile::parse(&tile.path()), Ok(tile));
        }

        #[test]
        fn any_text_is_a_tile_or_refused(path in "(tile/)?[0-9x/.pentris]{0,24}") {
            if let Ok(tile) = Tile::parse(&path) {
                prop_assert_eq!(tile.path(), path);
            }
        }

        #[test]
        fn a_bundle_reads_back_as_its_entries(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..60)) {
            let bytes = encode_entries(all.iter().map(|e| &e[..])).unwrap();
            let back = parse_entries(all.len() as u16, &bytes).unwrap();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn any_bytes_are_a_bundle_or_refused(width in 0_u16..=256, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(all) = parse_entries(width, &bytes) {
                prop_assert_eq!(all.len(), usize::from(width));
            }
        }

        #[test]
        fn growth_in_steps_leaves_the_tiles_of_the_whole(a in 0_u64..70_000, b in 0_u64..70_000) {
            let (a, b) = (a.min(b), a.max(b));
            let mut have: std::collections::BTreeSet<Tile> = growth(0, a).into_iter().collect();
            let needed = growth(0, b);
            let step = growth(a, b);
            prop_assert!(step.iter().all(|t| !have.contains(t)), "written twice");
            have.extend(step);
            prop_assert!(needed.iter().all(|t| have.contains(t)), "missing");
        }
    }
}
