//! The RFC 6962 Merkle tree over SHA-256: root from the right edge, proofs, and their verification.
//!
//! The log grows without bound, the tree here does not: [`Frontier`] keeps one hash per set bit of the
//! size, and proofs ask a [`Nodes`] (the published tiles) for the complete subtrees they need.
//! Always: what is proven here verifies here, and a proof of anything else does not.

use aws_lc_rs::digest;

pub type Hash = [u8; 32];

/// The root of the empty tree is the hash of nothing.
pub fn empty_root() -> Hash {
    finish(digest::Context::new(&digest::SHA256))
}

pub fn leaf_hash(leaf: &[u8]) -> Hash {
    sha256(&[&[0x00], leaf])
}

pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[0x01], left, right])
}

/// SHA-256 over the parts, one behind the other. What is short is joined first: a hash in pieces needs memory
/// of its own, which costs more than a small copy.
pub(super) fn sha256(parts: &[&[u8]]) -> Hash {
    let mut joined = [0; SHORT];
    let mut rest = &mut joined[..];
    for part in parts {
        let Some((at, after)) = rest.split_at_mut_checked(part.len()) else {
            return sha256_in_pieces(parts);
        };
        at.copy_from_slice(part);
        rest = after;
    }
    let free = rest.len();
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, &joined[..SHORT - free]).as_ref());
    hash
}

/// A frame of one signature is no longer.
const SHORT: usize = 512;

fn sha256_in_pieces(parts: &[&[u8]]) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    finish(context)
}

/// The right edge of a growing tree: the roots of its complete subtrees, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        // Each trailing one of the size is a peak that the new leaf completes into a larger one.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                hash = node_hash(&left, &hash);
            }
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => empty_root(),
            Some(last) => peaks.fold(*last, |right, left| node_hash(left, &right)),
        }
    }
}

/// Where proofs find hashes: complete subtrees of `2^level` leaves, counted from the left.
pub trait Nodes {
    fn node(&self, level: u8, index: u64) -> Result<Hash, NoNode>;
}

/// A hash that a proof needs is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no hash for subtree {index} of level {level}: {why}")]
pub struct NoNode {
    pub level: u8,
    pub index: u64,
    pub why: String,
}

/// Why there is no proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProveError {
    #[error("entry {index} is not in a tree of {size} entries")]
    NotInTree { index: u64, size: u64 },
    #[error("a tree of {old} entries cannot grow to {new}")]
    Shrinks { old: u64, new: u64 },
    #[error(transparent)]
    NoNode(NoNode),
}

/// Why a proof does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("entry {index} cannot be in a tree of {size} entries")]
    NotInTree { index: u64, size: u64 },
    #[error("a tree of {old} entries cannot be the past of one of {new}")]
    Shrinks { old: u64, new: u64 },
    #[error("the proof has {got} hashes, which does not fit the tree")]
    WrongLength { got: usize },
    #[error("the proof leads to another root")]
    WrongRoot,
}

/// The root at a size, from its complete subtrees.
pub fn root_at(size: u64, nodes: &impl Nodes) -> Result<Hash, NoNode> {
    if size == 0 {
        return Ok(empty_root());
    }
    range_hash(0, size, nodes)
}

/// The hashes beside the path from entry `index` to the root of a tree of `size`, nearest first.
pub fn prove_inclusion(index: u64, size: u64, nodes: &impl Nodes) -> Result<Vec<Hash>, ProveError> {
    if index >= size {
        return Err(ProveError::NotInTree { index, size });
    }
    let (mut low, mut high) = (0, size);
    let mut path = Vec::new();
    while high - low > 1 {
        let middle = low + split(high - low);
        let (beside, inside) = if index < middle {
            ((middle, high), (low, middle))
        } else {
            ((low, middle), (middle, high))
        };
        path.push(range_hash(beside.0, beside.1, nodes).map_err(ProveError::NoNode)?);
        (low, high) = inside;
    }
    path.reverse();
    Ok(path)
}

/// The hashes that show the tree of `old` entries to be a prefix of the tree of `new`.
pub fn prove_consistency(old: u64, new: u64, nodes: &impl Nodes) -> Result<Vec<Hash>, ProveError> {
    if old > new {
        return Err(ProveError::Shrinks { old, new });
    }
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let hash = |low, high| range_hash(low, high, nodes).map_err(ProveError::NoNode);
    let (mut low, mut high) = (0, new);
    let mut path = Vec::new();
    // Down to the subtree in which the old tree ends; what lies beside the way is the proof.
    while high != old {
        let middle = low + split(high - low);
        if old <= middle {
            path.push(hash(middle, high)?);
            high = middle;
        } else {
            path.push(hash(low, middle)?);
            low = middle;
        }
    }
    if low > 0 {
        path.push(hash(low, high)?);
    }
    path.reverse();
    Ok(path)
}

pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::NotInTree { index, size });
    }
    let wrong_length = ProofError::WrongLength { got: proof.len() };
    let (mut at, mut last, mut hash) = (index, size - 1, *leaf);
    for beside in proof {
        if last == 0 {
            return Err(wrong_length);
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(beside, &hash);
            // On the right edge a node may have no sibling for several levels.
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            hash = node_hash(&hash, beside);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    match (last, hash == *root) {
        (0, true) => Ok(()),
        (0, false) => Err(ProofError::WrongRoot),
        _ => Err(wrong_length),
    }
}

pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    proof: &[Hash],
) -> Result<(), ProofError> {
    let wrong_length = ProofError::WrongLength { got: proof.len() };
    if old > new {
        return Err(ProofError::Shrinks { old, new });
    }
    if old == new || old == 0 {
        let expected = if old == new { *new_root } else { empty_root() };
        return match (proof.is_empty(), *old_root == expected) {
            (false, _) => Err(wrong_length),
            (true, false) => Err(ProofError::WrongRoot),
            (true, true) => Ok(()),
        };
    }
    // A complete old tree is a node of the new one: its own root starts the path.
    let (first, rest) = match (old.is_power_of_two(), proof.split_first()) {
        (true, _) => (old_root, proof),
        (false, Some(parts)) => parts,
        (false, None) => return Err(wrong_length),
    };
    let (mut at, mut last) = (old - 1, new - 1);
    while at & 1 == 1 {
        (at, last) = (at >> 1, last >> 1);
    }
    let (mut old_hash, mut new_hash) = (*first, *first);
    for beside in rest {
        if last == 0 {
            return Err(wrong_length);
        }
        if at & 1 == 1 || at == last {
            old_hash = node_hash(beside, &old_hash);
            new_hash = node_hash(beside, &new_hash);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            new_hash = node_hash(&new_hash, beside);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    match (last, old_hash == *old_root && new_hash == *new_root) {
        (0, true) => Ok(()),
        (0, false) => Err(ProofError::WrongRoot),
        _ => Err(wrong_length),
    }
}

/// Leaves of the left subtree: the largest power of two below `n`, for `n > 1`.
fn split(n: u64) -> u64 {
    1 << (n - 1).ilog2()
}

/// The hash over `[low, high)`, where `low` is a multiple of the next power of two.
fn range_hash(low: u64, high: u64, nodes: &impl Nodes) -> Result<Hash, NoNode> {
    let n = high - low;
    if n.is_power_of_two() {
        let level = n.trailing_zeros();
        return nodes.node(level as u8, low >> level);
    }
    let middle = low + split(n);
    let left = range_hash(low, middle, nodes)?;
    let right = range_hash(middle, high, nodes)?;
    Ok(node_hash(&left, &right))
}

fn finish(context: digest::Context) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of RFC 6962, word by word.
    fn reference_root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            _ => {
                let (left, right) = leaves.split_at(largest_power_below(leaves.len()));
                node_hash(&reference_root(left), &reference_root(right))
            }
        }
    }

    fn reference_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() == 1 {
            return Vec::new();
        }
        let k = largest_power_below(leaves.len());
        let (left, right) = leaves.split_at(k);
        let (mut path, beside) = if index < k {
            (reference_path(index, left), right)
        } else {
            (reference_path(index - k, right), left)
        };
        path.push(reference_root(beside));
        path
    }

    fn reference_consistency(old: usize, leaves: &[Hash], complete: bool) -> Vec<Hash> {
        if old == leaves.len() {
            return match complete {
                true => Vec::new(),
                false => vec![reference_root(leaves)],
            };
        }
        let k = largest_power_below(leaves.len());
        let (left, right) = leaves.split_at(k);
        let (mut path, beside) = if old <= k {
            (reference_consistency(old, left, complete), right)
        } else {
            (reference_consistency(old - k, right, false), left)
        };
        path.push(reference_root(beside));
        path
    }

    fn largest_power_below(n: usize) -> usize {
        let mut k = 1;
        while k * 2 < n {
            k *= 2;
        }
        k
    }

    struct All(Vec<Hash>);

    impl Nodes for All {
        fn node(&self, level: u8, index: u64) -> Result<Hash, NoNode> {
            let width = 1_usize << level;
            let start = index as usize * width;
            Ok(reference_root(&self.0[start..start + width]))
        }
    }

    fn leaves(n: usize) -> Vec<Hash> {
        (0..n)
            .map(|n| leaf_hash(format!("entry {n}").as_bytes()))
            .collect()
    }

    fn hex(hash: &Hash) -> String {
        hash.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn hashes_are_those_of_the_rfc() {
        // SHA-256 of nothing, and of the one byte 0x00.
        assert_eq!(
            hex(&empty_root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            hex(&leaf_hash(b"")),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
        );
    }

    #[test]
    fn the_right_edge_gives_the_reference_root_at_every_size() {
        let all = leaves(300);
        let mut frontier = Frontier::default();
        for size in 0..=all.len() {
            assert_eq!(frontier.size(), size as u64);
            assert_eq!(frontier.root(), reference_root(&all[..size]), "size {size}");
            assert_eq!(frontier.peaks.len() as u32, (size as u64).count_ones());
            let whole = All(all.clone());
            assert_eq!(root_at(size as u64, &whole), Ok(frontier.root()));
            if size < all.len() {
                frontier.push(all[size]);
            }
        }
    }

    #[test]
    fn every_inclusion_proof_of_small_trees_is_the_reference_and_verifies() {
        let all = leaves(130);
        let nodes = All(all.clone());
        for size in 1..=all.len() {
            let root = reference_root(&all[..size]);
            for index in 0..size {
                let proof = prove_inclusion(index as u64, size as u64, &nodes).unwrap();
                assert_eq!(proof, reference_path(index, &all[..size]), "{index}/{size}");
                let check = |index, leaf: &Hash, proof: &[Hash]| {
                    verify_inclusion(leaf, index, size as u64, proof, &root)
                };
                assert_eq!(check(index as u64, &all[index], &proof), Ok(()));
                let other = (index + 1) % size;
                if other != index {
                    assert!(check(other as u64, &all[index], &proof).is_err());
                    assert!(check(index as u64, &all[other], &proof).is_err());
                }
            }
        }
    }

    #[test]
    fn every_consistency_proof_of_small_trees_is_the_reference_and_verifies() {
        let all = leaves(130);
        let nodes = All(all.clone());
        let roots: Vec<Hash> = (0..=all.len()).map(|n| reference_root(&all[..n])).collect();
        for new in 0..=all.len() {
            for old in 0..=new {
                let proof = prove_consistency(old as u64, new as u64, &nodes).unwrap();
                if old > 0 {
                    let expected = reference_consistency(old, &all[..new], true);
                    assert_eq!(proof, expected, "{old}/{new}");
                }
                let check = |old_root: &Hash, new_root: &Hash, proof: &[Hash]| {
                    verify_consistency(old as u64, old_root, new as u64, new_root, proof)
                };
                assert_eq!(check(&roots[old], &roots[new], &proof), Ok(()));
                assert!(check(&[7; 32], &roots[new], &proof).is_err());
                if old > 0 {
                    assert!(check(&roots[old], &[7; 32], &proof).is_err());
                }
                let mut longer = proof.clone();
                longer.push([7; 32]);
                assert!(check(&roots[old], &roots[new], &longer).is_err());
            }
        }
    }

    #[test]
    fn what_is_not_in_the_tree_is_neither_proven_nor_verified() {
        let nodes = All(leaves(8));
        let not_in_tree = |index, size| ProveError::NotInTree { index, size };
        assert_eq!(prove_inclusion(8, 8, &nodes), Err(not_in_tree(8, 8)));
        assert_eq!(prove_inclusion(0, 0, &nodes), Err(not_in_tree(0, 0)));
        assert_eq!(
            prove_consistency(3, 2, &nodes),
            Err(ProveError::Shrinks { old: 3, new: 2 })
        );
        assert_eq!(
            verify_inclusion(&[0; 32], 8, 8, &[], &[0; 32]),
            Err(ProofError::NotInTree { index: 8, size: 8 })
        );
        assert_eq!(
            verify_consistency(3, &[0; 32], 2, &[0; 32], &[]),
            Err(ProofError::Shrinks { old: 3, new: 2 })
        );
        // The extremes of the number range neither overflow nor loop for ever.
        assert!(verify_inclusion(&[0; 32], u64::MAX - 1, u64::MAX, &[], &[0; 32]).is_err());
        let long = vec![[0; 32]; 100];
        assert!(verify_inclusion(&[0; 32], 0, u64::MAX, &long, &[0; 32]).is_err());
        assert!(verify_consistency(1, &[0; 32], u64::MAX, &[0; 32], &long).is_err());
    }

    proptest! {
        #[test]
        fn proofs_of_larger_trees_are_the_reference(size in 131_usize..2000, a in 0_usize..2000, b in 0_usize..2000) {
            let all = leaves(size);
            let nodes = All(all.clone());
            let root = reference_root(&all);
            let (index, old) = (a % size, 1 + b % size);
            let proof = prove_inclusion(index as u64, size as u64, &nodes).unwrap();
            prop_assert_eq!(&proof, &reference_path(index, &all));
            prop_assert_eq!(verify_inclusion(&all[index], index as u64, size as u64, &proof, &root), Ok(()));
            let growth = prove_consistency(old as u64, size as u64, &nodes).unwrap();
            let old_root = reference_root(&all[..old]);
            prop_assert_eq!(verify_consistency(old as u64, &old_root, size as u64, &root, &growth), Ok(()));
        }

        #[test]
        fn a_flipped_bit_in_a_proof_is_refused(size in 2_usize..300, a in 0_usize..300, at in 0_usize..64, bit in 0_u8..8) {
            let all = leaves(size);
            let index = a % size;
            let root = reference_root(&all);
            let mut proof = reference_path(index, &all);
            let place = at % proof.len();
            proof[place][at % 32] ^= 1 << bit;
            prop_assert_eq!(
                verify_inclusion(&all[index], index as u64, size as u64, &proof, &root),
                Err(ProofError::WrongRoot)
            );
        }
    }
}
