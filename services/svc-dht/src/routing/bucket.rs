//! One k-bucket as a pure machine: what happened goes in, what to do comes out.
//!
//! A full bucket keeps whom it has known longest: a newcomer waits while the least recently seen is pinged, and
//! takes its place only when that is dead. Always: no peer is there twice, none is this node or cannot be
//! reached, none is of another bucket, no more than `k` are there and no more than the limits allow of one
//! network; at most `replacements` wait.
//!
//! Whoever acts on [`BucketAction::Ping`] or [`BucketAction::Verify`] reports what came of it as `Seen`,
//! `Verified` or `Failed`. A report that is lost is forgotten after `patience_s`, at the next tick.

use std::sync::Arc;

use crate::{
    contact::{Contact, Subnet},
    id::Id,
};

use super::{Entry, Home, Rules, Seconds, diversity};

/// The bucket of one distance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    index: u8,
    /// The least recently seen first. What readers see is this very list.
    entries: Arc<[Entry]>,
    /// Who would take a place, the one heard of last at the end.
    waiting: Vec<Waiting>,
    /// Boxed, because it is rare and buckets are many.
    pinging: Option<Box<Asked>>,
}

/// What a bucket is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Update {
    /// A connection to this address has proven this id.
    Verified {
        contact: Contact,
        rtt_ms: Option<u16>,
    },
    /// Somebody named it, or it called us from there: a hint.
    Heard { contact: Contact },
    /// It answered.
    Seen { id: Id, rtt_ms: Option<u16> },
    /// It did not answer, or could not be reached.
    Failed { id: Id },
    /// Out with it, answering or not: another id was proven there, or it broke the protocol.
    Evict { id: Id },
    /// An earlier life of this node had it.
    Saved { contact: Contact, dead: bool },
    /// Some time has passed.
    Tick,
}

/// What is to be done, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BucketAction {
    /// Ask whether it lives.
    Ping(Contact),
    /// Connect, so that it proves its id.
    Verify(Contact),
    Added(Contact),
    Removed(Contact, Why),
    /// It proved its id at another address than before.
    Moved(Contact),
    Refused(Contact, Refused),
}

/// Why a peer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It was dead and somebody waited.
    Dead,
    Evicted,
    /// Another id was proven at its address.
    AddressTaken,
}

/// Why a peer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// It is this node.
    Own,
    /// Nobody can be reached there.
    Unusable,
    /// It belongs to another bucket.
    Misplaced,
    /// Its network has as many peers here as it may.
    Crowded,
    /// The bucket has no place, and no more may wait.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    contact: Contact,
    rtt_ms: Option<u16>,
    at_s: Seconds,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Hint,
    /// Somebody was asked to have it prove its id.
    Asked,
    Proven,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    id: Id,
    at_s: Seconds,
}

/// What one step may look at besides the bucket.
struct Step<'a> {
    me: &'a Id,
    now_s: Seconds,
    rules: &'a Rules,
    /// How many of a network are in all other buckets.
    elsewhere: &'a dyn Fn(&Subnet) -> usize,
    actions: Vec<BucketAction>,
}

impl Bucket {
    /// Empty, for the peers at this distance from its home.
    pub fn new(index: u8) -> Bucket {
        Bucket::with(index, Arc::default())
    }

    /// With entries that a bucket published before.
    pub fn with(index: u8, entries: Arc<[Entry]>) -> Bucket {
        Bucket {
            index,
            entries,
            waiting: Vec::new(),
            pinging: None,
        }
    }

    pub fn index(&self) -> u8 {
        self.index
    }

    /// The least recently seen first.
    pub fn entries(&self) -> &Arc<[Entry]> {
        &self.entries
    }

