//! The keys of ron-kms, followed: each change from its record to its use, each signature, each start.
//!
//! Every key is a world of its own, which outlives the process as its store and its records do. The model is told
//! what the service did; what may be signed, which number a rotation gives and what a start makes of a store
//! that is behind its log must come out the same.

use ron_kms::models::keys::{Action, KeyWorld, Told, World, follow::Unsure};
use stateright::Model;

use crate::conformance::{Conformance, Meaning, Reading, SpecEvent};
use crate::oracle::{EVERYWHERE, OracleKind};

pub const KIND: OracleKind = OracleKind {
    name: Follow::ORACLE,
    law: "a change of a key is recorded, stored and seen, and versions sign, as its model does, across crashes and restored backups",
    premise: EVERYWHERE,
    make: || Box::new(Conformance::<Follow>::new()),
};

pub struct Follow {
    model: KeyWorld,
    unsure: Unsure,
    /// The versions that the change just begun is about.
    versions: Vec<u32>,
}

impl Reading for Follow {
    type Model = KeyWorld;
    const MODEL: &'static str = "kms.keys";
    const ORACLE: &'static str = "model.kms.keys";
    const STEPS: &'static [&'static str] = &[
        "rotate",
        "disable",
        "enable",
        "destroy",
        "min_version",
        "record",
        "given_up",
        "store",
        "store_fails",
        "publish",
        "sign",
        "start",
        "start_followed",
    ];
    const SURVIVES: bool = true;

    /// The kid: short, random, and its beginning tells it from others.
    fn part(event: &SpecEvent<'_>) -> u64 {
        let kid = event.detail.split(' ').next().unwrap_or_default();
        kid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn begin(event: &SpecEvent<'_>) -> Option<(Self, World)> {
        let fresh = match event.name {
            "created" => true,
            // Stored, but the process died before it was seen.
            "opened" => event.detail.ends_with(" E/1 E/1"),
            _ => false,
        };
        let model = KeyWorld::following();
        let world = model.init_states().pop().filter(|_| fresh)?;
        let follow = Follow {
            model,
            unsure: Unsure::default(),
            versions: Vec::new(),
        };
        Some((follow, world))
    }

    fn model(&self) -> &KeyWorld {
        &self.model
    }

    fn read(&mut self, _: &mut World, event: &SpecEvent<'_>) -> Result<Meaning<Action>, String> {
        Ok(Meaning::Step(match event.name {
            "begin" => {
                let mut words = event.detail.split(' ').skip(1);
                let told = word(words.next().unwrap_or_default())?;
                let versions = words.map(|n| n.parse().map_err(|_| format!("{n:?} is no version")));
                self.versions = versions.collect::<Result<_, String>>()?;
                Action::Change(told)
            }
            "recorded" => Action::Record,
            "given_up" => Action::GiveUp,
            "stored" => Action::Store,
            "store_failed" => Action::StoreFails,
            "published" => Action::Publish,
            "sign" => Action::Sign(event.id as u32),
            "opened" => Action::Crash,
            other => return Err(format!("no event {other:?} of this model")),
        }))
    }

    fn kind(action: &Action, event: &SpecEvent<'_>) -> &'static str {
        match action {
            Action::Rotate | Action::Change(Told::Rotated | Told::Created) => "rotate",
            Action::Disable(_) | Action::Change(Told::Disabled) => "disable",
            Action::Enable(_) | Action::Change(Told::Enabled) => "enable",
            Action::Change(Told::MinVersion) => "min_version",
            Action::Change(_) => "destroy",
            Action::Record => "record",
            Action::GiveUp => "given_up",
            Action::Store => "store",
            Action::StoreFails => "store_fails",
            Action::Publish => "publish",
            Action::Sign(_) => "sign",
            Action::Crash => {
                let mut words = event.detail.split(' ').skip(1);
                match words.next() == words.next() {
                    true => "start",
                    false => "start_followed",
                }
            }
            Action::Backup | Action::Restore | Action::Close | Action::Closed => "start",
        }
    }

    fn allows(&self, world: &World, action: &Action) -> bool {
        match action {
            Action::Sign(version) => world.may_sign(*version),
            Action::Change(_) => !world.is_changing(),
            Action::Record | Action::GiveUp => world.is_changing() && !world.is_recorded(),
            Action::Store | Action::StoreFails => world.is_recorded() && !world.is_stored(),
            Action::Publish => world.is_stored(),
            _ => true,
        }
    }

    /// In place, since most steps are signatures.
    fn take(
        &mut self,
        world: &mut World,
        action: &Action,
        event: &SpecEvent<'_>,
    ) -> Result<(), String> {
        match action {
            Action::Sign(version) => world.use_version(*version),
            Action::Change(told) => self.change(world, *told, event.id)?,
            Action::GiveUp => self.unsure.gave_up(world),
            Action::Crash => {
                let mut words = event.words();
                let (_kid, stored, now): (String, String, String) =
                    (words.word()?, words.word()?, words.word()?);
                let unsure = &mut self.unsure;
                self.model.start_as(world, unsure, &stored, &now)?;
            }
            action => {
                if matches!(action, Action::Store | Action::StoreFails) {
                    self.unsure.storing(world);
                }
                let next = self.model.next_state(world, *action);
                *world = next.ok_or_else(|| format!("{action:?} leads nowhere"))?;
            }
        }
        match world.broken() {
            Some(law) => Err(format!("the model's own law is broken: {law}")),
            None => Ok(()),
        }
    }

    fn describe(world: &World) -> String {
        world.to_string()
    }
}

impl Follow {
    fn change(&self, world: &mut World, told: Told, number: u64) -> Result<(), String> {
        let begun = world.begin_change(&self.versions, told);
        let versions = &self.versions;
        begun.ok_or_else(|| format!("{told:?} of {versions:?} is not allowed by the key"))?;
        let version = u64::from(world.changes().unwrap_or(0));
        match version == number {
            true => Ok(()),
            false => Err(format!("version {number}, in the model {version}")),
        }
    }
}

fn word(word: &str) -> Result<Told, String> {
    Ok(match word {
        "rotated" => Told::Rotated,
        "disabled" => Told::Disabled,
        "enabled" => Told::Enabled,
        "destroy_scheduled" => Told::DestroyScheduled,
        "destroy_cancelled" => Told::DestroyCancelled,
        "destroyed" => Told::Destroyed,
        "min_version" => Told::MinVersion,
        other => return Err(format!("no change {other:?} of this model")),
    })
}
