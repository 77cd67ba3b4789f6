//! Which connections there are, and who is asked over which. Decides only; tasks are started and woken by its callers.
//!
//! Always: at most `max_outbound` dialled connections are in use; room is made by the one that was idle longest, and one
//! with a request of ours under way is never given up.

use std::sync::Arc;

use super::line::{Line, Use};
use crate::{contact::Addr, id::Id};

#[derive(Default)]
pub(crate) struct Pool {
    /// By peer, then by age. Whom nobody knows yet (inbound before its proof, a seed before its welcome) comes first.
    lines: Vec<(Option<Id>, Arc<Line>)>,
    outbound: usize,
    /// Tasks that live, those about to end included.
    alive: usize,
    next_number: u64,
    closed: bool,
}

/// Over what a request goes.
pub(crate) enum Route {
    /// A connection that is there, or is being made.
    Over(Use),
    /// The caller is to start this one; another may have to close for it.
    Dial {
        over: Use,
        instead_of: Option<Arc<Line>>,
    },
    /// That connection, or the pool, has no room.
    Busy,
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub max_outbound: usize,
    pub max_in_flight: usize,
}

impl Pool {
    /// Any connection to the peer will do; without one, it is dialled.
    pub fn route(&mut self, peer: Id, addr: Addr, caps: Caps, now_ms: u64) -> Route {
        if self.closed {
            return Route::Closed;
        }
        // A connection that somebody proved is as good as one that we dialled; the younger one is less likely to end.
        match self.of(&peer).last() {
            Some(line) if (line.uses() as usize) < caps.max_in_flight => Route::Over(Use::of(line)),
            Some(_) => Route::Busy,
            None => self.dial(Some(peer), addr, caps, now_ms),
        }
    }

    /// Only a connection that was dialled to this very address will do.
    pub fn route_to(&mut self, peer: Option<Id>, addr: Addr, caps: Caps, now_ms: u64) -> Route {
        if self.closed {
            return Route::Closed;
        }
        let known = match peer {
            Some(peer) => self.of(&peer).find(|line| line.dialled == Some(addr)),
            None => None,
        };
        match known {
            Some(line) if (line.uses() as usize) < caps.max_in_flight => Route::Over(Use::of(line)),
            Some(_) => Route::Busy,
            None => self.dial(peer, addr, caps, now_ms),
        }
    }

    fn dial(&mut self, peer: Option<Id>, addr: Addr, caps: Caps, now_ms: u64) -> Route {
        let mut instead_of = None;
        if self.outbound >= caps.max_outbound {
            let Some(idlest) = self.idlest() else {
                return Route::Busy;
            };
            self.retire(&idlest);
            instead_of = Some(idlest);
        }
        let line = self.add(peer, Some(addr), caps, now_ms);
        Route::Dial {
            over: Use::of(&line),
            instead_of,
        }
    }

    /// A new connection, whose task the caller starts. Ends with [`Pool::gone`].
    pub fn add(
        &mut self,
        peer: Option<Id>,
        dialled: Option<Addr>,
        caps: Caps,
        now_ms: u64,
    ) -> Arc<Line> {
        let number = self.next_number;
        self.next_number += 1;
        let line = Arc::new(Line::new(number, dialled, caps.max_in_flight, now_ms));
        self.outbound += usize::from(dialled.is_some());
        self.alive += 1;
        self.insert(peer, line.clone());
        line
    }

    /// The peer at the other end proved who it is: from now on it can be asked over this line.
    pub fn identify(&mut self, line: &Arc<Line>, peer: Id) {
        if let Some(at) = self.position(line)
            && self.lines[at].0 != Some(peer)
        {
            let (_, line) = self.lines.remove(at);
            self.insert(Some(peer), line);
        }
    }

    /// It is about to end: nobody is to be asked over it any more.
    pub fn retire(&mut self, line: &Arc<Line>) {
        if let Some(at) = self.position(line) {
            self.lines.remove(at);
            self.outbound -= usize::from(line.is_outbound());
            if self.lines.len() * 4 < self.lines.capacity() {
                self.lines.shrink_to(self.lines.len() * 2);
            }
        }
    }

    /// Its task has ended. True if it was the last one.
    pub fn gone(&mut self, line: &Arc<Line>) -> bool {
        self.retire(line);
        self.alive -= 1;
        self.alive == 0
    }

