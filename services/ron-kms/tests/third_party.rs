//! The published log read by code not written here: crates `signed_note` and `tlog_tiles`.
//!
//! They verify the checkpoint's Ed25519 line, rebuild the root from all entries, and compare every tile
//! with their own. Our entry bundles have no reader there; their format is two bytes of length each.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{Ed25519KeyPair, ML_DSA_44_SIGNING, PqdsaKeyPair};
use ron_kms::audit::{
    checkpoint::{Checkpoint, SigningKeys},
    merkle::{Frontier, prove_consistency, prove_inclusion},
    publish::Edge,
    tiles::{Kind, Tile, TileNodes, growth},
};
use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{Hash, HashReader, TileHashReader, TileReader};

const ORIGIN: &str = "example.com/kms";

/// A published log: what a web server would serve, by path.
#[derive(Clone)]
struct Site {
    files: BTreeMap<String, Vec<u8>>,
    checkpoint: Vec<u8>,
    verifier: String,
}

fn entry(n: u64) -> Vec<u8> {
    format!(
        "{{\"index\":{n},\"padding\":\"{}\"}}",
        "x".repeat(n as usize % 40)
    )
    .into_bytes()
}

/// Publishes at each of the sizes, as checkpoints would.
fn publish(sizes: &[u64]) -> Site {
    let ed25519 = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let ml_dsa_44 = PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, &[9; 32]).unwrap();
    let keys = SigningKeys {
        ed25519: &ed25519,
        ml_dsa_44: &ml_dsa_44,
    };
    let (mut edge, mut frontier) = (Edge::default(), Frontier::default());
    let mut files = BTreeMap::new();
    for &size in sizes {
        while edge.size() < size {
            frontier.push(edge.push(&entry(edge.size())).unwrap());
        }
        let pending = edge.pending().unwrap();
        files.extend(
            pending
                .into_iter()
                .map(|f| (f.tile.path(), f.bytes.to_vec())),
        );
        edge.published(size);
    }
    let head = Checkpoint {
        origin: ORIGIN.into(),
        size: edge.size(),
        root: frontier.root(),
    };
    Site {
        files,
        checkpoint: head
            .sign(&keys, 1_700_000_000)
            .unwrap()
            .encode()
            .into_bytes(),
        verifier: keys.verifiers(ORIGIN).unwrap()[0].encode(),
    }
}

/// Their store of hashes, filled from our entries.
struct Stored(Vec<Hash>);

impl HashReader for Stored {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, tlog_tiles::Error> {
        Ok(indexes.iter().map(|i| self.0[*i as usize]).collect())
    }
}

impl TileReader for Site {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, tiles: &[tlog_tiles::Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        let read = |tile: &tlog_tiles::Tile| {
            // Their paths name the tile height, those of the specification do not.
            let path = tile.path().replacen("tile/8/", "tile/", 1);
            self.files
                .get(&path)
                .cloned()
                .ok_or(tlog_tiles::Error::InvalidTile)
        };
        tiles.iter().map(read).collect()
    }

    fn save_tiles(&self, _: &[tlog_tiles::Tile], _: &[Vec<u8>]) {}
}

/// What an auditor does: everything from the published bytes and one public key.
fn audit(site: &Site) -> Result<(tlog_tiles::Checkpoint, Stored), String> {
    let note = Note::from_bytes(&site.checkpoint).map_err(|e| e.to_string())?;
    let verifier = StandardVerifier::new(&site.verifier).map_err(|e| format!("{e:?}"))?;
    let known = VerifierList::new(vec![Box::new(verifier)]);
    let (verified, others) = note.verify(&known).map_err(|e| e.to_string())?;
    assert_eq!(
        (verified.len(), others.len()),
        (1, 1),
        "the ML-DSA line is unknown to them"
    );
    let head = tlog_tiles::Checkpoint::from_bytes(note.text()).map_err(|e| e.to_string())?;
    if head.origin() != ORIGIN {
        return Err("another log".into());
    }
    let mut stored = Stored(Vec::new());
    for n in 0..head.size() {
        let entry = read_entry(site, n, head.size()).ok_or("an entry is missing")?;
        let hashes = tlog_tiles::stored_hashes(n, entry, &stored).map_err(|e| e.to_string())?;
        stored.0.extend(hashes);
    }
    let root = tlog_tiles::tree_hash(head.size(), &stored).map_err(|e| e.to_string())?;
    if root != *head.hash() {
        return Err("the entries have another root".into());
    }
    for tile in tlog_tiles::Tile::new_tiles(8, 0, head.size()) {
        let ours = site.read_tiles(&[tile]).map_err(|e| e.to_string())?;
        let theirs = tile.read_data(&stored).map_err(|e| e.to_string())?;
        if ours[0] != theirs {
            return Err(format!("{} differs", tile.path()));
        }
    }
    Ok((head, stored))
}

