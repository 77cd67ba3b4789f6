//! One lookup in a small world: peers that answer early, late or never, that lie, reset or are slow, in every order.
//!
//! It steps the shipped [`Lookup`]. Time goes in ticks, and whatever is under way may be answered before or after any
//! of them. What was asked and answered is the world's own account. Faults are bounded; slowness is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rand_core::SeedableRng;
use ron_core::{
    Rng,
    backoff::{Backoff, Jitter},
};
use stateright::{Model, Property};

use crate::{
    contact::Contact,
    hedge::HedgeBudget,
    id::Id,
    lookup::{Answer, Failure, Finished, Goal, Lookup, LookupRules, Next, ProbeId, Seed},
};

/// What to try.
#[derive(Clone, Debug)]
pub struct LookupWorld {
    /// Peer n stands n steps from the target, knows the two before it, and everybody knows us.
    pub peers: u8,
    /// Answers that name a peer which does not exist, nearer than all that do.
    pub lies: u8,
    /// Connections that break, each of which may be tried again.
    pub resets: u8,
    /// Peers that never answer.
    pub silent: u8,
    /// `None` is the shipped code.
    pub flaw: Option<Flaw>,
    /// Any moment: only differences count.
    pub origin: Instant,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// One more probe than alpha.
    SearchesTooWide,
    /// One more hedge than beta.
    HedgesTooMuch,
    /// A peer that resets is asked for ever.
    TriesForever,
    /// It does not know itself by name.
    ForgetsItself,
    /// An answer after the hedge delay is thrown away.
    DropsLateAnswers,
    /// The timer is not armed.
    NeverWakes,
    /// A silent peer holds up the end until its timeout.
    WaitsForSilent,
    /// Whoever is overdue is left behind, however few have answered.
    LeavesTheSlow,
}

/// The properties, by name.
pub const ALPHA: &str = "at most alpha probes are under way and in time while it searches";
pub const BETA: &str = "at most beta hedges are under way, and only for overdue probes";
pub const TRIES: &str = "nobody is asked more often than its tries, nor twice at once";
pub const SELF: &str = "it never asks itself";
pub const RESULT: &str =
    "the result is the closest that answered, sorted and distinct, late answers included";
pub const PROMPT: &str = "once all that is left is overdue beyond patience, it is over";
pub const PATIENT: &str =
    "with less than half of the front answered, it is not over while somebody may still answer";
