//! The world of one key as a simulated run is followed in it: what a start may find, and how it is told.
//!
//! A service that dies cannot say how far a change came: what a start finds must be one of the stores that may
//! lie there, and what comes of it is decided by the shipped reconciliation.

use super::{KeyWorld, Store, Told, World, event};
use crate::{history::KeyHistory, keys::Key, ring::spec::Shape};

/// What may lie on the disk besides what the world knows.
#[derive(Clone, Debug, Default)]
pub struct Unsure {
    /// Stores that were there before, the oldest first: any may come back from a backup.
    past: Vec<Store>,
    /// Changes that may be in the log though nobody heard so.
    records: Vec<(Vec<u32>, Told)>,
}

/// More stores are not remembered: a backup is of a short while ago.
const PAST: usize = 256;
/// A record of an earlier failure was cut off before the next was tried.
const RECORDS: usize = 4;

impl KeyWorld {
    /// For a run: without a limit on what may happen.
    pub fn following() -> KeyWorld {
        KeyWorld {
            rotations: 0,
            switches: 0,
            crashes: 0,
            restores: 0,
            failures: 0,
            flaw: None,
        }
    }

    /// The process ended, and the next one found a store of this shape and made this of it. Says whether the
    /// store had to follow the log.
    pub fn start_as(
        &self,
        world: &mut World,
        unsure: &mut Unsure,
        stored: &str,
        now: &str,
    ) -> Result<bool, String> {
        let change = world.change.take();
        if let Some(change) = &change {
            unsure.past.push(change.next.clone());
            if !change.recorded {
                let versions = std::iter::once(change.version).chain(change.more.clone());
                unsure.records.push((versions.collect(), change.told));
            }
        }
        let known = std::iter::once(&world.store).chain(unsure.past.iter().rev());
        let stores: Vec<Store> = known
            .filter(|store| shape(&store.key) == stored)
            .cloned()
            .collect();
        if stores.is_empty() {
            let store = shape(&world.store.key);
            return Err(format!(
                "a store of {stored} was found; {store} was stored last, and this never was"
            ));
        }
        // In the order of fewest surprises: nothing in the log that nobody heard of.
        let mut told = vec![0; unsure.records.len()];
        loop {
            let log = told_with(world, unsure, &told);
            for store in &stores {
                let followed = log.reconcile(&store.key, 0).map(|(key, _)| key);
                let key = followed.as_ref().unwrap_or(&store.key);
                if shape(key) != now {
                    continue;
                }
                unsure.remember(store.clone());
                unsure.records.clear();
                world.log = log;
                world.store = store.clone();
                self.start(world);
                return Ok(followed.is_some());
            }
            if !unsure.next(&mut told) {
                return Err(format!("a store of {stored} became {now}, by no record"));
            }
        }
    }
}

/// The log with as many of the records of each change that may be in it: there is one for each version, one after the
/// other, and a process may die in between.
fn told_with(world: &World, unsure: &Unsure, told: &[usize]) -> KeyHistory {
    let mut log = world.log.clone();
    for ((versions, change), told) in unsure.records.iter().zip(told) {
        for version in &versions[..*told] {
            log.record(0, &event(&world.store.key, *version, *change));
        }
    }
    log
}

impl Unsure {
    /// The next way in which they may have been told, as an odometer goes; false after the last.
    fn next(&self, told: &mut [usize]) -> bool {
        for ((versions, _), told) in self.records.iter().zip(told) {
            if *told < versions.len() {
                *told += 1;
                return true;
            }
            *told = 0;
        }
        false
    }

    /// The change under way was not recorded, as far as anybody knows.
    pub fn gave_up(&mut self, world: &mut World) {
        if let Some(change) = world.change.take() {
            let versions = std::iter::once(change.version).chain(change.more);
            self.records.push((versions.collect(), change.told));
            if self.records.len() > RECORDS {
                self.records.remove(0);
            }
        }
    }

    /// A change is about to be stored, or may be stored though that failed.
    pub fn storing(&mut self, world: &World) {
        self.remember(world.store.clone());
        if let Some(change) = &world.change {
            self.remember(change.next.clone());
        }
    }

    fn remember(&mut self, store: Store) {
        if self.past.last() != Some(&store) {
            self.past.push(store);
        }
        if self.past.len() > PAST {
            self.past.remove(0);
        }
    }
}

impl World {
    pub fn begin_change(&mut self, versions: &[u32], told: Told) -> Option<()> {
        self.begin(versions, told)
    }

    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    pub fn is_recorded(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.recorded)
    }

    pub fn is_stored(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.stored)
    }

    /// The number that the change under way gives or changes.
    pub fn changes(&self) -> Option<u32> {
        self.change.as_ref().map(|change| change.version)
    }

    pub fn may_sign(&self, version: u32) -> bool {
        self.seen.key.may_sign(version, 0).is_ok()
    }

    pub fn use_version(&mut self, version: u32) {
        self.sign(version);
    }

    /// A law of the model that this world breaks.
    pub fn broken(&self) -> Option<&'static str> {
        [
            (self.seen.key.head() >= self.told_head, super::HEADS),
            (!self.twice, super::ONCE),
            (!self.signed_disabled, super::DISABLED),
            (!self.used_unstored, super::KEPT),
        ]
        .iter()
        .find(|(holds, _)| !holds)
        .map(|(_, law)| *law)
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seen, store) = (shape(&self.seen.key), shape(&self.store.key));
        write!(f, "seen {seen}, stored {store}")?;
        if let Some(change) = &self.change {
            let (told, version) = (change.told, change.version);
            write!(f, ", {told:?} of version {version} under way")?;
            if change.recorded {
                f.write_str(", recorded")?;
            }
            if change.stored {
                f.write_str(", stored")?;
            }
        }
        Ok(())
    }
}

fn shape(key: &Key) -> String {
    Shape(key).to_string()
}
