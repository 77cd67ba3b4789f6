//! The table as a file, so that a restart is warm: 38 bytes for a peer of IPv4, 50 for one of IPv6.
//!
//! Pure: bytes from peers and peers from bytes. Always: what is read is what was written, whole, for this
//! network; anything else is a typed error, and the node starts cold.
//!
//! `rondhtrt`, version (u16), network (16 bytes), count (u16), two bits for each peer (IPv6, dead), the peers,
//! and the first eight bytes of the BLAKE3 of all that. Numbers are big-endian.

use std::net::{IpAddr, SocketAddr};

use crate::{
    contact::Contact,
    id::{BUCKETS, Id},
};

use super::{K_MAX, Table, Update};

/// A peer that an earlier life of this node had proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SavedPeer {
    pub contact: Contact,
    pub dead: bool,
}

/// Why a file is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    #[error("it is not a saved routing table")]
    Foreign,
    #[error(
        "it was written by a newer version ({found}): start that one, or remove the file to start cold"
    )]
    Newer { found: u16 },
    #[error("it belongs to another network")]
    OtherNetwork,
    #[error("it is torn or damaged")]
    Damaged,
}

/// The most that one table can hold.
pub const MAX_PEERS: usize = BUCKETS * K_MAX;

/// The longest file that is worth reading.
pub const MAX_BYTES: usize = HEADER + MAX_PEERS.div_ceil(4) + MAX_PEERS * V6 + CHECKSUM;

const MAGIC: &[u8; 8] = b"rondhtrt";
const VERSION: u16 = 1;
const HEADER: usize = 8 + 2 + 16 + 2;
const CHECKSUM: usize = 8;
const V4: usize = 32 + 4 + 2;
const V6: usize = 32 + 16 + 2;

impl SavedError {
    pub fn code(self) -> &'static str {
        match self {
            SavedError::Foreign => "foreign",
            SavedError::Newer { .. } => "newer",
            SavedError::OtherNetwork => "other_network",
            SavedError::Damaged => "damaged",
        }
    }
}

impl SavedPeer {
    /// What its bucket is to be told.
    pub fn update(&self) -> Update {
        Update::Saved {
            contact: self.contact,
            dead: self.dead,
        }
    }
}

/// Every peer of the table in the order in which a new one is to be told of them.
pub fn peers(table: &Table) -> Vec<SavedPeer> {
    let peer = |e: &super::Entry| SavedPeer {
        contact: e.contact,
        dead: e.is_dead(),
    };
    let views = table.buckets();
    views
        .flat_map(|(_, view)| view.iter().map(peer).collect::<Vec<_>>())
        .collect()
}

/// Peers beyond [`MAX_PEERS`] are left out.
pub fn encode(network: &[u8; 16], peers: &[SavedPeer]) -> Vec<u8> {
    let peers = &peers[..peers.len().min(MAX_PEERS)];
    let bits = peers.len().div_ceil(4);
    let mut out = Vec::with_capacity(HEADER + bits + peers.len() * V4 + CHECKSUM);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(network);
    out.extend_from_slice(&(peers.len() as u16).to_be_bytes());
    out.resize(HEADER + bits, 0);
    for (at, peer) in peers.iter().enumerate() {
        let is_v6 = peer.contact.addr.ip().is_ipv6();
        let pair = u8::from(is_v6) | u8::from(peer.dead) << 1;
        out[HEADER + at / 4] |= pair << (2 * (at % 4));
        out.extend_from_slice(&peer.contact.id.0);
        match peer.contact.addr.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
        out.extend_from_slice(&peer.contact.addr.port().to_be_bytes());
    }
    let sum = checksum(&out);
    out.extend_from_slice(&sum);
    out
}

/// Allocates for as many peers as the file really has.
pub fn decode(bytes: &[u8], network: &[u8; 16]) -> Result<Vec<SavedPeer>, SavedError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SavedError::Foreign)?;
    let (version, rest) = rest.split_first_chunk().ok_or(SavedError::Damaged)?;
    match u16::from_be_bytes(*version) {
        VERSION => {}
        found if found > VERSION => return Err(SavedError::Newer { found }),
        _ => return Err(SavedError::Foreign),
    }
    let (body, sum) = bytes
        .split_last_chunk::<CHECKSUM>()
        .ok_or(SavedError::Damaged)?;
    if checksum(body) != *sum {
        return Err(SavedError::Damaged);
    }
    let (of, rest) = rest.split_first_chunk::<16>().ok_or(SavedError::Damaged)?;
    if of != network {
        return Err(SavedError::OtherNetwork);
    }
    let rest = rest.strip_suffix(sum).ok_or(SavedError::Damaged)?;
    read_peers(rest).ok_or(SavedError::Damaged)
}

