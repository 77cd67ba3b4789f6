//! Who might be asked: candidates in order of their distance to the target, a bounded number of them.
//!
//! Always: sorted, distinct, never ourselves. When full, the farthest that was not asked gives way, and a newcomer
//! farther than all is not taken.

use std::time::Instant;

use crate::{contact::Contact, id::Id};

use super::ProbeId;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidates {
    target: Id,
    me: Id,
    list: Vec<Candidate>,
    cap: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub contact: Contact,
    /// Referrals between our table and this one, along the shortest way known.
    pub depth: u8,
    pub tries: u8,
    /// Thought dead: asked when nobody else is left.
    pub suspect: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    New,
    Asked(Asked),
    /// Failed in a way that may pass.
    Backoff {
        until: Instant,
    },
    Answered,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub probe: ProbeId,
    pub since: Instant,
    pub overdue_at: Instant,
    pub deadline: Instant,
    pub hedge: bool,
    pub overdue: bool,
    /// Another was already started because this one is overdue.
    pub hedged: bool,
}

impl Candidates {
    pub fn new(target: Id, me: Id, cap: usize) -> Candidates {
        let list = Vec::new();
        Candidates {
            target,
            me,
            list,
            cap,
        }
    }

    /// Where a new candidate was put; none if it is known, unusable, ourselves or too far.
    pub fn insert(&mut self, contact: Contact, depth: u8, suspect: bool) -> Option<usize> {
        if contact.id == self.me || !contact.addr.is_usable() {
            return None;
        }
        let at = match self.find(&contact.id) {
            Ok(at) => {
                let known = &mut self.list[at];
                known.depth = known.depth.min(depth);
                return None;
            }
            Err(at) => at,
        };
        if self.list.len() >= self.cap {
            let last = self.list.iter().rposition(|c| c.state == State::New)?;
            if last < at {
                return None;
            }
            self.list.remove(last);
        }
        let (tries, state) = (0, State::New);
        let candidate = Candidate {
            contact,
            depth,
            tries,
            suspect,
            state,
        };
        self.list.insert(at, candidate);
        Some(at)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Candidate> {
        self.list.iter_mut()
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut Candidate> {
        self.list.get_mut(at)
    }

    pub fn by_id_mut(&mut self, id: &Id) -> Option<&mut Candidate> {
        let at = self.find(id).ok()?;
        self.list.get_mut(at)
    }

    fn find(&self, id: &Id) -> Result<usize, usize> {
        self.list
            .binary_search_by(|c| self.target.compare(&c.contact.id, id))
    }
}

impl Candidate {
    pub fn asked(&self) -> Option<&Asked> {
        match &self.state {
            State::Asked(asked) => Some(asked),
            _ => None,
        }
    }
}
