//! How much one node lets others ask of it: requests a second, bytes a second, requests in flight; for all
//! together, and at most a share of that for any one peer.
//!
//! Pure: `now` is an argument. Always: in any span of `t` seconds at most a second's worth plus `t` times the
//! rate passes, to the nanosecond, however coarsely or wildly the clock moves; a refusal takes nothing; memory
//! is bounded, and a peer that rests takes none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ron_core::{admission::Tokens, lock::RankedMutex};

use crate::{few::FewMap, id::Id, metrics::COUNTERS_LOCK};

/// Each at least 1. A burst may be a second's worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub requests_per_s: u32,
    /// At least the largest frame, or it could never pass.
    pub bytes_per_s: u32,
    pub in_flight: u32,
    /// How much of each of these one peer may have.
    pub peer_share_percent: u32,
    /// Peers that are told apart; beyond that, newcomers have one share together.
    pub peers: usize,
}

/// The decision. See [`SharedLimiter`] for one that gives back by itself.
#[derive(Clone, Debug)]
pub struct Limiter {
    all: Limits,
    each: Limits,
    start: Instant,
    /// The latest reading since the start: one from before it changes nothing.
    latest_ns: u64,
    used: Share,
    peers: FewMap<Id, Share>,
    /// Of all who are not told apart.
    others: Share,
    sweep_at_len: usize,
    sweep_at_ns: u64,
}

/// One request's place; to be given back.
#[must_use]
#[derive(Debug)]
pub struct Permit {
    peer: Id,
    told_apart: bool,
}

/// What was exhausted, and when it is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    pub kind: Kind,
    pub retry_after: Duration,
}

/// The `kind` of `quota_reject_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Requests,
    Bytes,
    InFlight,
    PeerRequests,
    PeerBytes,
    PeerInFlight,
}

/// A limiter that many tasks ask.
#[derive(Clone, Debug)]
pub struct SharedLimiter(Arc<RankedMutex<Limiter>>);

/// A place that is given back when this is dropped.
#[derive(Debug)]
pub struct Entered {
    limiter: SharedLimiter,
    permit: Option<Permit>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    requests: Tokens,
    bytes: Tokens,
    in_flight: u32,
}

/// When only others' ends will make room.
const COME_BACK_AFTER: Duration = Duration::from_millis(100);

/// A sweep that frees nobody is not repeated before this.
const SWEEP_NS: u64 = 100_000_000;
const SWEEP_LEN: usize = 4;

impl Kind {
    pub const ALL: [Kind; 6] = [
        Kind::Requests,
        Kind::Bytes,
        Kind::InFlight,
        Kind::PeerRequests,
        Kind::PeerBytes,
        Kind::PeerInFlight,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Requests => "requests",
            Kind::Bytes => "bytes",
            Kind::InFlight => "in_flight",
            Kind::PeerRequests => "peer_requests",
            Kind::PeerBytes => "peer_bytes",
            Kind::PeerInFlight => "peer_in_flight",
        }
    }
}

impl Limiter {
    /// Starts with a second's worth of everything.
    pub fn new(limits: Limits, now: Instant) -> Limiter {
        let all = limits.at_least_one();
        let share = |whole: u32| {
            let part = u64::from(whole) * u64::from(all.peer_share_percent.min(100)) / 100;
            part.max(1) as u32
        };
        let each = Limits {
            requests_per_s: share(all.requests_per_s),
            bytes_per_s: share(all.bytes_per_s),
            in_flight: share(all.in_flight),
            ..all
        };
        Limiter {
            all,
            each,
            start: now,
            latest_ns: 0,
            used: Share::full(&all, 0),
            peers: FewMap::new(),
            others: Share::full(&each, 0),
            sweep_at_len: SWEEP_LEN,
            sweep_at_ns: 0,
        }
    }

    /// A place for a request of so many bytes, or what is in its way. Never waits.
    pub fn try_take(&mut self, now: Instant, peer: &Id, bytes: u32) -> Result<Permit, Exhausted> {
        let now_ns = self.nanos(now);
        self.used
            .check(&self.all, now_ns, bytes)
            .map_err(|(what, retry_after)| Exhausted {
                kind: [Kind::Requests, Kind::Bytes, Kind::InFlight][what as usize],
                retry_after,
            })?;
        let told_apart = self.tell_apart(peer, now_ns);
        let each = self.each;
        let share = self.share(peer, told_apart);
        share
            .check(&each, now_ns, bytes)
            .map_err(|(what, retry_after)| {
                ron_core::sometimes!("dht.peer_limited");
                Exhausted {
                    kind: [Kind::PeerRequests, Kind::PeerBytes, Kind::PeerInFlight][what as usize],
                    retry_after,
                }
            })?;
        share.take(&each, bytes);
        self.used.take(&self.all, bytes);
        Ok(Permit {
            peer: *peer,
            told_apart,
        })
    }

    /// The answer was so long: known too late to refuse, so it is owed, a second's worth at most.
    pub fn charge(&mut self, now: Instant, permit: &Permit, bytes: u32) {
        let now_ns = self.nanos(now);
        let each = self.each;
        self.used.charge(&self.all, now_ns, bytes);
        self.share(&permit.peer, permit.told_apart)
            .charge(&each, now_ns, bytes);
    }