    /// Who waits for a place, and whether it has proven its id.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = (Contact, bool)> + '_ {
        let proven = |w: &Waiting| (w.contact, w.stage == Stage::Proven);
        self.waiting.iter().map(proven)
    }

    /// When a tick can next change anything: a report is given up, somebody is to be asked after, or there may be a
    /// place for who waits. If never, the
    /// writer needs no timer.
    pub fn next_tick(&self, rules: &Rules) -> Option<Seconds> {
        let place = self.entries.len() < rules.k.min(super::K_MAX)
            || self.entries.iter().any(Entry::is_dead);
        if place && !self.waiting.is_empty() {
            return Some(0);
        }
        let given_up = |at_s: Seconds| at_s.saturating_add(rules.patience_s);
        let pinged = self.pinging.as_ref().map(|asked| given_up(asked.at_s));
        let asked = self.waiting.iter().filter(|w| w.stage == Stage::Asked);
        let asked = asked.map(|w| given_up(w.at_s)).min();
        let oldest = self.oldest().filter(|_| self.pinging.is_none());
        let quiet = oldest.map(|oldest| oldest.quiet_at(rules));
        [pinged, asked, quiet].into_iter().flatten().min()
    }

    /// Nothing is to be known of it but its entries.
    pub fn is_settled(&self) -> bool {
        self.pinging.is_none() && self.waiting.is_empty()
    }

    /// True if it cannot bring anybody in, whatever is in the other buckets.
    pub fn adds_nobody(&self, update: &Update) -> bool {
        match update {
            Update::Seen { .. } => true,
            Update::Verified { contact, .. } => self.entries.iter().any(|e| e.contact == *contact),
            Update::Failed { .. } | Update::Evict { .. } | Update::Tick => self.waiting.is_empty(),
            Update::Heard { .. } | Update::Saved { .. } => false,
        }
    }

    /// What is on the heap for it, the entries included.
    pub fn heap_bytes(&self) -> usize {
        let entries = 2 * size_of::<usize>() + size_of_val(&*self.entries);
        let asked = self.pinging.as_deref().map_or(0, size_of_val);
        entries + asked + self.waiting.capacity() * size_of::<Waiting>()
    }

    /// `elsewhere` counts the peers of a network in all other buckets of the table.
    pub fn handle(
        &mut self,
        update: Update,
        now_s: Seconds,
        home: &Home,
        elsewhere: impl Fn(&Subnet) -> usize,
    ) -> Vec<BucketAction> {
        let mut step = Step {
            me: &home.me,
            now_s,
            rules: &home.rules,
            elsewhere: &elsewhere,
            actions: Vec::new(),
        };
        match update {
            Update::Verified { contact, rtt_ms } => {
                self.handle_verified(contact, rtt_ms, &mut step)
            }
            Update::Heard { contact } => self.handle_heard(contact, &mut step),
            Update::Seen { id, rtt_ms } => self.handle_seen(&id, rtt_ms, now_s),
            Update::Failed { id } => self.handle_failed(&id, &mut step),
            Update::Evict { id } => self.handle_evict(&id, &mut step),
            Update::Saved { contact, dead } => self.handle_saved(contact, dead, &mut step),
            Update::Tick => self.handle_tick(&mut step),
        }
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
        step.actions
    }

    fn handle_verified(&mut self, contact: Contact, rtt_ms: Option<u16>, step: &mut Step<'_>) {
        if let Some(refused) = self.unfit(&contact, step.me) {
            return step.refuse(contact, refused);
        }
        self.free_address(&contact, step);
        self.waiting.retain(|w| w.contact.id != contact.id);
        let Some(at) = self.position(&contact.id) else {
            let newcomer = Entry::proven(contact, rtt_ms, step.now_s);
            if let Err(refused) = self.admit(newcomer, step) {
                self.wait_proven(newcomer, refused, step);
            }
            return;
        };
        let mut entry = self.entries[at];
        if entry.contact.addr != contact.addr {
            if !self.fits(&contact, Some(at), step) {
                return step.refuse(contact, Refused::Crowded);
            }
            entry.contact = contact;
            step.actions.push(BucketAction::Moved(contact));
        }
        entry.handle_answer(rtt_ms, step.now_s);
        self.answered(at, entry);
    }

    fn handle_heard(&mut self, contact: Contact, step: &mut Step<'_>) {
        if let Some(refused) = self.unfit(&contact, step.me) {
            return step.refuse(contact, refused);
        }
        let known = |c: &Contact| c.id == contact.id || c.addr == contact.addr;
        if self.entries.iter().any(|e| known(&e.contact))
            || self.waiting.iter().any(|w| known(&w.contact))
        {
            return;
        }
        // Who could not be taken if it proved its id is not worth a connection.
        if self.place_for(&contact, step).is_none() && !self.could_wait(&contact, step) {
            return step.refuse(contact, Refused::Crowded);
        }
        // A hint displaces nobody: hints cost their maker nothing.
        if self.waiting.len() >= step.rules.replacements {
            return step.refuse(contact, Refused::Full);
        }
        let hint = Waiting {
            contact,
            rtt_ms: None,
            at_s: step.now_s,
            stage: Stage::Hint,
        };
        self.waiting.reserve_exact(1);
        self.waiting.push(hint);
        self.fill(step);
    }

    fn handle_seen(&mut self, id: &Id, rtt_ms: Option<u16>, now_s: Seconds) {
        if let Some(at) = self.position(id) {
            let mut entry = self.entries[at];
            entry.handle_answer(rtt_ms, now_s);
            self.answered(at, entry);
        } else if let Some(waiting) = self.waiting.iter_mut().find(|w| w.contact.id == *id)
            && waiting.stage == Stage::Proven
        {
            waiting.at_s = now_s;
        }
    }

    fn handle_failed(&mut self, id: &Id, step: &mut Step<'_>) {
        self.waiting.retain(|w| w.contact.id != *id);
        let pinged = self.is_pinging(id);
        if pinged {
            self.pinging = None;
        }
        let Some(at) = self.position(id) else {
            return;
        };
        let mut entry = self.entries[at];
        entry.handle_failure(step.rules.dead_after);
        self.entries = self.changed(at, entry);
        self.fill(step);
        // One lost ping proves nothing: the same peer is asked again until it has answered or is dead.
        if pinged {
            self.ping_oldest(step);
        }
    }

    fn handle_evict(&mut self, id: &Id, step: &mut Step<'_>) {
        self.waiting.retain(|w| w.contact.id != *id);
        if let Some(at) = self.position(id) {
            self.remove(at, Why::Evicted, step);
            self.fill(step);
        }
    }

    fn handle_saved(&mut self, contact: Contact, dead: bool, step: &mut Step<'_>) {
        if let Some(refused) = self.unfit(&contact, step.me) {
            return step.refuse(contact, refused);
        }
        let same = |c: &Contact| c.id == contact.id || c.addr == contact.addr;
        if self.entries.iter().any(|e| same(&e.contact)) {
            return;
        }
        let entry = Entry::saved(contact, dead, step.rules.dead_after);
        if let Err(refused) = self.admit(entry, step) {
            step.refuse(contact, refused);
        }
    }

    fn handle_tick(&mut self, step: &mut Step<'_>) {
        let over = |at_s: Seconds| step.now_s >= at_s.saturating_add(step.rules.patience_s);
        self.pinging.take_if(|asked| over(asked.at_s));
        self.waiting
            .retain(|w| w.stage != Stage::Asked || !over(w.at_s));
        self.fill(step);
        self.ping_oldest(step);
    }

    /// Whatever else holds, such a contact is never an entry.
    fn unfit(&self, contact: &Contact, me: &Id) -> Option<Refused> {
        match me.bucket_of(&contact.id) {
            None => Some(Refused::Own),
            Some(_) if !contact.addr.is_usable() => Some(Refused::Unusable),
            Some(index) if index != self.index => Some(Refused::Misplaced),
            Some(_) => None,
        }
    }

    fn position(&self, id: &Id) -> Option<usize> {
        self.entries.iter().position(|e| e.contact.id == *id)
    }

    fn is_pinging(&self, id: &Id) -> bool {
        self.pinging.as_ref().is_some_and(|asked| asked.id == *id)
    }

    /// Whoever was at this address before is there no more.
    fn free_address(&mut self, contact: &Contact, step: &mut Step<'_>) {
        let gone = |c: &Contact| c.addr == contact.addr && c.id != contact.id;
        self.waiting.retain(|w| !gone(&w.contact));
        if let Some(at) = self.entries.iter().position(|e| gone(&e.contact)) {
            self.remove(at, Why::AddressTaken, step);
        }
    }

    /// It answered: it is the most recently seen.
    fn answered(&mut self, at: usize, entry: Entry) {
        if self.is_pinging(&entry.contact.id) {
            self.pinging = None;
        }
        let last = at + 1 == self.entries.len();
        if !last || self.entries[at] != entry {
            self.entries = self.rebuilt(Some(at), Some(entry));
        }
    }

    fn remove(&mut self, at: usize, why: Why, step: &mut Step<'_>) {
        let contact = self.entries[at].contact;
        self.entries = self.rebuilt(Some(at), None);
        if self.is_pinging(&contact.id) {
            self.pinging = None;
        }
        step.actions.push(BucketAction::Removed(contact, why));
    }

    /// Would the limits hold with this one here, and the one at `without` gone?
    fn fits(&self, contact: &Contact, without: Option<usize>, step: &Step<'_>) -> bool {
        let subnet = contact.addr.subnet();
        let leaves = without.is_some_and(|at| self.entries[at].contact.addr.subnet() == subnet);
        let here = diversity::count(&self.entries, &subnet) - usize::from(leaves);
        let elsewhere = || (step.elsewhere)(&subnet);
        step.rules.diversity.admits(here, elsewhere)
    }

    /// A free place, or that of the first dead peer whose place this one may have.
    fn place_for(&self, contact: &Contact, step: &Step<'_>) -> Option<Place> {
        if self.entries.len() < step.rules.k.min(super::K_MAX) && self.fits(contact, None, step) {
            return Some(Place::Free);
        }
        let dead = (0..self.entries.len()).filter(|at| self.entries[*at].is_dead());
        let mut places = dead.filter(|at| self.fits(contact, Some(*at), step));
        places.next().map(Place::Dead)
    }

    fn admit(&mut self, newcomer: Entry, step: &mut Step<'_>) -> Result<(), Refused> {
        let place = self.place_for(&newcomer.contact, step);
        let Some(place) = place else {
            let crowded = !self.fits(&newcomer.contact, None, step);
            return Err(if crowded {
                Refused::Crowded
            } else {
                Refused::Full
            });
        };
        if let Place::Dead(at) = place {
            self.remove(at, Why::Dead, step);
        }
        self.waiting.retain(|w| w.contact.id != newcomer.contact.id);
        self.entries = self.rebuilt(None, Some(newcomer));
        step.actions.push(BucketAction::Added(newcomer.contact));
        Ok(())
    }

    /// Its network has room, among those that wait too.
    fn could_wait(&self, contact: &Contact, step: &Step<'_>) -> bool {
        let subnet = contact.addr.subnet();
        let alike = |w: &&Waiting| w.contact.addr.subnet() == subnet;
        let waiting = self.waiting.iter().filter(alike).count();
        step.rules.diversity.admits(waiting, || 0) && self.fits(contact, None, step)
    }

    fn wait_proven(&mut self, newcomer: Entry, refused: Refused, step: &mut Step<'_>) {
        let contact = newcomer.contact;
        if refused != Refused::Full || step.rules.replacements == 0 {
            return step.refuse(contact, refused);
        }
        if !self.could_wait(&contact, step) {
            return step.refuse(contact, Refused::Crowded);
        }
        if self.waiting.len() >= step.rules.replacements {
            let hint = self.waiting.iter().position(|w| w.stage != Stage::Proven);
            let gone = self.waiting.remove(hint.unwrap_or(0));
            step.refuse(gone.contact, Refused::Full);
        }
        self.waiting.reserve_exact(1);
        self.waiting.push(Waiting {
            contact,
            rtt_ms: newcomer.rtt_ms(),
            at_s: step.now_s,
            stage: Stage::Proven,
        });
        self.ping_oldest(step);
    }

    /// Gives places that are free, or held by the dead, to those who wait: who was heard of last comes first.
    fn fill(&mut self, step: &mut Step<'_>) {
        for at in (0..self.waiting.len()).rev() {
            let waiting = self.waiting[at];
            if waiting.stage != Stage::Proven || self.place_for(&waiting.contact, step).is_none() {
                continue;
            }
            self.waiting.remove(at);
            let newcomer = Entry::proven(waiting.contact, waiting.rtt_ms, waiting.at_s);
            // It found a place a line ago.
            let _ = self.admit(newcomer, step);
        }
        for at in (0..self.waiting.len()).rev() {
            let waiting = self.waiting[at];
            if waiting.stage == Stage::Hint && self.place_for(&waiting.contact, step).is_some() {
                self.waiting[at].stage = Stage::Asked;
                self.waiting[at].at_s = step.now_s;
                step.actions.push(BucketAction::Verify(waiting.contact));
            }
        }
    }

    /// Whose place somebody proven would have, if it were dead.
    fn oldest(&self) -> Option<&Entry> {
        let wanted = self.waiting.iter().any(|w| w.stage == Stage::Proven);
        let oldest = self.entries.iter().find(|e| !e.is_dead());
        oldest.filter(|_| wanted)
    }

    /// Asks after the least recently seen, if somebody proven waits for a place.
    fn ping_oldest(&mut self, step: &mut Step<'_>) {
        if self.pinging.is_some() {
            return;
        }
        let Some(oldest) = self.oldest().copied() else {
            return;
        };
        if step.now_s < oldest.quiet_at(step.rules) {
            return;
        }
        self.pinging = Some(Box::new(Asked {
            id: oldest.contact.id,
            at_s: step.now_s,
        }));
        step.actions.push(BucketAction::Ping(oldest.contact));
    }

    /// The list with another entry in one place.
    fn changed(&self, at: usize, entry: Entry) -> Arc<[Entry]> {
        let (head, tail) = (&self.entries[..at], &self.entries[at + 1..]);
        head.iter()
            .copied()
            .chain([entry])
            .chain(tail.iter().copied())
            .collect()
    }

    /// The list without one and with another at its end, in one allocation.
    fn rebuilt(&self, without: Option<usize>, plus: Option<Entry>) -> Arc<[Entry]> {
        let (head, tail) = match without {
            Some(at) => (&self.entries[..at], &self.entries[at + 1..]),
            None => (&self.entries[..], &[][..]),
        };
        head.iter().chain(tail).copied().chain(plus).collect()
    }
}

enum Place {
    Free,
    Dead(usize),
}

impl Step<'_> {
    fn refuse(&mut self, contact: Contact, refused: Refused) {
        self.actions.push(BucketAction::Refused(contact, refused));
    }
}

#[cfg(test)]
mod tests;
