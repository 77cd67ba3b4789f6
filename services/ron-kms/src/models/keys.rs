//! One key in a small world: rotated, disabled, enabled and used, with crashes and restored backups.
//!
//! A change is recorded, then stored, then published, each a step of its own, and a crash or a backup may
//! come between any two. It steps the shipped [`Key`] and, at each start, the shipped
//! [`KeyHistory::reconcile`]. Which secret stands under which number is the world's own account.
//!
//! What the log tells is kept as the shipped [`KeyHistory`], a fold over its records, so that a world which
//! follows a simulated run ([`follow`]) grows with a key's versions and not with its log.

pub mod follow;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use crate::{
    audit::record::{Event, KeyChange},
    history::KeyHistory,
    keys::{Algorithm, Key, Kid, key::Policy},
};

/// What to try.
#[derive(Clone, Debug)]
pub struct KeyWorld {
    pub rotations: u8,
    pub switches: u8,
    pub crashes: u8,
    pub restores: u8,
    /// Writes of the store that fail.
    pub failures: u8,
    /// `None` is the shipped order.
    pub flaw: Option<Flaw>,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A change is stored and seen before its record is durable.
    RecordsLast,
    /// A new version is used before its secret is stored.
    PublishesUnstored,
    /// A start believes the store and does not ask the log.
    TrustsStore,
    /// A drain waits for what only a start can mend.
    WaitsForTorn,
}

/// The properties, by name.
pub const HEADS: &str = "the head of a key never falls below one that was told";
pub const ONCE: &str = "a version number never stands for two secrets";
pub const DISABLED: &str = "a version that was disabled signs nothing until it is enabled";
pub const KEPT: &str = "what is used is stored";
pub const DRAINS: &str = "a drain ends, whatever failed before";
pub const ROTATES: &str = "a rotation can be finished after a crash and a restored backup";

/// Stands for the bytes of a secret.
type SecretId = u32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Durable: what the log tells.
    log: KeyHistory,
    store: Store,
    backup: Option<Store>,
    /// In memory: what signers read, and the change under way.
    seen: Store,
    change: Option<Change>,
    /// A change could not be stored: only a start mends it.
    torn: bool,
    /// The world's own account.
    told_head: u32,
    secrets: BTreeMap<u32, SecretId>,
    made: SecretId,
    twice: bool,
    /// Disabled, answered, and nobody asked to enable it since.
    disabled: BTreeSet<u32>,
    signed_disabled: bool,
    used_unstored: bool,
    spent: Spent,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    key: Key,
    secrets: BTreeMap<u32, SecretId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Created,
    Rotated,
    Disabled,
    Enabled,
    DestroyScheduled,
    DestroyCancelled,
    Destroyed,
    MinVersion,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Change {
    version: u32,
    told: Told,
    /// Further versions that change in the same way, with it.
    more: Vec<u32>,
    next: Store,
    recorded: bool,
    stored: bool,
    tries: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    rotations: u8,
    switches: u8,
    crashes: u8,
    restores: u8,
    failures: u8,
    closing: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Rotate,
    /// Of version 1 or 2.
    Disable(u32),
    Enable(u32),
    /// Of whatever kind, of versions that only a run names.
    Change(Told),
    Record,
    /// There is no record: nothing changes.
    GiveUp,
    Store,
    StoreFails,
    Publish,
    Sign(u32),
    Backup,
    Crash,
    /// Stopped, the store replaced by its backup, started.
    Restore,
    Close,
    Closed,
}

/// As the ring has it.
const STORE_TRIES: u8 = 3;

