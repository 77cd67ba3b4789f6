//! The course of lookups that somebody asked for over the API, kept for as long as there is room.
//!
//! Always: at most as many as configured, the oldest gives way; lookups of the node itself are not kept.

use std::collections::VecDeque;

use ron_core::lock::{LockDecl, RankedMutex};
use schemars::JsonSchema;
use serde::Serialize;

use crate::lookup::{Counts, explanation::Explanation};

/// What one lookup did, as the API tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Lookup")]
pub struct Explained {
    pub lookup: u64,
    pub goal: &'static str,
    pub target: String,
    pub outcome: &'static str,
    /// Referrals between the local table and whoever had the answer.
    pub hops: u8,
    /// Answers that were awaited one after the other.
    pub rounds: u8,
    pub requests: u16,
    pub hedges: u16,
    pub took_ms: u16,
    /// In the order they were asked.
    pub asked: Vec<Asked>,
}

/// One peer that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Asked {
    /// The first sixteen digits of its id.
    pub id: String,
    pub depth: u8,
    pub round: u8,
    pub hedge: bool,
    pub outcome: &'static str,
    /// Since the lookup began.
    pub at_ms: u16,
    pub took_ms: u16,
}

/// What is kept of it: sixteen bytes for each peer.
#[derive(Clone, Debug)]
pub struct Course {
    pub lookup: u64,
    pub goal: &'static str,
    pub outcome: &'static str,
    pub hops: u8,
    pub rounds: u8,
    pub counts: Counts,
    pub explanation: Explanation,
}

impl Course {
    fn told(&self) -> Explained {
        let asked = self.explanation.steps.iter().map(|step| Asked {
            id: format!("{:016x}", step.peer),
            depth: step.depth,
            round: step.round,
            hedge: step.hedge,
            outcome: step.end.name(),
            at_ms: step.start_ms,
            took_ms: step.end_ms - step.start_ms,
        });
        Explained {
            lookup: self.lookup,
            goal: self.goal,
            target: self.explanation.target.to_string(),
            outcome: self.outcome,
            hops: self.hops,
            rounds: self.rounds,
            requests: self.counts.requests,
            hedges: self.counts.hedges,
            took_ms: self.explanation.took_ms,
            asked: asked.collect(),
        }
    }
}

pub const EXPLAINED_LOCK: LockDecl = LockDecl {
    name: "explained",
    rank: 26,
    guards: "the course of lookups that were asked for over the API",
};

/// The courses that are kept.
pub struct Courses {
    cap: usize,
    kept: RankedMutex<VecDeque<Course>>,
}

impl Courses {
    pub fn new(cap: usize) -> Courses {
        Courses {
            cap,
            kept: RankedMutex::new(EXPLAINED_LOCK, VecDeque::new()),
        }
    }

    pub fn keep(&self, course: Course) {
        if self.cap == 0 {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.len() >= self.cap {
            kept.pop_front();
        }
        if kept.is_empty() {
            // A node that keeps one course has room for one.
            kept.reserve_exact(1);
        }
        kept.push_back(course);
    }

    pub fn get(&self, lookup: u64) -> Option<Explained> {
        let kept = self.kept.lock();
        kept.iter().find(|c| c.lookup == lookup).map(Course::told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Id;

    fn course(lookup: u64) -> Course {
        Course {
            lookup,
            goal: "closest",
            outcome: "closest",
            hops: 1,
            rounds: 2,
            counts: Counts::default(),
            explanation: Explanation {
                target: Id([7; 32]),
                steps: Box::default(),
                took_ms: 3,
            },
        }
    }

    #[test]
    fn the_oldest_gives_way() {
        let courses = Courses::new(2);
        (1..=3).for_each(|lookup| courses.keep(course(lookup)));
        assert_eq!(courses.get(1), None);
        assert_eq!(courses.get(3).unwrap().lookup, 3);
        let none = Courses::new(0);
        none.keep(course(1));
        assert_eq!(none.get(1), None);
    }
}
