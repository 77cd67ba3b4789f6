//! How many of one subnet are among the closest already.

use crate::contact::{Addr, Subnet};

pub(super) struct Crowd {
    limit: usize,
    /// Few, so a list does.
    seen: Vec<(Subnet, usize)>,
}

impl Crowd {
    pub fn new(limit: usize) -> Crowd {
        let seen = Vec::new();
        Crowd { limit, seen }
    }

    /// Whether the subnet of this address has as many as it may.
    pub fn is_full(&self, addr: &Addr) -> bool {
        if self.limit == usize::MAX {
            return false;
        }
        let subnet = addr.subnet();
        let seen = self.seen.iter().find(|(of, _)| *of == subnet);
        seen.map_or(0, |(_, count)| *count) >= self.limit
    }

    pub fn count(&mut self, addr: &Addr) {
        if self.limit == usize::MAX {
            return;
        }
        let subnet = addr.subnet();
        match self.seen.iter_mut().find(|(of, _)| *of == subnet) {
            Some((_, count)) => *count += 1,
            None => self.seen.push((subnet, 1)),
        }
    }
}