impl Model for KeyWorld {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(7));
        let policy = Policy {
            min_version: 1,
            rotate_after_ms: None,
        };
        let made = Key::create(kid, "t".into(), "p".into(), Algorithm::Ed25519, policy, 0);
        let Ok(key) = made else {
            return Vec::new();
        };
        let secrets = BTreeMap::from([(1, 1)]);
        let mut log = KeyHistory::default();
        log.record(0, &event(&key, 1, Told::Created));
        let store = Store {
            key,
            secrets: secrets.clone(),
        };
        vec![World {
            log,
            seen: store.clone(),
            store,
            backup: None,
            change: None,
            torn: false,
            told_head: 1,
            secrets,
            made: 1,
            twice: false,
            disabled: BTreeSet::new(),
            signed_disabled: false,
            used_unstored: false,
            spent: Spent::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let spent = world.spent;
        if spent.closed {
            return;
        }
        let stuck = world.torn && self.flaw == Some(Flaw::WaitsForTorn);
        match &world.change {
            None if spent.closing && !stuck => actions.push(Action::Closed),
            None if !world.torn && !spent.closing => {
                if spent.rotations < self.rotations {
                    actions.push(Action::Rotate);
                }
                if spent.switches < self.switches {
                    for version in 1..=world.seen.key.head().min(2) {
                        actions.extend([Action::Disable(version), Action::Enable(version)]);
                    }
                }
            }
            None => {}
            Some(change) => self.steps(world, change, actions),
        }
        if !spent.closing {
            actions.push(Action::Close);
            actions.extend((1..=world.seen.key.head()).map(Action::Sign));
            if world.backup.is_none() && spent.restores < self.restores {
                actions.push(Action::Backup);
            }
        }
        if spent.crashes < self.crashes {
            actions.push(Action::Crash);
        }
        if world.backup.is_some() && spent.restores < self.restores {
            actions.push(Action::Restore);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Rotate => world.begin(&[0], Told::Rotated)?,
            Action::Disable(version) => world.begin(&[version], Told::Disabled)?,
            Action::Enable(version) => world.begin(&[version], Told::Enabled)?,
            Action::Change(_) => return None,
            Action::Record => world.record()?,
            Action::GiveUp => {
                world.spent.failures = self.failures;
                world.change = None;
            }
            Action::Store => {
                let change = world.change.as_mut()?;
                change.stored = true;
                world.store = change.next.clone();
            }
            Action::StoreFails => {
                world.spent.failures = world.spent.failures.saturating_add(1);
                let change = world.change.as_mut()?;
                change.tries += 1;
                if change.tries >= STORE_TRIES {
                    // A state that the log told is obeyed; a secret that is not stored is not used.
                    world.torn = true;
                    let change = world.change.take()?;
                    if change.told != Told::Rotated {
                        world.seen = change.next;
                    }
                }
            }
            Action::Publish => {
                let change = world.change.take()?;
                world.finish(change);
            }
            Action::Sign(version) => world.sign(version),
            Action::Backup => world.backup = Some(world.store.clone()),
            Action::Crash => {
                world.spent.crashes += 1;
                self.start(&mut world);
            }
            Action::Restore => {
                world.spent.restores += 1;
                world.store = world.backup.take()?;
                self.start(&mut world);
            }
            Action::Close => world.spent.closing = true,
            Action::Closed => world.spent.closed = true,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HEADS, |_, world: &World| {
                world.seen.key.head() >= world.told_head && world.seen.key.is_sound()
            }),
            Property::always(ONCE, |_, world: &World| !world.twice),
            Property::always(DISABLED, |_, world: &World| !world.signed_disabled),
            Property::always(KEPT, |_, world: &World| !world.used_unstored),
            Property::eventually(DRAINS, |_, world: &World| world.spent.closed),
            Property::sometimes(ROTATES, |model: &Self, world: &World| {
                let spent = world.spent;
                let after = spent.crashes >= model.crashes && spent.restores >= model.restores;
                after && world.told_head == world.seen.key.head() && world.told_head > 2
            }),
        ]
    }
}

impl KeyWorld {
    /// What the change under way may do next.
    fn steps(&self, world: &World, change: &Change, actions: &mut Vec<Action>) {
        let late = self.flaw == Some(Flaw::RecordsLast);
        let early = self.flaw == Some(Flaw::PublishesUnstored);
        if !change.recorded && !late {
            // Once, and instead of failing stores: what follows is as if it had never been asked for.
            if world.spent.failures == 0 && self.failures > 0 {
                actions.push(Action::GiveUp);
            }
            return actions.push(Action::Record);
        }
        if !change.stored {
            actions.push(Action::Store);
            if world.spent.failures < self.failures {
                actions.push(Action::StoreFails);
            }
        }
        if change.stored || early {
            actions.push(Action::Publish);
        }
    }

