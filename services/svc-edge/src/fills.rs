//! Who fills what, and who waits for it: identical misses share one fill.
//!
//! A request asks for a key. The first one starts a fill, which the caller enqueues; the others join it. A worker begins the
//! fill, ends it, and all who still wait are told. Pure: a task owns it, calls `handle_*` and does what they return.
//!
//! Always: there is at most one fill of a key from the moment it is asked for until its worker has let go of it; who waits is
//! told exactly once, or leaves; a fill that nobody waits for any more is given up, unless it was asked for as a refresh.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FillId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// `K`: what is filled, in the one spelling that makes two requests the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fills<K: Ord> {
    by_key: BTreeMap<K, FillId>,
    fills: BTreeMap<FillId, Fill<K>>,
    waiting: BTreeMap<WaiterId, FillId>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fill<K> {
    key: K,
    state: State,
    waiters: BTreeSet<WaiterId>,
    /// A refresh goes on although nobody waits for it.
    refresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Queued,
    Running,
    /// Its worker was told to stop and has not let go yet.
    GivenUp,
}

/// What became of a question for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The caller enqueues this fill, or says that it was [refused](Fills::handle_refused).
    Enqueue(FillId),
    /// Somebody asked before.
    Joined(FillId),
}

/// What a worker came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With an answer or an error: all who wait get it.
    Done,
    /// It stopped because it was given up.
    Stopped,
}

/// What is to be done when a worker has let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Tell(BTreeSet<WaiterId>),
    /// Somebody came after it was given up: the fill is enqueued again.
    Enqueue(FillId),
}