    /// No more connections; gives all there are.
    pub fn close(&mut self) -> Vec<Arc<Line>> {
        self.closed = true;
        self.lines.iter().map(|(_, line)| line.clone()).collect()
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn alive(&self) -> usize {
        self.alive
    }

    pub fn outbound(&self) -> usize {
        self.outbound
    }

    pub fn inbound(&self) -> usize {
        self.lines.len() - self.outbound
    }

    fn of(&self, peer: &Id) -> impl DoubleEndedIterator<Item = &Arc<Line>> {
        let from = self
            .lines
            .partition_point(|(id, _)| id.as_ref() < Some(peer));
        let lines = self.lines[from..].iter();
        let to = lines
            .clone()
            .take_while(|(id, _)| id.as_ref() == Some(peer));
        let count = to.count();
        self.lines[from..from + count].iter().map(|(_, line)| line)
    }

    fn idlest(&self) -> Option<Arc<Line>> {
        let idle = self.lines.iter().map(|(_, line)| line);
        let idle = idle.filter(|line| line.is_outbound() && line.uses() == 0);
        idle.min_by_key(|line| (line.used_ms(), line.number))
            .cloned()
    }

    fn insert(&mut self, peer: Option<Id>, line: Arc<Line>) {
        let key = (peer, line.number);
        let at = self
            .lines
            .partition_point(|(id, line)| (*id, line.number) < key);
        self.lines.insert(at, (peer, line));
    }

    fn position(&self, line: &Arc<Line>) -> Option<usize> {
        self.lines
            .iter()
            .position(|(_, known)| Arc::ptr_eq(known, line))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const CAPS: Caps = Caps {
        max_outbound: 3,
        max_in_flight: 2,
    };

    fn id(n: u8) -> Id {
        Id([n; 32])
    }

    fn addr(n: u8) -> Addr {
        SocketAddr::from(([10, 0, 0, n], 7)).into()
    }

    fn dial(pool: &mut Pool, n: u8, now_ms: u64) -> (Use, Option<Arc<Line>>) {
        match pool.route(id(n), addr(n), CAPS, now_ms) {
            Route::Dial { over, instead_of } => (over, instead_of),
            _ => panic!("{n} should have been dialled"),
        }
    }

    #[test]
    fn a_peer_that_is_being_dialled_is_not_dialled_again() {
        let mut pool = Pool::default();
        let (first, _) = dial(&mut pool, 1, 0);
        match pool.route(id(1), addr(1), CAPS, 0) {
            Route::Over(second) => assert!(Arc::ptr_eq(first.line(), second.line())),
            _ => panic!("there is a connection under way"),
        }
        assert_eq!(pool.outbound(), 1);
    }

    #[test]
    fn the_one_idle_longest_makes_room_and_none_that_is_in_use() {
        let mut pool = Pool::default();
        let (busy, _) = dial(&mut pool, 1, 0);
        let second = dial(&mut pool, 2, 5).0.line().clone();
        let third = dial(&mut pool, 3, 3).0.line().clone();
        let (fourth, gone) = dial(&mut pool, 4, 9);
        assert!(Arc::ptr_eq(&gone.unwrap(), &third));
        assert_eq!(pool.outbound(), 3);
        second.touch(100);
        let (_fifth, gone) = dial(&mut pool, 5, 101);
        assert!(Arc::ptr_eq(&gone.unwrap(), &second));
        // The others have requests under way, and so has the newest.
        assert!(matches!(pool.route(id(6), addr(6), CAPS, 200), Route::Busy));
        drop((busy, fourth));
    }

    #[test]
    fn requests_on_one_connection_are_bounded() {
        let mut pool = Pool::default();
        let (_first, _) = dial(&mut pool, 1, 0);
        let Route::Over(second) = pool.route(id(1), addr(1), CAPS, 0) else {
            panic!("there is room for two");
        };
        assert!(matches!(pool.route(id(1), addr(1), CAPS, 0), Route::Busy));
        drop(second);
        assert!(matches!(
            pool.route(id(1), addr(1), CAPS, 0),
            Route::Over(_)
        ));
    }

    #[test]
    fn an_inbound_peer_is_asked_once_it_has_proven_its_id() {
        let mut pool = Pool::default();
        let line = pool.add(None, None, CAPS, 0);
        assert_eq!((pool.inbound(), pool.outbound()), (1, 0));
        pool.identify(&line, id(1));
        match pool.route(id(1), addr(1), CAPS, 0) {
            Route::Over(over) => assert!(Arc::ptr_eq(over.line(), &line)),
            _ => panic!("it can be asked"),
        }
        // That does not show that it listens where it says.
        let to = pool.route_to(Some(id(1)), addr(1), CAPS, 0);
        assert!(matches!(to, Route::Dial { .. }));
        let to = pool.route_to(Some(id(1)), addr(1), CAPS, 0);
        assert!(matches!(to, Route::Over(_)));
    }

    #[test]
    fn what_ended_is_forgotten_and_the_last_one_is_told() {
        let mut pool = Pool::default();
        let a = dial(&mut pool, 1, 0).0.line().clone();
        let b = pool.add(None, None, CAPS, 0);
        pool.retire(&a);
        pool.retire(&a);
        assert_eq!((pool.outbound(), pool.alive()), (0, 2));
        assert!(!pool.gone(&a));
        assert!(pool.gone(&b));
        assert_eq!((pool.inbound(), pool.alive()), (0, 0));
        pool.close();
        assert!(matches!(pool.route(id(1), addr(1), CAPS, 0), Route::Closed));
    }
}
