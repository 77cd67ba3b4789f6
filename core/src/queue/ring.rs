//! The items of a queue in order, its cap, and every count: no lock, no waker, no clock.
//!
//! What production runs, property tests drive and the model checker steps. Always: first in, first
//! out; `accepted = delivered + dropped + depth`; `depth <= high_water <= cap`; closed stays closed.

use std::{collections::VecDeque, error::Error, fmt};

use crate::view::QueueStats;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ring<T> {
    items: VecDeque<T>,
    cap: usize,
    closed: bool,
    high_water: usize,
    accepted: u64,
    refused: u64,
    delivered: u64,
    dropped: u64,
}

/// An item that did not get in, given back to its producer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused<T> {
    pub item: T,
    pub why: Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    Full,
    Closed,
}

impl<T> Ring<T> {
    /// A ring that could hold nothing would be of no use: a cap of 0 counts as 1. Memory grows with
    /// the depth reached, not with the cap, and is given back when all is taken.
    pub fn new(cap: usize) -> Self {
        Ring {
            items: VecDeque::new(),
            cap: cap.max(1),
            closed: false,
            high_water: 0,
            accepted: 0,
            refused: 0,
            delivered: 0,
            dropped: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn cap(&self) -> usize {
        self.cap
    }

    pub fn room(&self) -> usize {
        self.cap.saturating_sub(self.items.len())
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if waiting can help: full, and still open.
    pub fn is_full(&self) -> bool {
        !self.closed && self.items.len() >= self.cap
    }

    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// The last word on an item: in, or given back. Counted either way.
    pub fn put(&mut self, item: T) -> Result<(), Refused<T>> {
        if self.closed {
            crate::sometimes!("queue.closed_refuses");
            return Err(self.refuse(item, Refusal::Closed));
        }
        if self.items.len() >= self.cap {
            crate::sometimes!("queue.full");
            return Err(self.refuse(item, Refusal::Full));
        }
        self.items.push_back(item);
        self.accepted += 1;
        self.high_water = self.high_water.max(self.items.len());
        Ok(())
    }

    /// Whether an item could go in and straight out again: open, and nothing before it. Counted as if it had.
    pub fn pass(&mut self) -> bool {
        let free = !self.closed && self.items.is_empty();
        self.accepted += u64::from(free);
        self.delivered += u64::from(free);
        free
    }

    /// If the ring is full, throws away the oldest item that need not be kept, and returns it. A ring
    /// that is closed or has room loses nothing.
    pub fn make_room(&mut self, keep: impl Fn(&T) -> bool) -> Option<T> {
        if !self.is_full() {
            return None;
        }
        let free = |item: &T| !keep(item);
        let oldest = self.items.iter().position(free)?;
        self.dropped += 1;
        self.items.remove(oldest)
    }

    /// Counts an item whose producer went away before it got in.
    pub fn abandon(&mut self) {
        self.refused += 1;
    }

    pub fn take(&mut self) -> Option<T> {
        let item = self.items.pop_front()?;
        self.delivered += 1;
        self.release();
        Some(item)
    }

    /// The oldest items, `max` at most (0 counts as 1); `None` if there are none.
    pub fn take_batch(&mut self, max: usize) -> Option<Vec<T>> {
        if self.items.is_empty() {
            return None;
        }
        let count = max.max(1).min(self.items.len());
        self.delivered += count as u64;
        let batch = self.items.drain(..count).collect();
        self.release();
        Some(batch)
    }

    /// Nothing gets in any more; what is in can still be taken. Returns whether it was open.
    pub fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.closed, true)
    }

    /// Throws away everything in it, counted as dropped.
    pub fn clear(&mut self) -> Vec<T> {
        self.dropped += self.items.len() as u64;
        std::mem::take(&mut self.items).into()
    }

    pub fn stats(&self, name: &'static str) -> QueueStats {
        QueueStats {
            name,
            cap: self.cap,
            depth: self.items.len(),
            high_water: self.high_water,
            offered: self.accepted + self.refused,
            accepted: self.accepted,
            refused: self.refused,
            delivered: self.delivered,
            dropped: self.dropped,
        }
    }

    /// What a burst has grown it to is given back once it is through.
    fn release(&mut self) {
        /// Room that an empty ring keeps, so that small items one at a time cost no allocation.
        const KEPT_BYTES: usize = 128;
        if self.items.is_empty() && self.items.capacity() * size_of::<T>() > KEPT_BYTES {
            self.items = VecDeque::new();
        }
    }

    fn refuse(&mut self, item: T, why: Refusal) -> Refused<T> {
        self.refused += 1;
        Refused { item, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "the queue is full",
            Refusal::Closed => "the queue is closed",
        })
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

/// Does not ask the item to be printable, nor prints it: it may be a secret.
impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl<T> Error for Refused<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(cap: usize) -> Ring<u32> {
        let mut ring = Ring::new(cap);
        for item in 0..cap as u32 {
            ring.put(item).unwrap();
        }
        ring
    }

    #[test]
    fn a_full_ring_gives_the_item_back_and_counts_it() {
        let mut ring = filled(2);
        let refused = ring.put(9).unwrap_err();
        assert_eq!((refused.item, refused.why), (9, Refusal::Full));
        let stats = ring.stats("q");
        assert_eq!((stats.offered, stats.accepted, stats.refused), (3, 2, 1));
        assert_eq!((stats.depth, stats.high_water), (2, 2));
    }

    #[test]
    fn a_closed_ring_takes_nothing_and_still_gives_what_it_has() {
        let mut ring = filled(2);
        assert!(ring.close());
        assert!(!ring.close());
        assert_eq!(ring.put(9).unwrap_err().why, Refusal::Closed);
        assert_eq!(
            (ring.take(), ring.take(), ring.take()),
            (Some(0), Some(1), None)
        );
    }

    #[test]
    fn room_is_made_from_the_oldest_item_that_need_not_be_kept() {
        let mut ring = filled(3);
        assert_eq!(ring.make_room(|item| *item == 0), Some(1));
        assert_eq!(ring.stats("q").dropped, 1);
        assert_eq!(ring.items().copied().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn no_room_is_made_where_none_is_needed_or_nothing_may_go() {
        let mut roomy = filled(2);
        roomy.take();
        let mut closed = filled(2);
        closed.close();
        let mut kept = filled(2);
        assert_eq!(roomy.make_room(|_| false), None);
        assert_eq!(closed.make_room(|_| false), None);
        assert_eq!(kept.make_room(|_| true), None);
        for ring in [roomy, closed, kept] {
            assert_eq!(ring.stats("q").dropped, 0);
        }
    }

    #[test]
    fn a_batch_is_the_oldest_items_and_never_empty() {
        let mut ring = filled(4);
        assert_eq!(ring.take_batch(3), Some(vec![0, 1, 2]));
        assert_eq!(ring.take_batch(0), Some(vec![3]));
        assert_eq!(ring.take_batch(5), None);
        assert_eq!(ring.stats("q").delivered, 4);
    }

    #[test]
    fn an_item_passes_only_an_open_ring_with_nothing_before_it() {
        let mut ring = filled(1);
        assert!(!ring.pass());
        ring.take();
        assert!(ring.pass());
        ring.close();
        assert!(!ring.pass());
        let stats = ring.stats("q");
        assert_eq!((stats.accepted, stats.delivered, stats.depth), (2, 2, 0));
    }

    #[test]
    fn an_empty_ring_gives_back_what_a_burst_needed() {
        let mut ring = filled(100);
        assert!(ring.items.capacity() >= 100);
        while ring.take().is_some() {}
        assert!(ring.items.capacity() * 4 <= 128);
        for item in 0..100 {
            ring.put(item).unwrap();
        }
        ring.take_batch(100);
        assert!(ring.items.capacity() * 4 <= 128);
    }

    #[test]
    fn a_cap_of_zero_counts_as_one() {
        let mut ring = Ring::new(0);
        assert_eq!(ring.cap(), 1);
        assert!(ring.put('a').is_ok());
        assert!(ring.put('b').is_err());
    }

    #[test]
    fn a_refusal_says_why_without_showing_the_item() {
        let refused = filled(1).put(77).unwrap_err();
        assert_eq!(refused.to_string(), "the queue is full");
        assert!(!format!("{refused:?}").contains("77"));
    }
}
