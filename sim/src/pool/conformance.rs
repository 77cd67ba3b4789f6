//! A work queue in use, followed: what is offered, taken and thrown out, against the checked model.
//!
//! All producers are one to the model and so are all consumers: what is compared is what the queue accepts,
//! refuses and hands out, in which order, and what is left. Items are told apart by their number.

use std::collections::BTreeMap;

use ron_core::{
    RejectNew,
    models::queue::{Action, WorkQueue, World},
};
use stateright::Model;

use crate::conformance::{Conformance, Followed, Meaning, Reading, SpecEvent, offers};
use crate::oracle::{EVERYWHERE, OracleKind};

pub const KIND: OracleKind = OracleKind {
    name: Follow::ORACLE,
    law: "the queue accepts, refuses and hands out what the queue model does",
    premise: EVERYWHERE,
    make: || Box::new(Conformance::<Follow>::new()),
};

pub const FOLLOWED: &[Followed] = &[Followed::by::<Follow>()];

pub struct Follow {
    model: WorkQueue<RejectNew>,
    /// The item behind each of the model's, for those that wait.
    items: BTreeMap<u32, u64>,
    offered: u32,
}

const PUSH: Action = Action::Push(0);
const POP: Action = Action::Pop(0);

impl Reading for Follow {
    type Model = WorkQueue<RejectNew>;
    const MODEL: &'static str = "queue";
    const ORACLE: &'static str = "model.queue";
    const STEPS: &'static [&'static str] = &["push", "refuse", "pop", "close", "clear"];

    /// The number of the first event is the cap.
    fn begin(event: &SpecEvent<'_>) -> Option<(Self, World)> {
        let cap = (event.name == "began").then_some(event.id as usize)?;
        let model = WorkQueue {
            policy: RejectNew,
            cap,
            producers: 1,
            items: u32::MAX,
            consumers: 1,
            cancels: 0,
            flaw: None,
        };
        let world = model.init_states().pop()?;
        let follow = Follow {
            model,
            items: BTreeMap::new(),
            offered: 0,
        };
        Some((follow, world))
    }

    fn model(&self) -> &Self::Model {
        &self.model
    }

    fn read(
        &mut self,
        world: &mut World,
        event: &SpecEvent<'_>,
    ) -> Result<Meaning<Action>, String> {
        Ok(Meaning::Step(match event.name {
            "push" => PUSH,
            "pop" if world.waiting().next().is_none() => {
                return Err("an item was taken from an empty queue".to_owned());
            }
            "pop" => POP,
            "close" if world.is_closed() => return Ok(Meaning::Agrees),
            "close" => Action::Close,
            "clear" => {
                let waiting = world.waiting().count() as u64;
                if waiting != event.id {
                    return Err(format!("{} thrown out, {waiting} waited", event.id));
                }
                match waiting {
                    0 => return Ok(Meaning::Agrees),
                    _ => Action::Clear,
                }
            }
            other => return Err(format!("no event {other:?} of this model")),
        }))
    }

    fn kind(action: &Action, event: &SpecEvent<'_>) -> &'static str {
        match action {
            Action::Push(_) | Action::GiveUp(_) if event.detail == "false" => "refuse",
            Action::Push(_) | Action::GiveUp(_) => "push",
            Action::Pop(_) | Action::Cancel(_) => "pop",
            Action::Close => "close",
            Action::Clear => "clear",
        }
    }

    fn allows(&self, world: &World, action: &Action) -> bool {
        offers(&self.model, world, action)
    }

    fn stepped(
        &mut self,
        _: &World,
        after: &mut World,
        event: &SpecEvent<'_>,
    ) -> Result<(), String> {
        match event.name {
            "push" => {
                let accepted: bool = event.words().word()?;
                // A push that may not wait gives up where one that may would begin to.
                if after.producer_waits(0) {
                    let gives_up = self.model.next_state(after, Action::GiveUp(0));
                    *after = gives_up.ok_or("the model cannot give up")?;
                }
                let in_model = after.last_refused().is_none();
                if accepted != in_model {
                    let word = |accepted| if accepted { "accepts" } else { "refuses" };
                    return Err(format!(
                        "the queue {} what the model {}",
                        word(accepted),
                        word(in_model)
                    ));
                }
                if accepted {
                    self.items.insert(self.offered, event.id);
                }
                self.offered += 1;
            }
            "pop" => {
                let taken = after.last_taken().and_then(|(_, n)| self.items.remove(&n));
                if taken != Some(event.id) {
                    return Err(format!("the model hands out {taken:?}"));
                }
            }
            "clear" => self.items.clear(),
            _ => {}
        }
        after.forget_settled();
        Ok(())
    }
}