pub const FUTURE: &str = "it waits for a moment in the future";
pub const ENDS: &str = "it ends";
pub const NO_DEADLINE: &str = "bounded faults never take it to its deadline";
pub const HEDGED: &str = "a hedge can be the one that answers";
pub const LATE: &str = "a late answer can be part of the result";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    lookup: Option<Lookup>,
    tick: u8,
    /// What the node may still spend on hedges.
    hedges_left: u32,
    /// Requests under way: to whom, since when, hedge or not.
    under_way: BTreeMap<ProbeId, Under>,
    asked: BTreeMap<u8, u8>,
    answered: BTreeSet<u8>,
    late: BTreeSet<u8>,
    hedge_answered: bool,
    end: Option<Ended>,
    broken: BTreeSet<&'static str>,
    lies: u8,
    resets: u8,
    /// When the last that was reset may be asked again.
    retry_due: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Under {
    peer: u8,
    since: u8,
    hedge: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ended {
    closest: Vec<u8>,
    complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Answer(ProbeId),
    Lie(ProbeId),
    Reset(ProbeId),
    Tick,
}

const TICK: Duration = Duration::from_millis(100);
const K: usize = 3;
const ALPHA_PROBES: usize = 2;
const BETA_HEDGES: usize = 1;
const HEDGE_TICKS: u8 = 1;
const TIMEOUT_TICKS: u8 = 3;
const DEADLINE_TICKS: u8 = 20;
const MAX_TRIES: u8 = 2;
/// We stand farther from the target than all.
const ME: u8 = 200;
/// Peers that do not exist: nearer than all that do.
const FAKES: u8 = 10;

impl Model for LookupWorld {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let me = if self.flaw == Some(Flaw::ForgetsItself) {
            ME + 1
        } else {
            ME
        };
        let seeds = [self.peers, self.peers - 1].map(|peer| Seed {
            contact: contact(FAKES + peer),
            rtt_ms: None,
            suspect: false,
        });
        let (start, end) = (self.at(0), self.at(DEADLINE_TICKS));
        let lookup = Lookup::new(
            Arc::new(self.rules()),
            Goal::Closest,
            id(0),
            id(me),
            seeds,
            start,
            end,
        );
        let mut world = World {
            lookup: Some(lookup),
            tick: 0,
            hedges_left: 2,
            under_way: BTreeMap::new(),
            asked: BTreeMap::new(),
            answered: BTreeSet::new(),
            late: BTreeSet::new(),
            hedge_answered: false,
            end: None,
            broken: BTreeSet::new(),
            lies: 0,
            resets: 0,
            retry_due: 0,
        };
        self.drive(&mut world);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.end.is_some() {
            return;
        }
        for (probe, under) in &world.under_way {
            if !self.exists(under.peer) {
                continue;
            }
            actions.push(Action::Answer(*probe));
            if world.lies < self.lies {
                actions.push(Action::Lie(*probe));
            }
            if world.resets < self.resets {
                actions.push(Action::Reset(*probe));
            }
        }
        if self.flaw != Some(Flaw::NeverWakes) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Answer(probe) => {
                let peer = world.under_way.get(&probe)?.peer;
                self.answer(&mut world, probe, known_by(peer))?;
            }
            Action::Lie(probe) => {
                world.lies += 1;
                let fake = FAKES - world.lies;
                self.answer(&mut world, probe, vec![contact(fake), contact(ME)])?;
            }
            Action::Reset(probe) => {
                world.resets += 1;
                world.retry_due = world.tick + 1;
                world.under_way.remove(&probe)?;
                let (now, mut rng) = (self.at(world.tick), Rng::from_seed([0; 32]));
                world
                    .lookup
                    .as_mut()?
                    .handle_failure(probe, Failure::Reset, now, &mut rng);
            }
            Action::Tick => {
                world.tick += 1;
                let tick = world.tick;
                world
                    .under_way
                    .retain(|_, under| tick - under.since < TIMEOUT_TICKS);
            }
        }
        self.drive(&mut world);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALPHA, |_, world: &World| !world.broken.contains(ALPHA)),
            Property::always(BETA, |_, world: &World| !world.broken.contains(BETA)),
            Property::always(TRIES, |_, world: &World| !world.broken.contains(TRIES)),
            Property::always(SELF, |_, world: &World| !world.broken.contains(SELF)),
            Property::always(FUTURE, |_, world: &World| !world.broken.contains(FUTURE)),
            Property::always(PROMPT, |_, world: &World| !world.broken.contains(PROMPT)),
            Property::always(PATIENT, |_, world: &World| !world.broken.contains(PATIENT)),
            Property::always(RESULT, |_, world: &World| {
                let closest: Vec<u8> = world.answered.iter().copied().take(K).collect();
                world.end.as_ref().is_none_or(|end| end.closest == closest)
            }),
            Property::always(NO_DEADLINE, |_, world: &World| {
                world.end.as_ref().is_none_or(|end| end.complete)
            }),
            Property::eventually(ENDS, |_, world: &World| world.end.is_some()),
            Property::sometimes(HEDGED, |_, world: &World| world.hedge_answered),
            Property::sometimes(LATE, |_, world: &World| {
                let late = |peer| world.late.contains(peer);
                world
                    .end
                    .as_ref()
                    .is_some_and(|end| end.closest.iter().any(late))
            }),
        ]
    }
}

impl LookupWorld {
    fn rules(&self) -> LookupRules {
        let flaw = |flaw| self.flaw == Some(flaw);
        LookupRules {
            k: K,
            alpha: ALPHA_PROBES + usize::from(flaw(Flaw::SearchesTooWide)),
            beta: BETA_HEDGES + usize::from(flaw(Flaw::HedgesTooMuch)),
            hop_budget: 5,
            rpc_timeout: TICK * u32::from(TIMEOUT_TICKS),
            hedge_after: match flaw(Flaw::WaitsForSilent) {
                true => TICK * u32::from(TIMEOUT_TICKS),
                false => TICK * u32::from(HEDGE_TICKS),
            },
            tries: if flaw(Flaw::TriesForever) {
                u8::MAX
            } else {
                MAX_TRIES
            },
            backoff: Backoff {
                min: TICK,
                max: TICK,
                jitter: Jitter::None,
            },
            diverse: false,
            per_subnet: usize::MAX,
            max_requests: 30,
        }
    }

    /// Hands an answer over, unless the flaw throws it away.
    fn answer(&self, world: &mut World, probe: ProbeId, closer: Vec<Contact>) -> Option<()> {
        let under = world.under_way.remove(&probe)?;
        let late = world.tick - under.since >= HEDGE_TICKS;
        world.answered.insert(under.peer);
        world.hedge_answered |= under.hedge;
        if late {
            world.late.insert(under.peer);
        }
        if late && self.flaw == Some(Flaw::DropsLateAnswers) {
            return Some(());
        }
        let records = Vec::new();
        let now = self.at(world.tick);
        world
            .lookup
            .as_mut()?
            .handle_answer(probe, Answer { closer, records }, now);
        Some(())
    }

