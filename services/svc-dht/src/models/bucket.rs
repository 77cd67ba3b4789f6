//! One bucket in a small world: peers met and named at once, pings lost, peers dying, crashes with a warm restart.
//!
//! It steps the shipped [`Bucket`] and, at a restart, the shipped file format. Two of the four peers share a
//! network, and there are contacts that must never be taken. Who lives, who proved itself and how often the
//! bucket was told of a failure is the world's own account. In the end nothing new happens, what is under
//! way comes to its end, and time passes: then a dead peer must have given way to one that waited.

use std::net::SocketAddr;

use stateright::{Model, Property};

use crate::{
    contact::Contact,
    id::Id,
    routing::{
        Bucket, BucketAction, Diversity, Entry, Home, Rules, Update, diversity,
        saved::{self, SavedPeer},
    },
};

/// What to try.
#[derive(Clone, Debug)]
pub struct BucketWorld {
    /// Connections that prove an id, to any peer.
    pub meetings: u8,
    /// Contacts that somebody names.
    pub hints: u8,
    /// Connections to ourselves, or to where nobody can be.
    pub unfit: u8,
    pub deaths: u8,
    /// Pings of the living that fail.
    pub lost_pings: u8,
    /// Reports that never reach the bucket.
    pub lost_reports: u8,
    pub ticks: u8,
    pub crashes: u8,
    /// `None` is the shipped order.
    pub flaw: Option<Flaw>,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Whoever is met is put into the list by the one who met it.
    InsertsUnchecked,
    /// What was only named counts as proven.
    TrustsHints,
    /// A newcomer takes the place of the least recently seen without a ping.
    PushesOut,
    /// One failure is reported twice.
    CountsTwice,
    /// Time does not reach the bucket.
    LosesTicks,
    /// A restart puts the saved peers back one by one as if they had all been met at once, and what was there stays.
    RestoresOver,
}

/// The properties, by name.
pub const TWICE: &str = "no peer and no address is there twice";
pub const FIT: &str = "neither this node nor an unreachable address is there";
pub const SIZE: &str = "no more are there than may be, nor wait";
pub const DIVERSE: &str = "no network has more places than it may";
pub const PROVEN: &str = "only who proved its id is there";
pub const KEPT: &str = "who answered when last asked is not pushed out";
pub const REPLACED: &str = "a dead peer gives way in the end if somebody living waits";
pub const USED: &str = "a dead peer can be replaced after a crash";

const PEERS: usize = 4;
const ME: Id = Id([0; 32]);
const INDEX: u8 = 255;
const NETWORK: [u8; 16] = [3; 16];
const TICK_S: u32 = 30;
/// Enough for each peer to be asked in turn, and one more for a report that was lost.
const LAST_TICKS: u8 = 4;

