//! Tile paths, hash tiles and entry bundles: what is taken has one spelling, the rest is refused.

use ron_kms::audit::tiles::{Tile, encode_entries, parse_entries, parse_hashes};

pub fn run(input: (&str, u16, &[u8])) {
    let (path, width, bytes) = input;
    if let Ok(tile) = Tile::parse(path) {
        assert_eq!(tile.path(), path);
        assert!((1..=256).contains(&tile.width()));
    }
    let width = width % 300;
    if let Ok(entries) = parse_entries(width, bytes) {
        assert_eq!(entries.len(), usize::from(width));
        assert_eq!(encode_entries(entries).as_deref(), Ok(bytes));
    }
    if let Ok(hashes) = parse_hashes(width, bytes) {
        assert_eq!(hashes.concat(), bytes);
    }
}