    /// Polls until it waits or is done, and keeps the world's account of what it does.
    fn drive(&self, world: &mut World) {
        let now = self.at(world.tick);
        let hedges = HedgeBudget::new(0, world.hedges_left);
        while let Some(mut lookup) = world.lookup.take() {
            match lookup.poll(now, &hedges, |_| None) {
                Next::Probe(probe) => {
                    let under = Under {
                        peer: probe.to.id.0[31],
                        since: world.tick,
                        hedge: probe.hedge,
                    };
                    world.note_probe(under, lookup.is_closing_in());
                    world.under_way.insert(probe.id, under);
                    world.lookup = Some(lookup);
                }
                Next::Wait(until) => {
                    if until <= now {
                        world.broken.insert(FUTURE);
                    }
                    if world.is_over() {
                        world.broken.insert(PROMPT);
                    }
                    if self.flaw == Some(Flaw::LeavesTheSlow) && world.has_some_and_waits() {
                        let complete = true;
                        let Ended { closest, .. } = Ended::from(lookup.finish(now));
                        world.finish(Ended { closest, complete });
                        break;
                    }
                    world.lookup = Some(lookup);
                    break;
                }
                Next::Done => world.finish(Ended::from(lookup.finish(now))),
            }
        }
        world.hedges_left = hedges.left();
    }

    fn at(&self, tick: u8) -> Instant {
        self.origin + TICK * u32::from(tick)
    }

    /// Liars' inventions are silent, and so are the first of the others.
    fn exists(&self, peer: u8) -> bool {
        peer > FAKES + self.silent
    }
}

impl World {
    fn note_probe(&mut self, under: Under, closing_in: bool) {
        let fresh = |u: &&Under| self.tick - u.since < HEDGE_TICKS;
        let plain = self
            .under_way
            .values()
            .filter(fresh)
            .filter(|u| !u.hedge)
            .count();
        let hedges = self.under_way.values().filter(|u| u.hedge).count();
        let overdue = self
            .under_way
            .values()
            .any(|u| self.tick - u.since >= HEDGE_TICKS);
        let tries = self.asked.entry(under.peer).or_default();
        *tries += 1;
        let twice = self.under_way.values().any(|u| u.peer == under.peer);
        for (law, holds) in [
            (ALPHA, under.hedge || closing_in || plain < ALPHA_PROBES),
            (BETA, !under.hedge || overdue && hedges < BETA_HEDGES),
            (
                TRIES,
                *tries <= MAX_TRIES && !twice && !self.answered.contains(&under.peer),
            ),
            (SELF, under.peer != ME),
        ] {
            if !holds {
                self.broken.insert(law);
            }
        }
    }

    fn finish(&mut self, end: Ended) {
        let (answered, open) = (self.answered.len(), self.under_way.len());
        if end.complete && answered * 2 < K.min(answered + open) {
            self.broken.insert(PATIENT);
        }
        self.end = Some(end);
    }

    /// Enough answered, and whatever is under way has been silent for twice its delay.
    fn is_over(&self) -> bool {
        self.answered.len() >= K && self.has_some_and_waits()
    }

    /// Somebody answered, and whatever is under way has been silent for twice its delay.
    fn has_some_and_waits(&self) -> bool {
        let patience = 2 * HEDGE_TICKS;
        let given_up = |u: &Under| self.tick - u.since >= patience;
        self.tick >= self.retry_due
            && !self.answered.is_empty()
            && !self.under_way.is_empty()
            && self.under_way.values().all(given_up)
    }
}

impl From<Finished> for Ended {
    fn from(finished: Finished) -> Ended {
        Ended {
            closest: finished
                .closest
                .iter()
                .map(|contact| contact.id.0[31])
                .collect(),
            complete: finished.complete,
        }
    }
}

/// The two that stand before this one, and us.
fn known_by(peer: u8) -> Vec<Contact> {
    let before = [peer - 1, peer - 2]
        .into_iter()
        .filter(|other| *other > FAKES);
    before.chain([ME]).map(contact).collect()
}

fn id(n: u8) -> Id {
    let mut id = [0; 32];
    id[31] = n;
    Id(id)
}

fn contact(n: u8) -> Contact {
    Contact {
        id: id(n),
        addr: SocketAddr::from(([10, 0, 0, n], 1)).into(),
    }
}
