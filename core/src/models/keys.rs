//! The issuer's keys and those who use them, in every order: time passes, the issuer rotates, answers and fails, tokens
//! with known and unknown keys arrive, and a request loads its snapshot before, and ends after, the keys are replaced.
//!
//! It steps the shipped [`JwksCache`] and [`TokenCache`]. The issuer publishes one key at a time, by number; a token
//! is good while its key is the published one. Always finite: `ticks` of ten seconds, `rotations`, two unknown ids.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use rand_chacha::rand_core::SeedableRng;
use stateright::{Model, Property};

use crate::{
    Rng,
    auth::{Identity, JwksCache, JwksPolicy, KidHash, Next, TokenCache, TokenHash, Verified, Via},
    backoff::Backoff,
};

/// What to try.
#[derive(Clone, Debug)]
pub struct KeyRefresh {
    pub start: Instant,
    pub ticks: u32,
    pub rotations: u8,
    /// `None` is the shipped code.
    pub flaw: Option<Flaw>,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A request reads the keys and their generation at two moments.
    TornSnapshot,
    /// Keys are used for as long as no others come.
    TrustsForever,
    /// Every unknown key id is worth a fetch.
    NoCoolDown,
}

/// The properties, by name.
pub const REMOVED: &str = "a key that the snapshot does not have lets nobody in";
pub const CLOSED: &str = "keys that could not be renewed are not used";
pub const PACE: &str = "after a good answer the issuer has peace for a cool-down";
pub const USED: &str = "tokens of a new key are let in";

const TICK: Duration = Duration::from_secs(10);
const COOL_DOWN: Duration = Duration::from_secs(30);
const MAX_STALE: Duration = Duration::from_secs(90);
const UNKNOWN: [&str; 2] = ["unknown", "another"];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    tick: u32,
    cache: JwksCache,
    published: u8,
    held: Held,
    tokens: TokenCache,
    /// A request that found its token good and has not remembered it yet.
    request: Option<(u8, u64)>,
    in_flight: bool,
    /// When the last fetch began, if its answer was good.
    last_good: Option<u32>,
    removed_accepted: bool,
    too_soon: bool,
    newest_used: u8,
}

/// What the gate swaps in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    generation: u64,
    /// The key, and when it came.
    key: Option<(u8, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    Rotate,
    Answer,
    Fail,
    /// A token with the key of this number arrives and is judged.
    Arrive(u8),
    /// The request that waits remembers its token.
    Remember,
    Unknown(usize),
}

impl KeyRefresh {
    fn policy(&self) -> JwksPolicy {
        JwksPolicy {
            timeout: Duration::from_secs(2),
            fresh_for: Duration::from_secs(60),
            max_stale: MAX_STALE,
            unknown_kid_cooldown: match self.flaw {
                Some(Flaw::NoCoolDown) => Duration::ZERO,
                _ => COOL_DOWN,
            },
            retry: Backoff::plus(TICK, COOL_DOWN),
        }
    }

    fn now(&self, world: &World) -> Instant {
        self.start + TICK * world.tick
    }

    /// What the refresher does before it waits.
    fn poll(&self, world: &mut World) {
        loop {
            match world.cache.poll_next(self.now(world)) {
                Next::Drop if self.flaw == Some(Flaw::TrustsForever) => {}
                Next::Drop => world.replace(None),
                Next::Fetch => {
                    let soon = |last| TICK * (world.tick - last) < COOL_DOWN;
                    world.too_soon |= world.last_good.is_some_and(soon);
                    (world.in_flight, world.last_good) = (true, None);
                }
                Next::Wait(_) | Next::WaitForFetch => return,
            }
        }
    }

    /// As the gate judges it: what is remembered under this snapshot, or else by its key.
    fn arrive(&self, world: &mut World, token: u8) {
        let Held { generation, key } = world.held;
        let wall = SystemTime::UNIX_EPOCH;
        let known = world
            .tokens
            .get(hash(token), generation, wall, Duration::ZERO);
        let fits = key.is_some_and(|(key, _)| key == token);
        if known.is_some() {
            world.removed_accepted |= !fits;
        } else if fits {
            world.newest_used = world.newest_used.max(token);
            world.request = Some((token, generation));
        }
    }

    fn remember(&self, world: &mut World) {
        let Some((token, generation)) = world.request.take() else {
            return;
        };
        let generation = match self.flaw {
            Some(Flaw::TornSnapshot) => world.held.generation,
            _ => generation,
        };
        world.tokens.insert(hash(token), generation, verified());
    }
}

impl World {
    fn replace(&mut self, key: Option<(u8, u32)>) {
        self.held = Held {
            generation: self.held.generation + 1,
            key,
        };
    }
}

fn hash(token: u8) -> TokenHash {
    TokenHash::of(&token.to_string())
}

/// One that never expires: time is not what is tried here.
fn verified() -> Verified {
    Verified {
        identity: Identity {
            subject: "ada".to_owned(),
            tenant: None,
            scopes: BTreeSet::new(),
            via: Via::Passport,
        },
        expires_ms: u64::MAX,
        not_before_ms: 0,
    }
}

impl Model for KeyRefresh {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            tick: 0,
            cache: JwksCache::new(self.policy(), self.start),
            published: 0,
            held: Held {
                generation: 0,
                key: None,
            },
            tokens: TokenCache::new(2),
            request: None,
            in_flight: false,
            last_good: None,
            removed_accepted: false,
            too_soon: false,
            newest_used: 0,
        };
        self.poll(&mut world);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.in_flight {
            // A fetch ends within its timeout, which is shorter than a tick.
            actions.extend([Action::Answer, Action::Fail]);
        } else if world.tick < self.ticks {
            actions.push(Action::Tick);
        }
        if world.published < self.rotations {
            actions.push(Action::Rotate);
        }
        match world.request {
            None => actions.extend((0..=world.published).map(Action::Arrive)),
            Some(_) => actions.push(Action::Remember),
        }
        actions.extend((0..UNKNOWN.len()).map(Action::Unknown));
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        let now = self.now(&world);
        let mut rng = Rng::from_seed([0; 32]);
        match action {
            Action::Tick => world.tick += 1,
            Action::Rotate => world.published += 1,
            Action::Answer => {
                world.in_flight = false;
                world.last_good = Some(world.tick);
                world.replace(Some((world.published, world.tick)));
                let known = BTreeSet::from([KidHash::of(&world.published.to_string())]);
                world.cache.handle_fetched(now, None, &known, &mut rng);
            }
            Action::Fail => {
                world.in_flight = false;
                world.cache.handle_failed(now, &mut rng);
            }
            Action::Arrive(token) => self.arrive(&mut world, token),
            Action::Remember => self.remember(&mut world),
            Action::Unknown(n) => world.cache.handle_unknown_kid(now, KidHash::of(UNKNOWN[n])),
        }
        self.poll(&mut world);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(REMOVED, |_, world: &World| !world.removed_accepted),
            Property::always(CLOSED, |_, world: &World| {
                let age = |(_, since): (u8, u32)| TICK * (world.tick - since);
                world.held.key.is_none_or(|key| age(key) < MAX_STALE)
            }),
            Property::always(PACE, |_, world: &World| !world.too_soon),
            Property::sometimes(USED, |model: &Self, world: &World| {
                world.newest_used == model.rotations
            }),
        ]
    }
}