const HOME: Home = Home {
    me: ME,
    rules: Rules {
        k: 2,
        replacements: 1,
        dead_after: 2,
        fresh_s: 30,
        patience_s: 10,
        diversity: Diversity {
            per_bucket: 1,
            per_table: 2,
        },
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    bucket: Bucket,
    now_s: u32,
    /// Updates on their way, in no order.
    inbox: Vec<Update>,
    /// Pings and proofs that were asked for.
    asked: Vec<Contact>,
    file: Vec<SavedPeer>,
    alive: [bool; PEERS],
    proven: [bool; PEERS],
    /// Failures that the bucket was told of since the last answer.
    failures: [u8; PEERS],
    pushed_out: bool,
    replaced: bool,
    spent: Spent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    meetings: u8,
    hints: u8,
    unfit: u8,
    deaths: u8,
    lost_pings: u8,
    lost_reports: u8,
    ticks: u8,
    crashes: u8,
    /// Peers that anybody has heard of, a bit each.
    known: u8,
    ending: bool,
    last_ticks: u8,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Meet(u8),
    /// A connection to ourselves, or to where nobody can be.
    MeetUnfit(u8),
    Name(u8),
    Deliver(u8),
    /// What was asked comes to its end.
    Finish(u8),
    LosePing(u8),
    LoseReport(u8),
    Die(u8),
    Tick,
    /// Stopped without a word and started from the file.
    Crash,
    End,
    Ended,
}

impl Model for BucketWorld {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            bucket: Bucket::new(INDEX),
            now_s: 0,
            inbox: Vec::new(),
            asked: Vec::new(),
            file: Vec::new(),
            alive: [true; PEERS],
            proven: [false; PEERS],
            failures: [0; PEERS],
            pushed_out: false,
            replaced: false,
            spent: Spent::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let spent = world.spent;
        if spent.ended {
            return;
        }
        actions.extend((0..world.inbox.len() as u8).map(Action::Deliver));
        actions.extend((0..world.asked.len() as u8).map(Action::Finish));
        if spent.ending {
            if world.inbox.is_empty() && world.asked.is_empty() {
                let over = spent.last_ticks >= LAST_TICKS;
                actions.push(if over { Action::Ended } else { Action::Tick });
            }
            return;
        }
        actions.push(Action::End);
        let living = (0..PEERS as u8).filter(|n| world.alive[usize::from(*n)]);
        if spent.meetings < self.meetings {
            actions.extend(
                living
                    .clone()
                    .filter(|n| spent.may_know(*n))
                    .map(Action::Meet),
            );
        }
        if spent.unfit < self.unfit {
            actions.extend([0, 1].map(Action::MeetUnfit));
        }
        if spent.hints < self.hints {
            let nameable = (0..PEERS as u8).filter(|n| spent.may_know(*n));
            actions.extend(nameable.map(Action::Name));
        }
        if spent.deaths < self.deaths {
            actions.extend(living.map(Action::Die));
        }
        let asked = 0..world.asked.len() as u8;
        if spent.lost_pings < self.lost_pings {
            actions.extend(asked.clone().map(Action::LosePing));
        }
        if spent.lost_reports < self.lost_reports {
            actions.extend(asked.map(Action::LoseReport));
        }
        if spent.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        if spent.crashes < self.crashes {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        let spent = &mut world.spent;
        match action {
            Action::Meet(n) => {
                spent.meetings += 1;
                spent.known |= 1 << n;
                world.proven[usize::from(n)] = true;
                world.send(met(peer(n)));
            }
            Action::MeetUnfit(n) => {
                spent.unfit += 1;
                world.send(met(unfit(n)));
            }
            Action::Name(n) => {
                spent.hints += 1;
                spent.known |= 1 << n;
                let trusted = self.flaw == Some(Flaw::TrustsHints);
                let hint = Update::Heard { contact: peer(n) };
                world.send(if trusted { met(peer(n)) } else { hint });
            }
            Action::Deliver(at) => {
                let update = world.inbox.remove(usize::from(at));
                self.deliver(&mut world, update);
            }
            Action::Finish(at) => {
                let contact = world.asked.remove(usize::from(at));
                let n = number(&contact.id)?;
                world.proven[n] |= world.alive[n];
                let id = contact.id;
                let known = world.bucket.entries().iter().any(|e| *e.id() == id);
                world.send(match (world.alive[n], known) {
                    (false, _) => Update::Failed { id },
                    (true, true) => Update::Seen { id, rtt_ms: None },
                    (true, false) => met(contact),
                });
            }
            Action::LosePing(at) => {
                spent.lost_pings += 1;
                let contact = world.asked.remove(usize::from(at));
                world.send(Update::Failed { id: contact.id });
            }
            Action::LoseReport(at) => {
                spent.lost_reports += 1;
                world.asked.remove(usize::from(at));
            }
            Action::Die(n) => {
                spent.deaths += 1;
                world.alive[usize::from(n)] = false;
            }
            Action::Tick => {
                let ticks = if spent.ending {
                    &mut spent.last_ticks
                } else {
                    &mut spent.ticks
                };
                *ticks += 1;
                world.now_s += TICK_S;
                if self.flaw != Some(Flaw::LosesTicks) {
                    self.deliver(&mut world, Update::Tick);
                }
            }
            Action::Crash => {
                spent.crashes += 1;
                self.restart(&mut world);
            }
            Action::End => spent.ending = true,
            Action::Ended => spent.ended = true,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TWICE, |_, world: &World| {
                let entries = world.bucket.entries();
                let same = |a: &Contact, b: &Contact| a.id == b.id || a.addr == b.addr;
                let twice = |(n, e): (usize, &Entry)| {
                    entries[n + 1..]
                        .iter()
                        .any(|other| same(&other.contact, &e.contact))
                };
                !entries.iter().enumerate().any(twice)
            }),
            Property::always(FIT, |_, world: &World| {
                let fit = |e: &Entry| e.contact.id != ME && e.contact.addr.is_usable();
                world.bucket.entries().iter().all(fit)
            }),
            Property::always(SIZE, |_, world: &World| {
                world.bucket.entries().len() <= HOME.rules.k
                    && world.bucket.waiting().len() <= HOME.rules.replacements
            }),
            Property::always(DIVERSE, |_, world: &World| {
                let entries = world.bucket.entries();
                let alike = |e: &Entry| diversity::count(entries, &e.contact.addr.subnet());
                entries.iter().all(|e| alike(e) <= 1)
            }),
            Property::always(PROVEN, |_, world: &World| {
                let known = |e: &Entry| number(e.id()).is_none_or(|n| world.proven[n]);
                world.bucket.entries().iter().all(known)
            }),
            Property::always(KEPT, |_, world: &World| !world.pushed_out),
            Property::eventually(REPLACED, |_, world: &World| {
                world.spent.ended && !world.owes_a_place()
            }),
            Property::sometimes(USED, |model: &Self, world: &World| {
                world.spent.crashes >= model.crashes && world.replaced
            }),
        ]
    }
}