    pub fn give_back(&mut self, permit: Permit) {
        self.used.in_flight = self.used.in_flight.saturating_sub(1);
        let share = self.share(&permit.peer, permit.told_apart);
        share.in_flight = share.in_flight.saturating_sub(1);
    }

    pub fn in_flight(&self) -> u32 {
        self.used.in_flight
    }

    /// Peers that take memory.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    fn nanos(&mut self, now: Instant) -> u64 {
        let read = now.saturating_duration_since(self.start).as_nanos() as u64;
        self.latest_ns = self.latest_ns.max(read);
        self.latest_ns
    }

    fn share(&mut self, peer: &Id, told_apart: bool) -> &mut Share {
        match self.peers.get_mut(peer) {
            Some(share) if told_apart => share,
            _ => &mut self.others,
        }
    }

    /// True if this peer has a share of its own, perhaps from now on.
    fn tell_apart(&mut self, peer: &Id, now_ns: u64) -> bool {
        if self.peers.contains_key(peer) {
            return true;
        }
        if self.peers.len() >= self.sweep_at_len.min(self.all.peers) && now_ns >= self.sweep_at_ns {
            let before = self.peers.len();
            let each = self.each;
            self.peers.retain(|_, share| !share.rests(&each, now_ns));
            self.sweep_at_len = (2 * self.peers.len()).max(SWEEP_LEN);
            if self.peers.len() == before {
                self.sweep_at_ns = now_ns.saturating_add(SWEEP_NS);
            }
        }
        let room = self.peers.len() < self.all.peers;
        if room {
            let share = Share::full(&self.each, now_ns);
            self.peers.get_or_insert(*peer, share);
        }
        room
    }
}

impl Limits {
    fn at_least_one(self) -> Limits {
        Limits {
            requests_per_s: self.requests_per_s.max(1),
            bytes_per_s: self.bytes_per_s.max(1),
            in_flight: self.in_flight.max(1),
            ..self
        }
    }
}

impl SharedLimiter {
    pub fn new(limits: Limits, now: Instant) -> SharedLimiter {
        let limiter = Limiter::new(limits, now);
        SharedLimiter(Arc::new(RankedMutex::new(COUNTERS_LOCK, limiter)))
    }

    pub fn try_enter(&self, now: Instant, peer: &Id, bytes: u32) -> Result<Entered, Exhausted> {
        let permit = self.0.lock().try_take(now, peer, bytes)?;
        Ok(Entered {
            limiter: self.clone(),
            permit: Some(permit),
        })
    }

    pub fn in_flight(&self) -> u32 {
        self.0.lock().in_flight()
    }
}

impl Entered {
    /// See [`Limiter::charge`].
    pub fn charge(&self, now: Instant, bytes: u32) {
        if let Some(permit) = &self.permit {
            self.limiter.0.lock().charge(now, permit, bytes);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.limiter.0.lock().give_back(permit);
        }
    }
}

/// Which part of a share is used up.
enum Part {
    Requests,
    Bytes,
    InFlight,
}

impl Share {
    fn full(limits: &Limits, now_ns: u64) -> Share {
        Share {
            requests: Tokens::full(limits.requests_per_s, now_ns),
            bytes: Tokens::full(limits.bytes_per_s, now_ns),
            in_flight: 0,
        }
    }

    fn check(&mut self, limits: &Limits, now_ns: u64, bytes: u32) -> Result<(), (Part, Duration)> {
        if self.in_flight >= limits.in_flight {
            return Err((Part::InFlight, COME_BACK_AFTER));
        }
        let (requests, of_bytes) = (limits.requests_per_s, limits.bytes_per_s);
        self.requests.refill(requests, requests, now_ns);
        self.bytes.refill(of_bytes, of_bytes, now_ns);
        self.requests
            .has(requests, 1)
            .map_err(|wait| (Part::Requests, wait))?;
        self.bytes
            .has(of_bytes, bytes.min(of_bytes))
            .map_err(|wait| (Part::Bytes, wait))
    }

    /// After a check at the same time.
    fn take(&mut self, limits: &Limits, bytes: u32) {
        self.in_flight += 1;
        self.requests.take(1);
        self.bytes.take(bytes.min(limits.bytes_per_s));
    }

    fn charge(&mut self, limits: &Limits, now_ns: u64, bytes: u32) {
        let of_bytes = limits.bytes_per_s;
        self.bytes.refill(of_bytes, of_bytes, now_ns);
        self.bytes.owe(bytes, of_bytes);
    }

    /// It is as if it had never asked.
    fn rests(&mut self, limits: &Limits, now_ns: u64) -> bool {
        let (requests, of_bytes) = (limits.requests_per_s, limits.bytes_per_s);
        self.requests.refill(requests, requests, now_ns);
        self.bytes.refill(of_bytes, of_bytes, now_ns);
        self.in_flight == 0 && self.requests.is_full(requests) && self.bytes.is_full(of_bytes)
    }
}

#[cfg(test)]
mod tests;
