//! Who waits, in order of arrival: a slab of slots with the waiting ones linked first in, first out.
//!
//! Pure: it stores wakers of any type `W` and never calls them, so a model can step it. Always: a slot
//! is waiting, woken or free; `waiting` and `woken` count them; waiting and leaving take constant time
//! and allocate only when more wait at once than ever before.

/// A place in the line, held by one waiting future until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiters<W> {
    entries: Vec<Entry<W>>,
    head: u32,
    tail: u32,
    free: u32,
    waiting: u32,
    woken: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<W> {
    place: Place<W>,
    prev: u32,
    /// The next one waiting, or the next free slot.
    next: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place<W> {
    Free,
    Waiting(W),
    /// Its waker was handed out; it has not come back to look yet.
    Woken,
}

const NONE: u32 = u32::MAX;

impl<W> Waiters<W> {
    pub fn new() -> Self {
        Waiters {
            entries: Vec::new(),
            head: NONE,
            tail: NONE,
            free: NONE,
            waiting: 0,
            woken: 0,
        }
    }

    /// How many wait and were not woken.
    pub fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// How many were woken and have not come back yet.
    pub fn woken(&self) -> usize {
        self.woken as usize
    }

    pub fn is_woken(&self, slot: Option<Slot>) -> bool {
        slot.is_some_and(|Slot(at)| matches!(self.entries[at as usize].place, Place::Woken))
    }

    /// Waits (again). A newcomer joins at the end; one that was woken in vain returns to the front,
    /// so that being overtaken never costs it its turn. Returns the waker that `waker` replaces, for
    /// the caller to drop outside its lock.
    pub fn park(&mut self, slot: &mut Option<Slot>, waker: W) -> Option<W> {
        match *slot {
            None => {
                let at = self.take_free();
                self.entries[at as usize].place = Place::Waiting(waker);
                self.link_last(at);
                *slot = Some(Slot(at));
                None
            }
            Some(Slot(at)) => {
                match std::mem::replace(&mut self.entries[at as usize].place, Place::Waiting(waker))
                {
                    Place::Waiting(stale) => Some(stale),
                    Place::Woken | Place::Free => {
                        self.woken -= 1;
                        self.link_first(at);
                        None
                    }
                }
            }
        }
    }

    /// Gives up the place in the line, if any. Returns the unused waker, for the caller to drop
    /// outside its lock.
    pub fn leave(&mut self, slot: &mut Option<Slot>) -> Option<W> {
        let Slot(at) = slot.take()?;
        let unused = match std::mem::replace(&mut self.entries[at as usize].place, Place::Free) {
            Place::Waiting(waker) => {
                self.unlink(at);
                Some(waker)
            }
            Place::Woken => {
                self.woken -= 1;
                None
            }
            Place::Free => None,
        };
        self.entries[at as usize].next = self.free;
        self.free = at;
        unused
    }

    /// Marks the one that waits longest as woken and hands out its waker.
    pub fn wake_first(&mut self) -> Option<W> {
        let at = self.head;
        if at == NONE {
            return None;
        }
        self.unlink(at);
        self.woken += 1;
        match std::mem::replace(&mut self.entries[at as usize].place, Place::Woken) {
            Place::Waiting(waker) => Some(waker),
            Place::Woken | Place::Free => unreachable!("only waiting slots are linked"),
        }
    }

    fn take_free(&mut self) -> u32 {
        let at = self.free;
        if at != NONE {
            self.free = self.entries[at as usize].next;
            return at;
        }
        if self.entries.is_empty() {
            // Most lines never have more than one waiting, and lines are many.
            self.entries.reserve_exact(1);
        }
        self.entries.push(Entry {
            place: Place::Free,
            prev: NONE,
            next: NONE,
        });
        self.entries.len() as u32 - 1
    }

    fn link_last(&mut self, at: u32) {
        self.entries[at as usize].prev = self.tail;
        self.entries[at as usize].next = NONE;
        match self.tail {
            NONE => self.head = at,
            tail => self.entries[tail as usize].next = at,
        }
        self.tail = at;
        self.waiting += 1;
    }

    fn link_first(&mut self, at: u32) {
        self.entries[at as usize].prev = NONE;
        self.entries[at as usize].next = self.head;
        match self.head {
            NONE => self.tail = at,
            head => self.entries[head as usize].prev = at,
        }
        self.head = at;
        self.waiting += 1;
    }

    fn unlink(&mut self, at: u32) {
        let (prev, next) = (
            self.entries[at as usize].prev,
            self.entries[at as usize].next,
        );
        match prev {
            NONE => self.head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        self.waiting -= 1;
    }
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waiters_are_woken_in_order_of_arrival() {
        let mut line = Waiters::new();
        let mut slots = [None; 3];
        for (name, slot) in slots.iter_mut().enumerate() {
            line.park(slot, name);
        }
        assert_eq!(line.wake_first(), Some(0));
        assert_eq!(line.wake_first(), Some(1));
        assert_eq!(line.wake_first(), Some(2));
        assert_eq!(line.wake_first(), None);
        assert_eq!((line.waiting(), line.woken()), (0, 3));
    }

    #[test]
    fn one_woken_in_vain_returns_to_the_front() {
        let mut line = Waiters::new();
        let (mut a, mut b) = (None, None);
        line.park(&mut a, 'a');
        line.park(&mut b, 'b');
        assert_eq!(line.wake_first(), Some('a'));
        assert_eq!(line.park(&mut a, 'A'), None);
        assert_eq!(line.wake_first(), Some('A'));
        assert_eq!(line.wake_first(), Some('b'));
    }

    #[test]
    fn waiting_again_replaces_the_waker_and_keeps_the_turn() {
        let mut line = Waiters::new();
        let (mut a, mut b) = (None, None);
        line.park(&mut a, 'a');
        line.park(&mut b, 'b');
        assert_eq!(line.park(&mut a, 'A'), Some('a'));
        assert_eq!(line.waiting(), 2);
        assert_eq!(line.wake_first(), Some('A'));
    }

    #[test]
    fn slots_are_used_again_so_waiting_does_not_grow_memory() {
        let mut line = Waiters::new();
        for round in 0..100 {
            let (mut a, mut b) = (None, None);
            line.park(&mut a, round);
            line.park(&mut b, round);
            line.wake_first();
            line.leave(&mut b);
            line.leave(&mut a);
        }
        assert_eq!(line.entries.len(), 2);
        assert_eq!((line.waiting(), line.woken()), (0, 0));
    }

    proptest! {
        /// Against a plain list: any mix of waiting, leaving and waking keeps order and counts.
        #[test]
        fn the_line_behaves_like_a_list(steps in prop::collection::vec((0..3u8, 0..6usize), 0..80)) {
            let mut line = Waiters::new();
            let mut slots = [None; 6];
            let (mut waiting, mut woken) = (Vec::new(), Vec::new());
            for (step, who) in steps {
                match step {
                    0 => {
                        let stale = line.park(&mut slots[who], who);
                        if waiting.contains(&who) {
                            prop_assert_eq!(stale, Some(who));
                        } else if woken.contains(&who) {
                            woken.retain(|w| *w != who);
                            waiting.insert(0, who);
                        } else {
                            waiting.push(who);
                        }
                    }
                    1 => {
                        let unused = line.leave(&mut slots[who]);
                        prop_assert_eq!(unused, waiting.contains(&who).then_some(who));
                        waiting.retain(|w| *w != who);
                        woken.retain(|w| *w != who);
                    }
                    _ => {
                        let first = (!waiting.is_empty()).then(|| waiting.remove(0));
                        prop_assert_eq!(line.wake_first(), first);
                        woken.extend(first);
                    }
                }
                prop_assert_eq!(line.waiting(), waiting.len());
                prop_assert_eq!(line.woken(), woken.len());
                for (who, slot) in slots.iter().enumerate() {
                    prop_assert_eq!(line.is_woken(*slot), woken.contains(&who));
                }
            }
        }
    }
}
