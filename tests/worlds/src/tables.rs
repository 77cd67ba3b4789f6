//! The routing tables of a network that has been running for long: in every bucket `k` of those that belong there.
//!
//! Pure. Who is nearest is always known, as a node's own lookups see to; farther buckets hold whom the dice chose.

use sim::seed::{SimRng, pick};
use svc_dht::{contact::Contact, id::Id, routing::saved::SavedPeer};

/// All who could be in a table, by id.
pub struct Everybody {
    sorted: Vec<Contact>,
}

impl Everybody {
    pub fn new(mut all: Vec<Contact>) -> Everybody {
        all.sort_by_key(|contact| contact.id);
        Everybody { sorted: all }
    }

    /// What `me` would have saved.
    pub fn table_of(&self, me: &Id, k: usize, rng: &mut SimRng) -> Vec<SavedPeer> {
        let mut peers = Vec::new();
        // Ids that share a prefix lie together; each bit less shared is the next bucket.
        let mut near = self.range(me, 256);
        for bits in (0..256).rev() {
            let far = self.range(me, bits);
            let mut bucket: Vec<Contact> = self.sorted[far.0..near.0].to_vec();
            bucket.extend_from_slice(&self.sorted[near.1..far.1]);
            near = far;
            for chosen in 0..bucket.len().min(k) {
                let other = pick(rng, chosen as u64, bucket.len() as u64 - 1) as usize;
                bucket.swap(chosen, other);
                let contact = bucket[chosen];
                peers.push(SavedPeer {
                    contact,
                    dead: false,
                });
            }
        }
        peers
    }

    /// Where those lie that share at least so many leading bits with it.
    fn range(&self, id: &Id, bits: usize) -> (usize, usize) {
        let (mut low, mut high) = (id.0, id.0);
        for bit in bits..256 {
            low[bit / 8] &= !(128 >> (bit % 8));
            high[bit / 8] |= 128 >> (bit % 8);
        }
        let from = self.sorted.partition_point(|c| c.id.0 < low);
        let to = self.sorted.partition_point(|c| c.id.0 <= high);
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sim::seed;

    use super::*;

    #[test]
    fn a_table_holds_up_to_k_of_every_bucket_and_nobody_else() {
        let mut rng = seed::stream(1, "ids");
        let mut id = || {
            let words: [u64; 4] = std::array::from_fn(|_| pick(&mut rng, 0, u64::MAX));
            let mut id = [0; 32];
            for (bytes, word) in id.chunks_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
            Id(id)
        };
        let addr = SocketAddr::from(([10, 0, 0, 1], 1)).into();
        let all: Vec<Contact> = (0..500).map(|_| Contact { id: id(), addr }).collect();
        let me = all[7].id;
        let everybody = Everybody::new(all.clone());
        let table = everybody.table_of(&me, 20, &mut seed::stream(1, "table"));
        for bucket in 0..=255 {
            let belongs = |id: &Id| me.bucket_of(id) == Some(bucket);
            let there = all.iter().filter(|c| belongs(&c.id)).count();
            let mut known: Vec<Id> = table.iter().map(|p| p.contact.id).collect();
            known.retain(belongs);
            known.sort();
            known.dedup();
            assert_eq!(known.len(), there.min(20), "bucket {bucket}");
        }
        assert!(table.iter().all(|peer| peer.contact.id != me));
    }
}