impl<K: Ord + Clone> Default for Fills<K> {
    fn default() -> Self {
        Fills {
            by_key: BTreeMap::new(),
            fills: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Ord + Clone> Fills<K> {
    /// Somebody wants the key and waits for it.
    pub fn handle_asked(&mut self, key: &K) -> (WaiterId, Asked) {
        let waiter = WaiterId(self.number());
        let (id, asked) = self.fill_of(key);
        let fill = self.fills.get_mut(&id).expect("it was just found or made");
        fill.waiters.insert(waiter);
        self.waiting.insert(waiter, id);
        (waiter, asked)
    }

    /// The key is to be fetched anew while the old answer is still served: nobody waits.
    pub fn handle_refresh(&mut self, key: &K) -> Asked {
        let (id, asked) = self.fill_of(key);
        let fill = self.fills.get_mut(&id).expect("it was just found or made");
        fill.refresh = true;
        asked
    }

    /// The queue did not take it. Who is told so: normally the one who asked.
    pub fn handle_refused(&mut self, id: FillId) -> BTreeSet<WaiterId> {
        self.forget(id)
    }

    /// A worker took it from the queue. False: nobody wants it any more, and it is gone.
    pub fn handle_begun(&mut self, id: FillId) -> bool {
        match self.fills.get_mut(&id) {
            Some(fill) if fill.refresh || !fill.waiters.is_empty() => {
                fill.state = State::Running;
                true
            }
            _ => {
                self.forget(id);
                false
            }
        }
    }

    /// A waiter went away: its deadline passed or its client left. The fill whose worker is to stop, if it was the last.
    pub fn handle_left(&mut self, waiter: WaiterId) -> Option<FillId> {
        let id = self.waiting.remove(&waiter)?;
        let fill = self.fills.get_mut(&id)?;
        fill.waiters.remove(&waiter);
        let unwanted = fill.waiters.is_empty() && !fill.refresh;
        if !(unwanted && fill.state == State::Running) {
            return None;
        }
        fill.state = State::GivenUp;
        Some(id)
    }

    /// Its worker has let go of it, or died: a death is an end like others, and whoever waits is told.
    pub fn handle_ended(&mut self, id: FillId, how: How) -> Ended {
        if let Some(fill) = self.fills.get_mut(&id)
            && how == How::Stopped
            && fill.state == State::GivenUp
            && (fill.refresh || !fill.waiters.is_empty())
        {
            fill.state = State::Queued;
            return Ended::Enqueue(id);
        }
        Ended::Tell(self.forget(id))
    }

    pub fn key(&self, id: FillId) -> Option<&K> {
        self.fills.get(&id).map(|fill| &fill.key)
    }

    /// Fills that are queued or running.
    pub fn len(&self) -> usize {
        self.fills.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fills.is_empty()
    }

    pub fn waiters(&self) -> usize {
        self.waiting.len()
    }

    fn fill_of(&mut self, key: &K) -> (FillId, Asked) {
        if let Some(id) = self.by_key.get(key) {
            return (*id, Asked::Joined(*id));
        }
        let id = FillId(self.number());
        let fill = Fill {
            key: key.clone(),
            state: State::Queued,
            waiters: BTreeSet::new(),
            refresh: false,
        };
        self.by_key.insert(key.clone(), id);
        self.fills.insert(id, fill);
        (id, Asked::Enqueue(id))
    }

    fn forget(&mut self, id: FillId) -> BTreeSet<WaiterId> {
        let Some(fill) = self.fills.remove(&id) else {
            return BTreeSet::new();
        };
        self.by_key.remove(&fill.key);
        for waiter in &fill.waiters {
            self.waiting.remove(waiter);
        }
        fill.waiters
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identical_misses_share_one_fill_and_all_are_told() {
        let mut fills = Fills::default();
        let (first, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        let rest: Vec<WaiterId> = (0..63)
            .map(|_| {
                let (waiter, asked) = fills.handle_asked(&"a");
                assert_eq!(asked, Asked::Joined(id));
                waiter
            })
            .collect();
        assert!(matches!(fills.handle_asked(&"b").1, Asked::Enqueue(_)));
        assert!(fills.handle_begun(id));
        let Ended::Tell(told) = fills.handle_ended(id, How::Done) else {
            panic!("nobody told")
        };
        assert_eq!(told, rest.into_iter().chain([first]).collect());
        assert!(
            matches!(fills.handle_asked(&"a").1, Asked::Enqueue(_)),
            "the next one is a new fill"
        );
    }

    #[test]
    fn a_fill_that_the_queue_refuses_is_told_to_all_who_joined_meanwhile() {
        let mut fills = Fills::default();
        let (first, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        let (second, _) = fills.handle_asked(&"a");
        assert_eq!(fills.handle_refused(id), [first, second].into());
        assert!(fills.is_empty());
        assert_eq!(fills.handle_left(first), None, "it was told already");
    }

    #[test]
    fn the_last_to_leave_stops_a_running_fill_and_a_queued_one_is_skipped() {
        let mut fills = Fills::default();
        let (one, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        let (two, _) = fills.handle_asked(&"a");
        assert!(fills.handle_begun(id));
        assert_eq!(fills.handle_left(one), None);
        assert_eq!(fills.handle_left(two), Some(id));
        assert_eq!(
            fills.handle_ended(id, How::Stopped),
            Ended::Tell(BTreeSet::new())
        );
        assert!(fills.is_empty());

        let (one, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        assert_eq!(fills.handle_left(one), None, "no worker has it yet");
        assert!(!fills.handle_begun(id));
        assert!(fills.is_empty());
    }

    #[test]
    fn who_comes_after_it_was_given_up_waits_for_another_try_and_not_beside_it() {
        let mut fills = Fills::default();
        let (one, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        assert!(fills.handle_begun(id));
        assert_eq!(fills.handle_left(one), Some(id));
        let (late, asked) = fills.handle_asked(&"a");
        assert_eq!(asked, Asked::Joined(id), "the worker has not let go");
        assert_eq!(fills.handle_ended(id, How::Stopped), Ended::Enqueue(id));
        assert!(fills.handle_begun(id));
        assert_eq!(
            fills.handle_ended(id, How::Done),
            Ended::Tell([late].into())
        );
        // It may also have been done before it heard that it was given up: that is as good.
        let (one, asked) = fills.handle_asked(&"a");
        let Asked::Enqueue(id) = asked else {
            panic!("{asked:?}")
        };
        assert!(fills.handle_begun(id));
        fills.handle_left(one);
        let (late, _) = fills.handle_asked(&"a");
        assert_eq!(
            fills.handle_ended(id, How::Done),
            Ended::Tell([late].into())
        );
    }

    #[test]
    fn a_refresh_goes_on_alone_and_others_may_join_it() {
        let mut fills = Fills::default();
        let Asked::Enqueue(id) = fills.handle_refresh(&"a") else {
            panic!("not enqueued")
        };
        assert_eq!(fills.handle_refresh(&"a"), Asked::Joined(id));
        assert!(fills.handle_begun(id));
        let (waiter, asked) = fills.handle_asked(&"a");
        assert_eq!(asked, Asked::Joined(id));
        assert_eq!(fills.handle_left(waiter), None, "a refresh is not given up");
        assert_eq!(
            fills.handle_ended(id, How::Done),
            Ended::Tell(BTreeSet::new())
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u8),
        Refresh(u8),
        Leave(usize),
        Begin(bool),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u8..3).prop_map(Step::Ask),
            1 => (0u8..3).prop_map(Step::Refresh),
            2 => (0usize..8).prop_map(Step::Leave),
            3 => any::<bool>().prop_map(Step::Begin),
            3 => (0usize..3).prop_map(Step::End),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// A queue and workers as they are around it, with every fault they may have: full, dead, slow to hear.
        #[test]
        fn nobody_is_forgotten_or_told_twice_and_no_key_is_filled_twice_at_once(steps in steps()) {
            let mut fills: Fills<u8> = Fills::default();
            let mut waiting: BTreeSet<WaiterId> = BTreeSet::new();
            let mut queue: Vec<FillId> = Vec::new();
            let mut running: BTreeMap<FillId, (u8, bool)> = BTreeMap::new();
            let tell = |told: BTreeSet<WaiterId>, waiting: &mut BTreeSet<WaiterId>| {
                for waiter in told {
                    assert!(waiting.remove(&waiter), "told twice, or after it left");
                }
            };
            for step in steps {
                match step {
                    Step::Ask(key) => {
                        let (waiter, asked) = fills.handle_asked(&key);
                        prop_assert!(waiting.insert(waiter));
                        if let Asked::Enqueue(id) = asked { queue.push(id); }
                    }
                    Step::Refresh(key) => {
                        if let Asked::Enqueue(id) = fills.handle_refresh(&key) { queue.push(id); }
                    }
                    Step::Leave(at) => {
                        if let Some(waiter) = waiting.iter().nth(at).copied() {
                            waiting.remove(&waiter);
                            if let Some(id) = fills.handle_left(waiter) {
                                let stopped = running.get_mut(&id).map(|(_, stop)| *stop = true);
                                prop_assert!(stopped.is_some(), "only a running fill is stopped");
                            }
                        }
                    }
                    Step::Begin(room) => {
                        if queue.is_empty() { continue; }
                        let id = queue.remove(0);
                        if !room {
                            tell(fills.handle_refused(id), &mut waiting);
                            continue;
                        }
                        let key = fills.key(id).copied();
                        if fills.handle_begun(id) {
                            let key = key.expect("it is known");
                            prop_assert!(running.values().all(|(other, _)| *other != key), "filled twice");
                            running.insert(id, (key, false));
                        }
                    }
                    Step::End(at) => {
                        if let Some(id) = running.keys().nth(at).copied() {
                            let (_, stop) = running.remove(&id).expect("just found");
                            let how = if stop { How::Stopped } else { How::Done };
                            match fills.handle_ended(id, how) {
                                Ended::Tell(told) => tell(told, &mut waiting),
                                Ended::Enqueue(id) => queue.push(id),
                            }
                        }
                    }
                }
            }
            // With workers that go on, everybody is served in the end and nothing is left behind.
            while !queue.is_empty() || !running.is_empty() {
                if let Some(id) = running.keys().next().copied() {
                    let (_, stop) = running.remove(&id).expect("just found");
                    let how = if stop { How::Stopped } else { How::Done };
                    match fills.handle_ended(id, how) {
                        Ended::Tell(told) => tell(told, &mut waiting),
                        Ended::Enqueue(id) => queue.push(id),
                    }
                } else {
                    let id = queue.remove(0);
                    if fills.handle_begun(id) {
                        running.insert(id, (0, false));
                    }
                }
            }
            prop_assert!(waiting.is_empty(), "{} were forgotten", waiting.len());
            prop_assert!(fills.is_empty());
            prop_assert_eq!(fills.waiters(), 0);
        }
    }
}
