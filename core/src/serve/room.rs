//! Who is inside, and who may still come in: a pure decision over the connections there are.
//!
//! One address gets at most its share; whoever comes when all is taken takes the place of the connection that has
//! been idle for longest. Always: never more than the limits; nobody with a request in hand has to go.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, Ipv6Addr},
};

/// The connections of a server, each with what it knows of itself.
#[derive(Debug)]
pub(super) struct Room<T> {
    max: usize,
    /// 0 for no limit.
    max_per_peer: usize,
    guests: BTreeMap<u64, (IpAddr, T)>,
    per_peer: BTreeMap<IpAddr, usize>,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Enters,
    /// Once this one is gone.
    Replaces(u64),
    Full,
    PeerFull,
}

impl<T> Room<T> {
    pub fn new(max: usize, max_per_peer: usize) -> Self {
        Room {
            max,
            max_per_peer,
            guests: BTreeMap::new(),
            per_peer: BTreeMap::new(),
        }
    }

    /// `idle_since` is `None` for whoever must stay; the smallest goes first.
    pub fn ask(&self, peer: IpAddr, idle_since: impl Fn(&T) -> Option<u64>) -> Verdict {
        let peer = household(peer);
        let own = self.per_peer.get(&peer).copied().unwrap_or(0);
        let (among_own, otherwise) = if self.max_per_peer > 0 && own >= self.max_per_peer {
            (true, Verdict::PeerFull)
        } else if self.guests.len() >= self.max {
            (false, Verdict::Full)
        } else {
            return Verdict::Enters;
        };
        let candidates = self
            .guests
            .iter()
            .filter(|(_, (of, _))| !among_own || *of == peer);
        let idle = candidates.filter_map(|(id, (_, guest))| Some((idle_since(guest)?, *id)));
        idle.min()
            .map_or(otherwise, |(_, id)| Verdict::Replaces(id))
    }

    pub fn enter(&mut self, id: u64, peer: IpAddr, guest: T) {
        let peer = household(peer);
        *self.per_peer.entry(peer).or_default() += 1;
        self.guests.insert(id, (peer, guest));
    }

    pub fn leave(&mut self, id: u64) {
        let Some((peer, _)) = self.guests.remove(&id) else {
            return;
        };
        if let Entry::Occupied(mut own) = self.per_peer.entry(peer) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    pub fn get(&self, id: u64) -> Option<&T> {
        self.guests.get(&id).map(|(_, guest)| guest)
    }

    pub fn guests(&self) -> impl ExactSizeIterator<Item = &T> {
        self.guests.values().map(|(_, guest)| guest)
    }
}

/// Under IPv6 one subscriber has a whole /64 at its disposal.
fn household(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// From where, and since when they are idle.
    type Guests<'a> = &'a [(&'a str, Option<u64>)];

    /// Guests are the instant since when they are idle.
    fn room(max: usize, per_peer: usize, guests: Guests<'_>) -> Room<Option<u64>> {
        let mut room = Room::new(max, per_peer);
        for (id, (peer, idle)) in (0..).zip(guests) {
            room.enter(id, ip(peer), *idle);
        }
        room
    }

    #[test]
    fn the_longest_idle_one_makes_room_and_nobody_busy_does() {
        use Verdict::{Enters, Full, PeerFull, Replaces};
        let (a, b) = ("10.0.0.1", "10.0.0.2");
        let cases: &[(usize, usize, Guests<'_>, Verdict)] = &[
            (2, 0, &[], Enters),
            (2, 0, &[(b, Some(1))], Enters),
            (2, 0, &[(b, Some(5)), (b, Some(3))], Replaces(1)),
            (2, 0, &[(b, Some(3)), (b, Some(3))], Replaces(0)),
            (2, 0, &[(b, None), (a, Some(9))], Replaces(1)),
            (2, 0, &[(b, None), (a, None)], Full),
            // At its share, only its own make room, even while there is some.
            (
                9,
                2,
                &[(b, Some(1)), (a, Some(7)), (a, Some(8))],
                Replaces(1),
            ),
            (9, 2, &[(b, Some(1)), (a, None), (a, None)], PeerFull),
            (9, 2, &[(b, Some(1)), (a, None)], Enters),
            (3, 2, &[(b, Some(1)), (b, Some(2)), (a, None)], Replaces(0)),
        ];
        for (n, (max, per_peer, guests, expected)) in cases.iter().enumerate() {
            let got = room(*max, *per_peer, guests).ask(ip(a), |idle| *idle);
            assert_eq!(got, *expected, "case {n}");
        }
    }

    #[test]
    fn one_network_of_ipv6_is_one_peer_and_mapped_ipv4_is_ipv4() {
        for (inside, newcomer, expected) in [
            ("2001:db8::1", "2001:db8::ffff:2", Verdict::PeerFull),
            ("2001:db8::1", "2001:db8:0:1::1", Verdict::Enters),
            ("::ffff:10.0.0.1", "10.0.0.1", Verdict::PeerFull),
            ("10.0.0.1", "10.0.0.2", Verdict::Enters),
        ] {
            let room = room(9, 1, &[(inside, None)]);
            assert_eq!(room.ask(ip(newcomer), |idle| *idle), expected, "{newcomer}");
        }
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_passed_and_only_idle_ones_go(
            max in 1usize..6, per_peer in 0usize..4,
            steps in prop::collection::vec((0u8..4, any::<bool>(), any::<bool>()), 0..60),
        ) {
            let mut room: Room<Option<u64>> = Room::new(max, per_peer);
            let (mut inside, mut next) = (BTreeMap::new(), 0u64);
            for (peer, idle, leaves) in steps {
                if leaves && let Some((&id, _)) = inside.iter().next() {
                    room.leave(id);
                    inside.remove(&id);
                }
                let addr = IpAddr::from([10, 0, 0, peer]);
                match room.ask(addr, |idle| *idle) {
                    Verdict::Enters => {}
                    Verdict::Replaces(id) => {
                        prop_assert!(inside[&id] != (peer, None), "a busy one had to go");
                        room.leave(id);
                        inside.remove(&id);
                    }
                    Verdict::Full | Verdict::PeerFull => {
                        let blocked = inside.values().filter(|(of, _)| per_peer > 0 && *of == peer).count();
                        prop_assert!(blocked >= per_peer.max(1) || inside.len() >= max);
                        continue;
                    }
                }
                let guest = idle.then_some(next);
                room.enter(next, addr, guest);
                inside.insert(next, (peer, guest));
                next += 1;
                prop_assert!(inside.len() <= max);
                let own = inside.values().filter(|(of, _)| *of == peer).count();
                prop_assert!(per_peer == 0 || own <= per_peer);
                prop_assert_eq!(room.guests().len(), inside.len());
                prop_assert_eq!(room.per_peer.values().sum::<usize>(), inside.len());
            }
        }
    }
}
