//! The course of lookups that somebody asked for over the API, kept for as long as there is room.
//!
//! Always: at most as many as configured, the oldest gives way; lookups of the node itself are not kept.

use std::collections::VecDeque;

use ron_core::lock::{LockDecl, RankedMutex};
use serde::Serialize;

/// What one lookup did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub lookup: u64,
    pub goal: &'static str,
    pub target: String,
    pub outcome: &'static str,
    /// Referrals between the local table and whoever had the answer.
    pub hops: u32,
    pub rounds: u32,
    pub requests: u32,
    pub hedges: u32,
    pub took_ms: u64,
    /// In the order they were asked.
    pub asked: Vec<Asked>,
}

/// One peer that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub id: String,
    pub addr: String,
    pub depth: u32,
    pub hedge: bool,
    pub tries: u32,
    /// `answered`, `failed`, `overdue`, `canceled`.
    pub outcome: &'static str,
    /// Since the lookup began.
    pub at_ms: u64,
    pub took_ms: Option<u64>,
}

pub const EXPLAINED_LOCK: LockDecl = LockDecl {
    name: "explained",
    rank: 290,
    guards: "the course of lookups that were asked for over the API",
};

pub struct Explained {
    cap: usize,
    kept: RankedMutex<VecDeque<Explanation>>,
}

impl Explained {
    pub fn new(cap: usize) -> Explained {
        Explained {
            cap,
            kept: RankedMutex::new(EXPLAINED_LOCK, VecDeque::new()),
        }
    }

    pub fn keep(&self, explanation: Explanation) {
        if self.cap == 0 {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.len() >= self.cap {
            kept.pop_front();
        }
        kept.push_back(explanation);
    }

    pub fn get(&self, lookup: u64) -> Option<Explanation> {
        let kept = self.kept.lock();
        kept.iter().find(|e| e.lookup == lookup).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let explained = Explained::new(2);
        for lookup in 1..=3 {
            explained.keep(Explanation {
                lookup,
                ..Explanation::default()
            });
        }
        assert_eq!(explained.get(1), None);
        assert_eq!(explained.get(3).unwrap().lookup, 3);
        let none = Explained::new(0);
        none.keep(Explanation::default());
        assert_eq!(none.get(0), None);
    }
}
