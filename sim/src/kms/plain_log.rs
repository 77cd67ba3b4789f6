//! The audit log read a second time, by the formats alone: frames, Merkle tree, tiles, checkpoint.
//!
//! Nothing of ron-kms decides here. Whoever reads with the code that wrote finds its own mistakes in order; this
//! reader is slow and obvious, and knows only what the page of the service and C2SP tell.

use std::{collections::BTreeMap, time::Duration};

use aws_lc_rs::{
    digest,
    signature::{ED25519, UnparsedPublicKey},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{clock, disk::SimDisk};

pub type Hash = [u8; 32];

const HEADER: usize = 8 + 2 + 16 + 8;
const HEAD: usize = 4 + 2 + 4 + 8 + 8;
const TILE: usize = 256;
const YEAR_S: u64 = 365 * 24 * 3600;

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeHead {
    pub size: u64,
    pub root: Hash,
}

pub fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().unwrap_or_default()
}

pub fn leaf_hash(entry: &[u8]) -> Hash {
    sha256(&[&[0], entry])
}

pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// The root of a tree, as RFC 6962 defines it: split at the largest power of two below its size.
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => sha256(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node_hash(&root(left), &root(right))
        }
    }
}

/// The root that a path leads to, as RFC 9162 walks it; `None` if the path is no path of such a tree.
pub fn root_by_path(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if size < 2 {
        return (index == 0 && size == 1 && path.is_empty()).then_some(leaf);
    }
    let half = size.next_power_of_two() / 2;
    let (beside, below) = path.split_last()?;
    match index < half {
        true => Some(node_hash(&root_by_path(leaf, index, half, below)?, beside)),
        false => {
            let right = root_by_path(leaf, index - half, size - half, below)?;
            Some(node_hash(beside, &right))
        }
    }
}

/// A signed note's text: origin, size, root.
pub fn tree_head(note: &str) -> Option<TreeHead> {
    let mut lines = note.lines().skip(1);
    let size = lines.next()?.parse().ok()?;
    let root = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
    Some(TreeHead { size, root })
}

/// The first entry of a bundle, and what follows it.
pub fn one_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// A proof as `c2sp.org/tlog-proof@v1` has it: index, path, an empty line, the signed checkpoint.
pub fn leads_to_its_root(proof: &[u8], index: u64, entry: &[u8]) -> bool {
    let leads = || {
        let (head, note) = std::str::from_utf8(proof).ok()?.split_once("\n\n")?;
        let mut lines = head.lines().skip_while(|line| !line.starts_with("index "));
        let told: u64 = lines.next()?.strip_prefix("index ")?.parse().ok()?;
        let path = lines.map(|line| STANDARD.decode(line).ok()?.try_into().ok());
        let path = path.collect::<Option<Vec<Hash>>>()?;
        let under = tree_head(note)?;
        let found = root_by_path(leaf_hash(entry), index, under.size, &path)?;
        Some(told == index && found == under.root)
    };
    leads().unwrap_or(false)
}

/// The Ed25519 line of a note, checked with the key that stands beside it.
pub fn is_signed(note: &str, keys: &str) -> bool {
    let Some((text, signatures)) = note.split_once("\n\n") else {
        return false;
    };
    let text = format!("{text}\n");
    let publics = keys.lines().filter_map(|line| {
        // Base64 has a plus, too.
        let encoded = line.splitn(3, '+').nth(2)?;
        let bytes = STANDARD.decode(encoded.trim()).ok()?;
        let (kind, public) = bytes.split_first()?;
        (*kind == 1).then(|| public.to_vec())
    });
    let publics: Vec<Vec<u8>> = publics.collect();
    signatures.lines().any(|line| {
        let encoded = line.rsplit(' ').next().unwrap_or_default();
        let bytes = STANDARD.decode(encoded).unwrap_or_default();
        let signature = bytes.get(4..).unwrap_or_default();
        let verifies = |public: &Vec<u8>| {
            let key = UnparsedPublicKey::new(&ED25519, public);
            key.verify(text.as_bytes(), signature).is_ok()
        };
        publics.iter().any(verifies)
    })
}

/// When the log says that it signed, by its cosignature: kind 6 of a note, the time before the signature.
pub fn signed_at(note: &str, keys: &str) -> Option<u64> {
    let mut keys = keys.lines().filter_map(|line| {
        let mut parts = line.splitn(3, '+').skip(1);
        let (id, public) = (parts.next()?, STANDARD.decode(parts.next()?.trim()).ok()?);
        (public.first() == Some(&6)).then(|| u32::from_str_radix(id, 16).ok())?
    });
    let id = keys.next()?.to_be_bytes();
    let mut lines = note.split_once("\n\n")?.1.lines();
    lines.find_map(|line| {
        let bytes = STANDARD.decode(line.rsplit(' ').next()?).ok()?;
        let rest = bytes.strip_prefix(&id)?;
        Some(u64::from_be_bytes(*rest.first_chunk()?))
    })
}

/// The leaves of a file of records, up to the first frame that is not whole.
pub fn leaves(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = file.get(HEADER..).unwrap_or_default();
    let mut leaves = Vec::new();
    while let Some((leaf, behind)) = frame(rest) {
        leaves.push(leaf);
        rest = behind;
    }
    leaves
}

fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (covered, check) = head.split_at(HEAD - 8);
    let leaf = usize::from(u16::from_be_bytes(covered[4..6].try_into().ok()?));
    let attachment = u32::from_be_bytes(covered[6..10].try_into().ok()?) as usize;
    let (leaf, rest) = rest.split_at_checked(leaf)?;
    let (attachment, rest) = rest.split_at_checked(attachment)?;
    let whole =
        covered.starts_with(b"\xabRKF") && sha256(&[covered, leaf, attachment]).starts_with(check);
    whole.then_some((leaf, rest))
}

/// Everything that a node publishes, against its records: `Err` says what is wrong. A log without a checkpoint has
/// nothing to compare yet.
pub fn check(disk: &SimDisk, seen: &BTreeMap<u64, Hash>) -> Result<(), String> {
    let text = |path: &str| {
        disk.read_file(path)
            .map(|b| String::from_utf8_lossy(&b).into_owned())
    };
    let Some(note) = text("audit/checkpoint") else {
        return Ok(());
    };
    let head = tree_head(&note).ok_or("the checkpoint cannot be read")?;
    if !is_signed(&note, &text("audit/keys.txt").unwrap_or_default()) {
        return Err("the checkpoint is signed by none of the log's keys".to_owned());
    }
    match signed_at(&note, &text("audit/keys.txt").unwrap_or_default()) {
        None => return Err("the checkpoint says not when it was signed".to_owned()),
        // Clocks may be wrong by days, not by years.
        Some(at) if at + YEAR_S < clock::wall_ms_at(Duration::ZERO) / 1000 => {
            return Err(format!("the checkpoint says that it was signed at {at}"));
        }
        Some(_) => {}
    }
    let file = disk.read_file("audit/log").unwrap_or_default();
    let leaves = leaves(&file);
    let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
    let covered = head.size as usize;
    let Some(under) = hashes.get(..covered) else {
        let there = hashes.len();
        return Err(format!(
            "the checkpoint covers {covered} records, {there} are there"
        ));
    };
    if root(under) != head.root {
        return Err(format!(
            "the root over {covered} records is another than the checkpoint's"
        ));
    }
    check_tiles(disk, &leaves[..covered], under)?;
    for (size, told) in seen {
        let Some(under) = hashes.get(..*size as usize) else {
            return Err(format!(
                "a checkpoint over {size} records was shown, and they are gone"
            ));
        };
        if root(under) != *told {
            return Err(format!(
                "what a checkpoint over {size} records covered has changed since"
            ));
        }
    }
    Ok(())
}

/// Every tile of the covered tree is there and holds what it must.
fn check_tiles(disk: &SimDisk, entries: &[&[u8]], leaves: &[Hash]) -> Result<(), String> {
    for (index, bundle) in entries.chunks(TILE).enumerate() {
        let path = tile_path("entries", index, bundle.len());
        let bytes = bundle.iter().flat_map(|entry| {
            let length = (entry.len() as u16).to_be_bytes();
            length.into_iter().chain(entry.iter().copied())
        });
        check_tile(disk, &path, bytes.collect())?;
    }
    let mut level: Vec<Hash> = leaves.to_vec();
    for height in 0.. {
        for (index, tile) in level.chunks(TILE).enumerate() {
            let path = tile_path(&height.to_string(), index, tile.len());
            check_tile(disk, &path, tile.concat())?;
        }
        let whole = level.chunks_exact(TILE);
        level = whole.map(root).collect();
        if level.is_empty() {
            break;
        }
    }
    Ok(())
}

fn check_tile(disk: &SimDisk, path: &str, expected: Vec<u8>) -> Result<(), String> {
    match disk.read_file(path) {
        None => Err(format!("{path} is not there")),
        Some(bytes) if bytes != expected => Err(format!("{path} holds something else")),
        Some(_) => Ok(()),
    }
}

/// Below a thousand tiles, which is more than a run fills.
fn tile_path(kind: &str, index: usize, width: usize) -> String {
    match width {
        TILE => format!("audit/tile/{kind}/{index:03}"),
        width => format!("audit/tile/{kind}/{index:03}.p/{width}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(size: u8) -> Vec<Hash> {
        (0..size).map(|n| leaf_hash(&[n])).collect()
    }

    /// The path of a leaf, by the definition.
    fn path(leaves: &[Hash], index: usize) -> Vec<Hash> {
        if leaves.len() < 2 {
            return Vec::new();
        }
        let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
        let (mut below, beside) = match index < left.len() {
            true => (path(left, index), root(right)),
            false => (path(right, index - left.len()), root(left)),
        };
        below.push(beside);
        below
    }

    /// From RFC 6962's reference trees: the empty tree, and the first leaf, which is empty.
    #[test]
    fn known_roots() {
        let hex = |hash: Hash| hash.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(root(&[])),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            hex(leaf_hash(b"")),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
        );
    }

    #[test]
    fn a_path_leads_to_the_root_from_its_own_leaf_alone() {
        for size in 1..40u8 {
            let leaves = tree(size);
            let whole = root(&leaves);
            for index in 0..size {
                let path = path(&leaves, index.into());
                let size = u64::from(size);
                let leaf = leaves[usize::from(index)];
                assert_eq!(root_by_path(leaf, index.into(), size, &path), Some(whole));
                assert_ne!(
                    root_by_path(leaf_hash(b"x"), index.into(), size, &path),
                    Some(whole)
                );
                let longer: Vec<Hash> = path.iter().copied().chain([leaf]).collect();
                assert_eq!(root_by_path(leaf, index.into(), size, &longer), None);
            }
        }
    }
}
