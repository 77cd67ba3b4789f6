//! PMTiles v3: the header, the directories and the numbering of tiles, read from bytes that somebody else wrote.
//!
//! Pure: bytes go in, values or a typed error come out. Always: no length or offset is used before it was checked against
//! what there is, nothing is allocated by a number from the file alone, and a walk from the root ends within
//! [`MAX_DEPTH`] directories.

use std::ops::Range;

/// Bytes of the header, which every archive begins with.
pub const HEADER_BYTES: usize = 127;
/// The root directory lies within the first bytes, so that one read brings it along (as the format asks).
pub const ROOT_WITHIN: u64 = 16_384;
/// Root, and leaves below it. The format allows for three; one more is somebody's mistake or trap.
pub const MAX_DEPTH: usize = 4;
/// The last zoom level whose tiles can be numbered in 64 bits.
pub const MAX_ZOOM: u8 = 31;

/// Why bytes are no archive that can be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    #[error("not a PMTiles archive")]
    Magic,
    #[error("PMTiles version {0}; this reads version 3: convert it with `pmtiles convert`")]
    Version(u8),
    #[error("the archive is cut short: {what} ends at byte {end}, the file has {len}")]
    Truncated {
        what: &'static str,
        end: u64,
        len: u64,
    },
    #[error("{0} and {1} overlap")]
    Overlap(&'static str, &'static str),
    #[error("{0} is compressed in a way that is not supported ({1}); gzip and none are")]
    Compression(&'static str, u8),
    #[error("the {0} is larger than is read ({1} bytes at most)")]
    TooLarge(&'static str, u64),
    #[error("a directory is malformed: {0}")]
    Directory(&'static str),
    #[error("the zoom levels {0} to {1} are out of order or too deep")]
    Zoom(u8, u8),
    #[error("directories are nested deeper than {MAX_DEPTH}")]
    Depth,
    #[error("a compressed {0} does not inflate")]
    Inflate(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
}

impl Compression {
    fn parse(what: &'static str, byte: u8) -> Result<Compression, PackError> {
        match byte {
            1 => Ok(Compression::None),
            2 => Ok(Compression::Gzip),
            other => Err(PackError::Compression(what, other)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileType {
    Unknown,
    Mvt,
    Png,
    Jpeg,
    Webp,
    Avif,
}

impl TileType {
    fn parse(byte: u8) -> TileType {
        match byte {
            1 => TileType::Mvt,
            2 => TileType::Png,
            3 => TileType::Jpeg,
            4 => TileType::Webp,
            5 => TileType::Avif,
            _ => TileType::Unknown,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            TileType::Mvt => "application/vnd.mapbox-vector-tile",
            TileType::Png => "image/png",
            TileType::Jpeg => "image/jpeg",
            TileType::Webp => "image/webp",
            TileType::Avif => "image/avif",
            TileType::Unknown => "application/octet-stream",
        }
    }

    /// The endings under which such a tile may be asked for.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            TileType::Mvt => &["mvt", "pbf"],
            TileType::Png => &["png"],
            TileType::Jpeg => &["jpg", "jpeg"],
            TileType::Webp => &["webp"],
            TileType::Avif => &["avif"],
            TileType::Unknown => &["bin"],
        }
    }
}

/// The header of an archive, checked against the length of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub root: Range<u64>,
    pub metadata: Range<u64>,
    /// Where leaf directories lie; their offsets count from its start.
    pub leaves: Range<u64>,
    /// Where tiles lie; their offsets count from its start.
    pub tiles: Range<u64>,
    /// Of directories and metadata.
    pub internal: Compression,
    pub tile_compression: Compression,
    pub tile_type: TileType,
    pub zoom: (u8, u8),
    /// West, south, east, north, in ten-millionths of a degree.
    pub bounds: [i32; 4],
    pub center_zoom: u8,
    pub center: [i32; 2],
}

impl Header {
    /// `len`: of the whole file.
    pub fn parse(bytes: &[u8], len: u64) -> Result<Header, PackError> {
        if bytes.get(..7) != Some(b"PMTiles") {
            return Err(PackError::Magic);
        }
        match bytes.get(7) {
            Some(3) => {}
            Some(other) => return Err(PackError::Version(*other)),
            None => return Err(PackError::Magic),
        }
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            let end = HEADER_BYTES as u64;
            return Err(PackError::Truncated {
                what: "the header",
                end,
                len,
            });
        };
        let u64_at = |at: usize| u64::from_le_bytes(array(bytes, at));
        let i32_at = |at: usize| i32::from_le_bytes(array(bytes, at));
        let section = |what, at: usize| section(what, u64_at(at), u64_at(at + 8), len);
        let header = Header {
            root: section("the root directory", 8)?,
            metadata: section("the metadata", 24)?,
            leaves: section("the leaf directories", 40)?,
            tiles: section("the tile data", 56)?,
            internal: Compression::parse("the directory", bytes[97])?,
            tile_compression: Compression::parse("a tile", bytes[98])?,
            tile_type: TileType::parse(bytes[99]),
            zoom: (bytes[100], bytes[101]),
            bounds: [i32_at(102), i32_at(106), i32_at(110), i32_at(114)],
            center_zoom: bytes[118],
            center: [i32_at(119), i32_at(123)],
        };
        header.check(len)?;
        Ok(header)
    }

    fn check(&self, len: u64) -> Result<(), PackError> {
        let (from, to) = self.zoom;
        if from > to || to > MAX_ZOOM {
            return Err(PackError::Zoom(from, to));
        }
        if self.root.is_empty() {
            return Err(PackError::Directory("the root is empty"));
        }
        if self.root.end > ROOT_WITHIN {
            return Err(PackError::TooLarge("root directory", ROOT_WITHIN));
        }
        let sections = [
            ("the header", &(0..HEADER_BYTES as u64)),
            ("the root directory", &self.root),
            ("the metadata", &self.metadata),
            ("the leaf directories", &self.leaves),
            ("the tile data", &self.tiles),
        ];
        for (at, (one, a)) in sections.iter().enumerate() {
            for (other, b) in &sections[at + 1..] {
                let apart = a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start;
                if !apart {
                    return Err(PackError::Overlap(one, other));
                }
            }
            debug_assert!(a.end <= len || *one == "the header");
        }
        Ok(())
    }
}

fn section(
    what: &'static str,
    offset: u64,
    length: u64,
    len: u64,
) -> Result<Range<u64>, PackError> {
    let end = offset.saturating_add(length);
    match end <= len {
        true => Ok(offset..end),
        false => Err(PackError::Truncated { what, end, len }),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the header was checked to be whole")
}

/// One entry of a directory: a run of equal tiles, or a leaf directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub tile_id: u64,
    /// 0: the entry is a leaf directory, which begins with this tile.
    pub run_length: u32,
    /// From the start of the tile data, or of the leaf directories.
    pub offset: u64,
    pub length: u32,
}

impl Entry {
    pub fn is_leaf(&self) -> bool {
        self.run_length == 0
    }

    /// Where its bytes lie in the file; they lie inside of their section.
    pub fn bytes(&self, header: &Header) -> Result<Range<u64>, PackError> {
        let (what, within) = match self.is_leaf() {
            true => ("a leaf directory", &header.leaves),
            false => ("a tile", &header.tiles),
        };
        let start = within.start.saturating_add(self.offset);
        let end = start.saturating_add(u64::from(self.length));
        match end <= within.end {
            true => Ok(start..end),
            false => Err(PackError::Truncated {
                what,
                end,
                len: within.end,
            }),
        }
    }
}

/// Entries in the order of their tiles, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(Vec<Entry>);

impl Directory {
    /// Inflated bytes. No entry takes less than four of them, so their number bounds what is allocated.
    pub fn parse(bytes: &[u8]) -> Result<Directory, PackError> {
        let mut rest = bytes;
        let count = varint(&mut rest)?;
        if count == 0 {
            return Err(PackError::Directory("it has no entries"));
        }
        if count > (rest.len() / 4) as u64 {
            return Err(PackError::Directory(
                "it announces more entries than it holds",
            ));
        }
        let count = count as usize;
        let mut entries = Vec::with_capacity(count);
        let mut tile_id = 0u64;
        for at in 0..count {
            let step = varint(&mut rest)?;
            if at > 0 && step == 0 {
                return Err(PackError::Directory("two entries begin with one tile"));
            }
            let next = tile_id.checked_add(step);
            tile_id = next.ok_or(PackError::Directory("a tile number overflows"))?;
            entries.push(Entry {
                tile_id,
                run_length: 0,
                offset: 0,
                length: 0,
            });
        }
        for entry in &mut entries {
            entry.run_length = varint32(&mut rest)?;
        }
        for entry in &mut entries {
            entry.length = varint32(&mut rest)?;
            if entry.length == 0 {
                return Err(PackError::Directory("an entry has no bytes"));
            }
        }
        let mut follows: Option<u64> = None;
        for entry in &mut entries {
            entry.offset = match (varint(&mut rest)?, follows) {
                (0, Some(end)) => end,
                (0, None) => return Err(PackError::Directory("the first entry follows another")),
                (offset, _) => offset - 1,
            };
            let end = entry.offset.checked_add(u64::from(entry.length));
            follows = Some(end.ok_or(PackError::Directory("an offset overflows"))?);
        }
        if !rest.is_empty() {
            return Err(PackError::Directory("bytes are left over"));
        }
        let directory = Directory(entries);
        directory.check_runs()?;
        Ok(directory)
    }

    /// No run reaches into the next entry.
    fn check_runs(&self) -> Result<(), PackError> {
        for pair in self.0.windows(2) {
            let end = pair[0].tile_id.checked_add(u64::from(pair[0].run_length));
            if end.is_none_or(|end| end > pair[1].tile_id) {
                return Err(PackError::Directory("runs of tiles overlap"));
            }
        }
        Ok(())
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// What holds this tile: itself, the leaf where to look on, or nothing.
    pub fn find(&self, tile_id: u64) -> Option<Entry> {
        let after = self.0.partition_point(|entry| entry.tile_id <= tile_id);
        let entry = self.0[after.checked_sub(1)?];
        let within = tile_id - entry.tile_id < u64::from(entry.run_length);
        (entry.is_leaf() || within).then_some(entry)
    }
}

/// Inflates a directory or the metadata; never to more than `max` bytes.
pub fn inflate(
    what: &'static str,
    how: Compression,
    bytes: &[u8],
    max: u64,
) -> Result<Vec<u8>, PackError> {
    use std::io::Read;
    let mut out = Vec::new();
    let read = match how {
        Compression::None => bytes.take(max + 1).read_to_end(&mut out),
        Compression::Gzip => flate2::read::GzDecoder::new(bytes)
            .take(max + 1)
            .read_to_end(&mut out),
    };
    read.map_err(|_| PackError::Inflate(what))?;
    match out.len() as u64 <= max {
        true => Ok(out),
        false => Err(PackError::TooLarge(what, max)),
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, PackError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest
            .split_first()
            .ok_or(PackError::Directory("it ends within a number"))?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(PackError::Directory("a number is too long"))
}

fn varint32(rest: &mut &[u8]) -> Result<u32, PackError> {
    let value = varint(rest)?;
    u32::try_from(value).map_err(|_| PackError::Directory("a number is too large"))
}

/// The number of a tile: all tiles of lower zoom levels come before it, then those before it on the level's Hilbert curve.
/// `None` if there is no such tile.
pub fn tile_id(z: u8, x: u32, y: u32) -> Option<u64> {
    if z > MAX_ZOOM || u64::from(x.max(y)) >= 1 << z {
        return None;
    }
    let before = ((1u64 << (2 * u32::from(z))) - 1) / 3;
    let (mut x, mut y) = (u64::from(x), u64::from(y));
    let mut along = 0;
    let mut side = (1u64 << z) >> 1;
    while side > 0 {
        let (right, upper) = (u64::from(x & side > 0), u64::from(y & side > 0));
        along += side * side * ((3 * right) ^ upper);
        // Turn the quadrant so that the curve enters it as it entered the whole.
        if upper == 0 {
            if right == 1 {
                x = (side - 1).wrapping_sub(x);
                y = (side - 1).wrapping_sub(y);
            }
            std::mem::swap(&mut x, &mut y);
        }
        side >>= 1;
    }
    Some(before + along)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn put_varint(out: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// By the text of the format, column by column.
    fn encode(entries: &[Entry]) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, entries.len() as u64);
        let mut last = 0;
        for entry in entries {
            put_varint(&mut out, entry.tile_id - last);
            last = entry.tile_id;
        }
        entries
            .iter()
            .for_each(|e| put_varint(&mut out, e.run_length.into()));
        entries
            .iter()
            .for_each(|e| put_varint(&mut out, e.length.into()));
        let mut follows = None;
        for entry in entries {
            match follows == Some(entry.offset) {
                true => put_varint(&mut out, 0),
                false => put_varint(&mut out, entry.offset + 1),
            }
            follows = Some(entry.offset + u64::from(entry.length));
        }
        out
    }

    fn header_bytes() -> Vec<u8> {
        let mut bytes = b"PMTiles\x03".to_vec();
        for number in [127u64, 10, 137, 5, 142, 0, 142, 100, 3, 2, 2] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([1, 2, 1, 2, 0, 3]);
        for number in [-1_800_000_000i32, -850_000_000, 1_800_000_000, 850_000_000] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(1);
        bytes.extend([0; 8]);
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes
    }

    #[test]
    fn a_header_is_read_and_every_section_lies_within_the_file() {
        let header = Header::parse(&header_bytes(), 242).unwrap();
        assert_eq!(
            (header.root.clone(), header.tiles.clone()),
            (127..137, 142..242)
        );
        assert_eq!((header.zoom, header.tile_type), ((0, 3), TileType::Png));
        assert_eq!(header.bounds[0], -1_800_000_000);
        let short = Header::parse(&header_bytes(), 241).unwrap_err();
        assert_eq!(
            short,
            PackError::Truncated {
                what: "the tile data",
                end: 242,
                len: 241
            }
        );
        let mut all = Vec::new();
        let set = |at: usize, value: &[u8]| {
            let mut bytes = header_bytes();
            bytes[at..at + value.len()].copy_from_slice(value);
            Header::parse(&bytes, 242).unwrap_err()
        };
        all.push((set(0, b"X"), PackError::Magic));
        all.push((set(7, &[2]), PackError::Version(2)));
        all.push((set(97, &[3]), PackError::Compression("the directory", 3)));
        all.push((set(98, &[0]), PackError::Compression("a tile", 0)));
        all.push((set(100, &[4]), PackError::Zoom(4, 3)));
        all.push((set(101, &[32]), PackError::Zoom(0, 32)));
        all.push((set(16, &[0; 8]), PackError::Directory("the root is empty")));
        all.push((
            set(8, &100u64.to_le_bytes()),
            PackError::Overlap("the header", "the root directory"),
        ));
        all.push((
            set(24, &136u64.to_le_bytes()),
            PackError::Overlap("the root directory", "the metadata"),
        ));
        let end = u64::MAX;
        let far = PackError::Truncated {
            what: "the tile data",
            end,
            len: 242,
        };
        all.push((set(56, &u64::MAX.to_le_bytes()), far));
        for (got, wanted) in all {
            assert_eq!(got, wanted);
        }
        for cut in 0..HEADER_BYTES {
            assert!(Header::parse(&header_bytes()[..cut], 242).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_directory_that_is_malformed_says_how() {
        let entry = |tile_id, run_length, offset, length| Entry {
            tile_id,
            run_length,
            offset,
            length,
        };
        let good = encode(&[entry(0, 1, 0, 5), entry(1, 3, 5, 7), entry(9, 0, 0, 8)]);
        let directory = Directory::parse(&good).unwrap();
        assert_eq!(directory.entries().len(), 3);
        for (tile, found) in [
            (0, Some(0)),
            (1, Some(1)),
            (3, Some(1)),
            (4, None),
            (8, None),
            (9, Some(2)),
            (99, Some(2)),
        ] {
            let found = found.map(|at: usize| directory.entries()[at]);
            assert_eq!(directory.find(tile), found, "{tile}");
        }
        for cut in 0..good.len() {
            assert!(Directory::parse(&good[..cut]).is_err(), "{cut}");
        }
        let broken = |bytes: &[u8]| match Directory::parse(bytes) {
            Err(PackError::Directory(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(broken(&[0]), "it has no entries");
        assert_eq!(
            broken(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1, 1]),
            "it announces more entries than it holds"
        );
        assert_eq!(broken(&[&good[..], &[0]].concat()), "bytes are left over");
        assert_eq!(
            broken(&encode(&[entry(0, 1, 0, 0)])),
            "an entry has no bytes"
        );
        assert_eq!(
            broken(&encode(&[entry(0, 2, 0, 1), entry(1, 1, 1, 1)])),
            "runs of tiles overlap"
        );
        assert_eq!(broken(&[1, 0, 1, 1, 0]), "the first entry follows another");
        assert_eq!(
            broken(&[2, 0, 0, 1, 1, 1, 1, 1, 2]),
            "two entries begin with one tile"
        );
        assert_eq!(broken(&[0xff; 11]), "a number is too long");
    }

    #[test]
    fn an_entry_outside_of_its_section_is_not_read() {
        let header = Header::parse(&header_bytes(), 242).unwrap();
        let tile = |offset, length| {
            Entry {
                tile_id: 0,
                run_length: 1,
                offset,
                length,
            }
            .bytes(&header)
        };
        assert_eq!(tile(0, 100), Ok(142..242));
        assert!(tile(0, 101).is_err());
        assert!(tile(100, 1).is_err());
        assert!(tile(u64::MAX, 1).is_err());
        let leaf = Entry {
            tile_id: 0,
            run_length: 0,
            offset: 0,
            length: 1,
        };
        assert!(leaf.bytes(&header).is_err(), "there are no leaves");
    }

    #[test]
    fn nothing_inflates_beyond_its_cap() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![0; 1 << 20]).unwrap();
        let bomb = gzip.finish().unwrap();
        let over = inflate("directory", Compression::Gzip, &bomb, (1 << 20) - 1);
        assert_eq!(over, Err(PackError::TooLarge("directory", (1 << 20) - 1)));
        assert_eq!(
            inflate("directory", Compression::Gzip, &bomb, 1 << 20)
                .unwrap()
                .len(),
            1 << 20
        );
        let cut = inflate(
            "directory",
            Compression::Gzip,
            &bomb[..bomb.len() / 2],
            1 << 21,
        );
        assert_eq!(cut, Err(PackError::Inflate("directory")));
        assert!(inflate("directory", Compression::None, b"abc", 2).is_err());
    }

    #[test]
    fn tiles_are_numbered_along_the_curve() {
        // The examples that the format gives, and the corners of a level.
        for ((z, x, y), id) in [
            ((0, 0, 0), 0),
            ((1, 0, 0), 1),
            ((1, 0, 1), 2),
            ((1, 1, 1), 3),
            ((1, 1, 0), 4),
            ((2, 0, 0), 5),
            ((12, 3423, 1763), 19_078_479),
        ] {
            assert_eq!(tile_id(z, x, y), Some(id), "{z}/{x}/{y}");
        }
        assert_eq!(tile_id(1, 2, 0), None);
        assert_eq!(tile_id(0, 0, 1), None);
        assert_eq!(tile_id(32, 0, 0), None);
        assert!(tile_id(31, u32::MAX >> 1, u32::MAX >> 1).is_some());
        for z in 0..6u8 {
            let side = 1u32 << z;
            let tiles = (0..side).flat_map(|x| (0..side).map(move |y| (x, y)));
            let mut ids: Vec<(u64, (u32, u32))> = tiles
                .map(|(x, y)| (tile_id(z, x, y).unwrap(), (x, y)))
                .collect();
            ids.sort_unstable();
            let first = ((1u64 << (2 * z)) - 1) / 3;
            for (at, pair) in ids.windows(2).enumerate() {
                let ((id, (x, y)), (next, (to_x, to_y))) = (pair[0], pair[1]);
                assert_eq!((id, next), (first + at as u64, id + 1), "every number once");
                assert_eq!(x.abs_diff(to_x) + y.abs_diff(to_y), 1, "to a neighbour");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_directory_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(directory) = Directory::parse(&bytes) {
                let ids: Vec<u64> = directory.entries().iter().map(|e| e.tile_id).collect();
                prop_assert!(ids.is_sorted());
            }
            let _ = Header::parse(&bytes, 1_000);
        }

        #[test]
        fn what_is_written_reads_the_same(steps in proptest::collection::vec((1u64..50, 0u32..4, 1u32..500, any::<bool>()), 1..60)) {
            let (mut tile_id, mut end) = (0, 0);
            let entries: Vec<Entry> = steps.into_iter().map(|(step, run_length, length, jumps)| {
                let offset = if jumps { end + 17 } else { end };
                let entry = Entry { tile_id, run_length, offset, length };
                tile_id += u64::from(run_length) + step;
                end = offset + u64::from(length);
                entry
            }).collect();
            let read = Directory::parse(&encode(&entries)).unwrap();
            prop_assert_eq!(read.entries(), &entries[..]);
        }
    }
}