impl BucketWorld {
    fn deliver(&self, world: &mut World, update: Update) {
        match (self.flaw, update) {
            (Some(Flaw::InsertsUnchecked), Update::Verified { contact, .. }) => {
                let newcomer = Entry::proven(contact, None, world.now_s);
                let entries = world.bucket.entries().iter().copied().chain([newcomer]);
                world.bucket = Bucket::with(INDEX, entries.collect());
            }
            (Some(Flaw::PushesOut), Update::Verified { contact, .. }) => {
                let entries = world.bucket.entries();
                let known = entries.iter().any(|e| *e.id() == contact.id);
                if !known && entries.len() == HOME.rules.k {
                    let oldest = *entries[0].id();
                    let kept = entries.iter().skip(1).copied().collect();
                    world.pushed_out |= world.answers(&oldest);
                    world.bucket = Bucket::with(INDEX, kept);
                }
                world.tell(update);
            }
            (Some(Flaw::CountsTwice), Update::Failed { .. }) => {
                world.tell(update);
                world.step(update);
            }
            _ => world.tell(update),
        }
        world.file = world.bucket.entries().iter().map(saved_peer).collect();
    }

    fn restart(&self, world: &mut World) {
        world.inbox.clear();
        world.asked.clear();
        let file = saved::encode(&NETWORK, &world.file);
        let peers = saved::decode(&file, &NETWORK).unwrap_or_default();
        if self.flaw == Some(Flaw::RestoresOver) {
            let again = peers.iter().map(|p| Entry::saved(p.contact, p.dead, 2));
            let both = world.bucket.entries().iter().copied().chain(again);
            world.bucket = Bucket::with(INDEX, both.collect());
            return;
        }
        world.bucket = Bucket::new(INDEX);
        world.now_s = 0;
        for peer in peers {
            world.bucket.handle(peer.update(), 0, &HOME, |_| 0);
        }
    }
}

impl Spent {
    /// Peers 2 and 3 are alike, and so are 0 and 1: of a pair, one is always heard of first.
    fn may_know(&self, n: u8) -> bool {
        n.is_multiple_of(2) || self.known & (1 << (n - 1)) != 0
    }
}

impl World {
    /// What is on its way twice arrives as once: the same answer, told by two tasks.
    fn send(&mut self, update: Update) {
        if let Err(at) = self.inbox.binary_search(&update) {
            self.inbox.insert(at, update);
        }
    }

    /// Steps the bucket and keeps account of it.
    fn tell(&mut self, update: Update) {
        match update {
            Update::Failed { id } => {
                if let Some(n) = number(&id) {
                    self.failures[n] = self.failures[n].saturating_add(1).min(2);
                }
            }
            Update::Verified {
                contact: Contact { id, .. },
                ..
            }
            | Update::Seen { id, .. } => {
                if let Some(n) = number(&id) {
                    self.failures[n] = 0;
                }
            }
            _ => {}
        }
        self.step(update);
    }

    fn step(&mut self, update: Update) {
        let before = self.bucket.entries().clone();
        let actions = self.bucket.handle(update, self.now_s, &HOME, |_| 0);
        let now = self.bucket.entries();
        let gone = |e: &&Entry| !now.iter().any(|other| other.id() == e.id());
        self.pushed_out |= before.iter().filter(gone).any(|e| self.answers(e.id()));
        for action in actions {
            if let BucketAction::Ping(contact) | BucketAction::Verify(contact) = action
                && let Err(at) = self.asked.binary_search(&contact)
            {
                self.asked.insert(at, contact);
            }
            self.replaced |= matches!(action, BucketAction::Removed(..));
        }
    }

    /// By the reports so far.
    fn answers(&self, id: &Id) -> bool {
        number(id).is_some_and(|n| self.failures[n] < HOME.rules.dead_after)
    }

    /// Somebody who lives waits for what somebody dead holds, and its network has room.
    fn owes_a_place(&self) -> bool {
        let lives = |id: &Id| number(id).is_some_and(|n| self.alive[n]);
        let entries = self.bucket.entries();
        let mut waiting = self
            .bucket
            .waiting()
            .filter(|(c, proven)| *proven && lives(&c.id));
        waiting.any(|(contact, _)| {
            let subnet = contact.addr.subnet();
            entries.iter().any(|dead| {
                let others = entries.iter().filter(|e| e.id() != dead.id());
                !lives(dead.id())
                    && !others
                        .into_iter()
                        .any(|e| e.contact.addr.subnet() == subnet)
            })
        })
    }
}

/// Peers 0 and 1 are neighbours.
fn peer(n: u8) -> Contact {
    let mut id = [0; 32];
    (id[0], id[31]) = (0x80, n + 1);
    contact(Id(id), [10, 0, n.max(1), n])
}

fn unfit(n: u8) -> Contact {
    match n {
        0 => contact(ME, [10, 0, 9, 9]),
        _ => contact(Id([0x80; 32]), [0, 0, 0, 0]),
    }
}

fn contact(id: Id, ip: [u8; 4]) -> Contact {
    let addr = SocketAddr::from((ip, 4000)).into();
    Contact { id, addr }
}

/// Which of the peers; none for what is unfit.
fn number(id: &Id) -> Option<usize> {
    (0..PEERS).find(|n| peer(*n as u8).id == *id)
}

fn met(contact: Contact) -> Update {
    Update::Verified {
        contact,
        rtt_ms: None,
    }
}

fn saved_peer(entry: &Entry) -> SavedPeer {
    SavedPeer {
        contact: entry.contact,
        dead: entry.is_dead(),
    }
}