fn read_peers(rest: &[u8]) -> Option<Vec<SavedPeer>> {
    let (count, rest) = rest.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let (bits, mut rest) = rest.split_at_checked(count.div_ceil(4))?;
    let pair = |at: usize| bits[at / 4] >> (2 * (at % 4));
    let len: usize = (0..count)
        .map(|at| if pair(at) & 1 == 0 { V4 } else { V6 })
        .sum();
    if rest.len() != len {
        return None;
    }
    let mut peers = Vec::with_capacity(count);
    for at in 0..count {
        let (id, after) = rest.split_first_chunk()?;
        let (ip, after) = if pair(at) & 1 == 0 {
            let (ip, after) = after.split_first_chunk::<4>()?;
            (IpAddr::from(*ip), after)
        } else {
            let (ip, after) = after.split_first_chunk::<16>()?;
            (IpAddr::from(*ip), after)
        };
        let (port, after) = after.split_first_chunk()?;
        rest = after;
        let addr = SocketAddr::new(ip, u16::from_be_bytes(*port)).into();
        let contact = Contact { id: Id(*id), addr };
        let dead = pair(at) & 2 != 0;
        peers.push(SavedPeer { contact, dead });
    }
    Some(peers)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECKSUM]);
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NETWORK: [u8; 16] = [7; 16];

    fn peer() -> impl Strategy<Value = SavedPeer> {
        let ip = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ];
        (any::<[u8; 32]>(), ip, any::<u16>(), any::<bool>()).prop_map(|(id, ip, port, dead)| {
            SavedPeer {
                contact: Contact {
                    id: Id(id),
                    addr: SocketAddr::new(ip, port).into(),
                },
                dead,
            }
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(peers in prop::collection::vec(peer(), 0..60)) {
            let file = encode(&NETWORK, &peers);
            prop_assert!(file.len() <= MAX_BYTES);
            prop_assert_eq!(decode(&file, &NETWORK), Ok(peers));
        }

        #[test]
        fn a_torn_or_damaged_file_is_refused_as_a_whole(
            peers in prop::collection::vec(peer(), 0..20),
            at: prop::sample::Index,
            flip in 1_u8..,
        ) {
            let file = encode(&NETWORK, &peers);
            let cut = at.index(file.len());
            prop_assert!(decode(&file[..cut], &NETWORK).is_err());
            let mut longer = file.clone();
            longer.push(flip);
            prop_assert_eq!(decode(&longer, &NETWORK), Err(SavedError::Damaged));
            let mut bad = file;
            bad[cut] ^= flip;
            prop_assert!(decode(&bad, &NETWORK).is_err());
        }

        #[test]
        fn no_bytes_panic_even_with_a_sound_checksum(body: Vec<u8>, head in 0_usize..HEADER) {
            let _ = decode(&body, &NETWORK);
            let mut file = encode(&NETWORK, &[])[..head].to_vec();
            file.extend_from_slice(&body);
            let sum = checksum(&file);
            file.extend_from_slice(&sum);
            if let Ok(peers) = decode(&file, &NETWORK) {
                prop_assert!(peers.len() * V4 <= file.len());
            }
        }
    }

    #[test]
    fn each_fault_has_its_error() {
        let file = encode(&NETWORK, &[]);
        assert_eq!(decode(&file, &[8; 16]), Err(SavedError::OtherNetwork));
        assert_eq!(decode(b"", &NETWORK), Err(SavedError::Foreign));
        assert_eq!(
            decode(b"something else entirely", &NETWORK),
            Err(SavedError::Foreign)
        );
        let mut newer = file.clone();
        newer[9] = 2;
        assert_eq!(
            decode(&newer, &NETWORK),
            Err(SavedError::Newer { found: 2 })
        );
        assert_eq!(decode(&file[..20], &NETWORK), Err(SavedError::Damaged));
    }

    #[test]
    fn a_peer_of_ipv4_takes_thirty_eight_bytes_and_two_bits() {
        let contact = Contact {
            id: Id([1; 32]),
            addr: SocketAddr::from(([10, 0, 0, 1], 1)).into(),
        };
        let peers = [SavedPeer {
            contact,
            dead: false,
        }; 200];
        let file = encode(&NETWORK, &peers);
        assert_eq!(file.len(), HEADER + 50 + 200 * 38 + CHECKSUM);
    }
}