    /// The start: the store follows the log.
    fn start(&self, world: &mut World) {
        if self.flaw != Some(Flaw::TrustsStore)
            && let Some((key, _)) = world.log.reconcile(&world.store.key, 0)
        {
            world.store.key = key;
        }
        world.seen = world.store.clone();
        world.change = None;
        world.torn = false;
        world.spent.closing = false;
    }
}

impl World {
    /// One change of these versions; a rotation gives its own number.
    fn begin(&mut self, versions: &[u32], told: Told) -> Option<()> {
        let (first, more) = versions.split_first()?;
        let mut next = self.seen.clone();
        let mut version = *first;
        match told {
            Told::Rotated => {
                self.spent.rotations = self.spent.rotations.saturating_add(1);
                version = next.key.rotate(0).ok()?;
                self.made += 1;
                next.secrets.insert(version, self.made);
            }
            Told::Disabled => next.key.disable(version, 0).ok()?,
            Told::Enabled | Told::Created => {
                next.key.enable(version, 0).ok()?;
                // From here on it may sign again.
                self.disabled.remove(&version);
            }
            _ => {
                let mut log = KeyHistory::default();
                for version in versions {
                    log.record(0, &event(&next.key, *version, told));
                }
                let changed = log.of(&next.key)?.clone();
                next.key.follow(&changed, 0);
            }
        }
        if told != Told::Rotated {
            self.spent.switches = self.spent.switches.saturating_add(1);
        }
        self.change = Some(Change {
            version,
            told,
            more: more.to_vec(),
            next,
            recorded: false,
            stored: false,
            tries: 0,
        });
        Some(())
    }

    fn record(&mut self) -> Option<()> {
        let change = self.change.as_mut()?;
        change.recorded = true;
        for version in std::iter::once(&change.version).chain(&change.more) {
            let event = event(&self.store.key, *version, change.told);
            self.log.record(0, &event);
        }
        Some(())
    }

    /// Seen by signers, and answered.
    fn finish(&mut self, change: Change) {
        if !change.recorded {
            let event = event(&self.store.key, change.version, change.told);
            self.log.record(0, &event);
        }
        match change.told {
            Told::Rotated => self.told_head = self.told_head.max(change.version),
            Told::Disabled => {
                self.disabled.insert(change.version);
            }
            _ => {}
        }
        self.seen = change.next;
    }

    fn sign(&mut self, version: u32) {
        if self.seen.key.may_sign(version, 0).is_err() {
            return;
        }
        let secret = self.seen.secrets.get(&version).copied();
        self.used_unstored |=
            secret.is_none() || self.store.secrets.get(&version).copied() != secret;
        if let Some(secret) = secret {
            self.twice |= *self.secrets.entry(version).or_insert(secret) != secret;
        }
        self.signed_disabled |= self.disabled.contains(&version);
    }
}

fn event(key: &Key, version: u32, told: Told) -> Event {
    let change = match told {
        Told::Created => KeyChange::Created {
            alg: key.algorithm().name().to_owned(),
        },
        Told::Rotated => KeyChange::Rotated {
            from: version.saturating_sub(1),
        },
        Told::Disabled => KeyChange::Disabled,
        Told::Enabled => KeyChange::Enabled,
        Told::DestroyScheduled => KeyChange::DestroyScheduled { at_ms: u64::MAX },
        Told::DestroyCancelled => KeyChange::DestroyCancelled,
        Told::Destroyed => KeyChange::Destroyed,
        Told::MinVersion => KeyChange::MinVersion { version },
    };
    Event::Key {
        seq: 0,
        tenant: key.tenant().to_owned(),
        kid: key.kid().as_str().to_owned(),
        version,
        actor: String::new(),
        change,
    }
}