fn read_entry(site: &Site, n: u64, size: u64) -> Option<&[u8]> {
    let width = (size - n / 256 * 256).min(256);
    let bundle = Tile::new(Kind::Entries, n / 256, width as u16).ok()?;
    let mut bytes = &site.files.get(&bundle.path())?[..];
    for _ in 0..n % 256 {
        let (length, rest) = bytes.split_first_chunk()?;
        bytes = rest.get(usize::from(u16::from_be_bytes(*length))..)?;
    }
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[test]
fn others_verify_the_checkpoint_and_rebuild_its_root_from_all_entries() {
    for sizes in [&[1][..], &[255, 256], &[3, 300, 700], &[200, 66_000]] {
        let site = publish(sizes);
        let (head, _) = audit(&site).unwrap();
        assert_eq!(Some(&head.size()), sizes.last());
    }
}

#[test]
fn others_accept_our_proofs_and_find_their_own_hashes_in_our_tiles() {
    let site = publish(&[300, 700]);
    let (head, stored) = audit(&site).unwrap();
    let (size, root) = (head.size(), *head.hash());
    let read = |tile: &Tile| site.files.get(&tile.path()).cloned();
    let nodes = TileNodes { size, read };
    let to_theirs = |proof: Vec<[u8; 32]>| proof.into_iter().map(Hash).collect::<Vec<_>>();
    for index in [0, 1, 255, 256, 511, 699] {
        let proof = to_theirs(prove_inclusion(index, size, &nodes).unwrap());
        let leaf = tlog_tiles::record_hash(&entry(index));
        tlog_tiles::check_record(&proof, size, root, index, leaf).unwrap();
    }
    for old in [1, 256, 300, 699, 700] {
        let proof = to_theirs(prove_consistency(old, size, &nodes).unwrap());
        let old_root = tlog_tiles::tree_hash(old, &stored).unwrap();
        tlog_tiles::check_tree(&proof, size, root, old, old_root).unwrap();
    }
    let through_tiles = TileHashReader::new(size, root, &site);
    let leaf = tlog_tiles::stored_hash_index(0, 300);
    let hash = through_tiles.read_hashes(&[leaf]).unwrap();
    assert_eq!(hash, [tlog_tiles::record_hash(&entry(300))]);
}

#[test]
fn a_flipped_byte_in_any_file_or_in_the_signed_text_is_caught_by_others() {
    let site = publish(&[300, 700]);
    // Partial tiles of an older checkpoint are not part of this tree.
    let current = growth(0, 700);
    for path in current.iter().map(Tile::path) {
        let length = site.files[&path].len();
        for at in [0, length / 2, length - 1] {
            let mut bad = site.clone();
            bad.files.get_mut(&path).unwrap()[at] ^= 0x10;
            assert!(audit(&bad).is_err(), "{path} at {at}");
        }
    }
    // The text and the Ed25519 line; they do not know the ML-DSA line, which our own tests flip.
    let text = std::str::from_utf8(&site.checkpoint).unwrap();
    let ml_dsa_line = text.rfind('\u{2014}').unwrap();
    for at in 0..ml_dsa_line {
        let mut bad = site.clone();
        bad.checkpoint[at] ^= 1;
        assert!(audit(&bad).is_err(), "checkpoint at {at}");
    }
}
