//! The obvious queue: a list of items, a list of who waits, and a count of everything that happened.

use std::collections::BTreeMap;

use ron_core::{Refusal, view::QueueStats};

/// Items are told apart by number; some must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub number: u64,
    pub kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RejectNew,
    WaitFor,
    DropOldest,
    WaitThenDropOldest,
    RetryOnce,
}

/// What a push came to: in (and who had to leave), or back with its producer.
pub type Outcome = Result<Option<Item>, (Item, Refusal)>;

/// What somebody who waited came to.
#[derive(Debug, PartialEq)]
pub enum Came {
    Pushed(Outcome),
    Popped(Vec<Item>),
}

pub struct Reference {
    pub kind: Kind,
    pub cap: usize,
    pub items: Vec<Item>,
    pub closed: bool,
    /// Who waits for room, and who for an item (and for how many at most), in order of arrival.
    producers: Vec<(u64, Item)>,
    consumers: Vec<(u64, usize)>,
    deepest: usize,
    accepted: u64,
    refused: u64,
    delivered: u64,
    dropped: u64,
}

impl Reference {
    pub fn new(kind: Kind, cap: usize) -> Self {
        Reference {
            kind,
            cap: cap.max(1),
            items: Vec::new(),
            closed: false,
            producers: Vec::new(),
            consumers: Vec::new(),
            deepest: 0,
            accepted: 0,
            refused: 0,
            delivered: 0,
            dropped: 0,
        }
    }

    /// `None` if it has to wait. A newcomer takes no place that somebody waits for.
    pub fn push(&mut self, id: u64, item: Item) -> Option<Outcome> {
        let in_line = match self.kind {
            Kind::WaitFor | Kind::WaitThenDropOldest => self.producers.len(),
            // It sleeps, and has no place in a line.
            Kind::RetryOnce | Kind::RejectNew | Kind::DropOldest => 0,
        };
        if self.closed || self.cap - self.items.len() > in_line {
            return Some(self.decide(item));
        }
        match self.kind {
            Kind::RejectNew | Kind::DropOldest => Some(self.decide(item)),
            Kind::WaitFor | Kind::WaitThenDropOldest | Kind::RetryOnce => {
                self.producers.push((id, item));
                None
            }
        }
    }

    /// The wait of this producer is over.
    pub fn give_up(&mut self, id: u64) -> Outcome {
        let at = self.producers.iter().position(|(known, _)| *known == id);
        let (_, item) = self.producers.remove(at.expect("it waits"));
        self.decide(item)
    }

    fn decide(&mut self, item: Item) -> Outcome {
        let mut left = None;
        let mut refusal = self.closed.then_some(Refusal::Closed);
        if !self.closed && self.items.len() == self.cap {
            let victim = match self.kind {
                Kind::DropOldest => Some(0),
                Kind::WaitThenDropOldest => self.items.iter().position(|item| !item.kept),
                Kind::RejectNew | Kind::WaitFor | Kind::RetryOnce => None,
            };
            match victim {
                Some(victim) => {
                    left = Some(self.items.remove(victim));
                    self.dropped += 1;
                }
                None => refusal = Some(Refusal::Full),
            }
        }
        if let Some(refusal) = refusal {
            self.refused += 1;
            return Err((item, refusal));
        }
        self.items.push(item);
        self.accepted += 1;
        self.deepest = self.deepest.max(self.items.len());
        Ok(left)
    }

    pub fn take(&mut self, max: usize) -> Vec<Item> {
        let count = max.min(self.items.len());
        self.delivered += count as u64;
        self.items.drain(..count).collect()
    }

    /// `None` if it has to wait.
    pub fn pop(&mut self, id: u64, max: usize) -> Option<Vec<Item>> {
        if self.items.is_empty() && !self.closed {
            self.consumers.push((id, max));
            return None;
        }
        Some(self.take(max))
    }

    pub fn pass(&mut self) -> bool {
        let free = !self.closed && self.items.is_empty();
        self.accepted += u64::from(free);
        self.delivered += u64::from(free);
        free
    }

    pub fn clear(&mut self) -> Vec<Item> {
        self.dropped += self.items.len() as u64;
        std::mem::take(&mut self.items)
    }

    /// It goes away while it waits; an item goes with it.
    pub fn cancel(&mut self, id: u64) {
        let before = self.producers.len();
        self.producers.retain(|(known, _)| *known != id);
        self.refused += (before - self.producers.len()) as u64;
        self.consumers.retain(|(known, _)| *known != id);
    }

    /// Nobody waits while there is something to do for him: who comes to what.
    pub fn settle(&mut self) -> BTreeMap<u64, Came> {
        let mut came = BTreeMap::new();
        loop {
            if !self.consumers.is_empty() && (self.closed || !self.items.is_empty()) {
                let (id, max) = self.consumers.remove(0);
                let taken = self.take(max);
                came.insert(id, Came::Popped(taken));
                continue;
            }
            let in_line = self.kind != Kind::RetryOnce && !self.producers.is_empty();
            if in_line && (self.closed || self.items.len() < self.cap) {
                let (id, item) = self.producers.remove(0);
                let decided = self.decide(item);
                came.insert(id, Came::Pushed(decided));
                continue;
            }
            return came;
        }
    }

    pub fn stats(&self, name: &'static str) -> QueueStats {
        QueueStats {
            name,
            cap: self.cap,
            depth: self.items.len(),
            high_water: self.deepest,
            offered: self.accepted + self.refused,
            accepted: self.accepted,
            refused: self.refused,
            delivered: self.delivered,
            dropped: self.dropped,
        }
    }
}
