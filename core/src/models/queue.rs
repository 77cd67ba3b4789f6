//! The work queue with its producers and consumers, in every order: offer, wait, give up, take, cancel, close.
//!
//! It steps the shipped [`Line`], the wake-ups included: an actor that sleeps moves only once the line
//! says so. Always finite: each producer has `items` to offer, each consumer `cancels` pops to drop.

use std::{hash::Hash, task::Poll};

use stateright::{Model, Property};

use crate::{
    queue::{
        line::Line,
        policy::{Offer, Policy},
        ring::{Refused, Ring},
    },
    sync::waiters::Slot,
};

/// Which item: its producer, and how many that one offered before.
pub type Id = (usize, u32);

/// What to try.
#[derive(Clone, Debug)]
pub struct WorkQueue<P> {
    pub policy: P,
    pub cap: usize,
    pub producers: usize,
    /// Offered by each producer.
    pub items: u32,
    pub consumers: usize,
    /// Pops that each consumer may drop while it waits.
    pub cancels: u8,
    /// `None` is the shipped code.
    pub flaw: Option<Flaw>,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Closing forgets what is queued.
    LosesOnClose,
    /// Taking an item leaves it in the queue.
    TakesWithoutRemoving,
    /// A consumer that goes away keeps the wake-up it was given.
    SwallowsWakeUp,
    /// The queue forgets its cap.
    IgnoresCap,
}

/// The properties, by name.
pub const NO_LOSS: &str = "no loss: offered = taken + refused + dropped + in the queue";
pub const NO_DUPLICATE: &str = "no duplication";
pub const WITHIN_CAP: &str = "depth <= cap";
pub const ORDER: &str = "items of one producer are taken in order";
pub const NO_SLEEPER: &str = "nobody sleeps while there is work";
pub const SERVED: &str = "every accepted item is served";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    line: Line<Id, Actor>,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    taken: Vec<Id>,
    refused: Vec<Id>,
    dropped: Vec<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    Producer(usize),
    Consumer(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Producer {
    /// How many were decided.
    done: u32,
    /// In the middle of a push.
    waits: bool,
    slot: Option<Slot>,
    awake: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Consumer {
    slot: Option<Slot>,
    awake: bool,
    cancels: u8,
    /// Saw the end.
    finished: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Push(usize),
    GiveUp(usize),
    Pop(usize),
    Cancel(usize),
    Close,
    /// Once closed, what is left is thrown out.
    Clear,
}

/// An accepted push, told to the model: which item had to leave for it.
pub trait Displaced {
    fn displaced(self) -> Option<Id>;
}

impl Displaced for () {
    fn displaced(self) -> Option<Id> {
        None
    }
}

impl Displaced for Option<Id> {
    fn displaced(self) -> Option<Id> {
        self
    }
}

impl<P> Model for WorkQueue<P>
where
    P: Policy<Id, Accepted: Displaced> + Clone,
{
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let cap = match self.flaw {
            Some(Flaw::IgnoresCap) => usize::MAX,
            _ => self.cap,
        };
        let producer = Producer {
            done: 0,
            waits: false,
            slot: None,
            awake: true,
        };
        let consumer = Consumer {
            slot: None,
            awake: true,
            cancels: self.cancels,
            finished: false,
        };
        vec![World {
            line: Line::new(cap),
            producers: vec![producer; self.producers],
            consumers: vec![consumer; self.consumers],
            taken: Vec::new(),
            refused: Vec::new(),
            dropped: Vec::new(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, producer) in world.producers.iter().enumerate() {
            if producer.done < self.items && producer.awake {
                actions.push(Action::Push(at));
            }
            if producer.waits {
                actions.push(Action::GiveUp(at));
            }
        }
        for (at, consumer) in world.consumers.iter().enumerate() {
            if !consumer.finished && consumer.awake {
                actions.push(Action::Pop(at));
            }
            if consumer.slot.is_some() && consumer.cancels > 0 {
                actions.push(Action::Cancel(at));
            }
        }
        if !world.line.ring.is_closed() {
            actions.push(Action::Close);
        } else if !world.line.ring.is_empty() {
            actions.push(Action::Clear);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Push(at) => self.push(&mut world, at),
            Action::GiveUp(at) => self.give_up(&mut world, at),
            Action::Pop(at) => self.pop(&mut world, at),
            Action::Cancel(at) => self.cancel(&mut world, at),
            Action::Clear => world.dropped.extend(world.line.ring.clear()),
            Action::Close => {
                world.line.ring.close();
                if self.flaw == Some(Flaw::LosesOnClose) {
                    world.line.ring.clear();
                }
            }
        }
        let swallowed =
            self.flaw == Some(Flaw::SwallowsWakeUp) && matches!(action, Action::Cancel(_));
        if !swallowed {
            world.wake_all_due();
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_LOSS, |_, world: &World| {
                let mut accounted = world.accounted();
                accounted.sort_unstable();
                accounted.dedup();
                world
                    .offered()
                    .all(|id| accounted.binary_search(&id).is_ok())
            }),
            Property::always(NO_DUPLICATE, |_, world: &World| {
                world.accounted().len() == world.offered().count()
            }),
            Property::always(WITHIN_CAP, |model: &Self, world: &World| {
                world.line.ring.len() <= model.cap
            }),
            Property::always(ORDER, |model: &Self, world: &World| {
                (0..model.producers).all(|producer| {
                    let of_one = world.taken.iter().filter(|id| id.0 == producer);
                    of_one.is_sorted_by(|a, b| a.1 < b.1)
                })
            }),
            Property::always(NO_SLEEPER, |_, world: &World| {
                !world.line.has_sleeper_with_work()
            }),
            Property::eventually(SERVED, |model: &Self, world: &World| {
                world.producers.iter().all(|p| p.done == model.items)
                    && world.consumers.iter().all(|c| c.finished)
                    && world.line.ring.is_empty()
                    && world.taken.len() as u64 + world.dropped.len() as u64
                        == world.line.ring.stats("").accepted
            }),
        ]
    }
}

impl<P> WorkQueue<P>
where
    P: Policy<Id, Accepted: Displaced> + Clone,
{
    /// A producer's first look, or another one after it was woken.
    fn push(&self, world: &mut World, at: usize) {
        let producer = &mut world.producers[at];
        let id = (at, producer.done);
        let offer = if producer.waits {
            let (offer, _) = world
                .line
                .poll_offer(&self.policy, &mut producer.slot, id, || Actor::Producer(at));
            producer.awake = false;
            offer
        } else {
            world.line.offer(&self.policy, id)
        };
        match offer {
            Offer::Done(result) => world.decided(at, result),
            Offer::Wait(_) => producer.waits = true,
        }
    }

    fn give_up(&self, world: &mut World, at: usize) {
        let producer = &mut world.producers[at];
        let id = (at, producer.done);
        let (result, _) = world.line.give_up(&self.policy, &mut producer.slot, id);
        world.decided(at, result);
    }

    fn pop(&self, world: &mut World, at: usize) {
        let consumer = &mut world.consumers[at];
        let take = |ring: &mut Ring<Id>| match self.flaw {
            Some(Flaw::TakesWithoutRemoving) => {
                let first = ring.items().next().copied()?;
                ring.take();
                let _ = ring.put(first);
                Some(first)
            }
            _ => ring.take(),
        };
        let (taken, _) = world
            .line
            .poll_take(&mut consumer.slot, take, || Actor::Consumer(at));
        match taken {
            Poll::Pending => consumer.awake = false,
            Poll::Ready(Some(id)) => world.taken.push(id),
            Poll::Ready(None) => consumer.finished = true,
        }
    }

    /// The consumer drops the pop it waits in and starts over.
    fn cancel(&self, world: &mut World, at: usize) {
        let consumer = &mut world.consumers[at];
        world.line.leave_consumers(&mut consumer.slot);
        consumer.cancels -= 1;
        consumer.awake = true;
    }
}

impl World {
    /// What was taken last.
    pub fn last_taken(&self) -> Option<Id> {
        self.taken.last().copied()
    }

    pub fn last_refused(&self) -> Option<Id> {
        self.refused.last().copied()
    }

    /// Whether a producer is in the middle of a push.
    pub fn producer_waits(&self, at: usize) -> bool {
        self.producers.get(at).is_some_and(|p| p.waits)
    }

    /// The items in the queue, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Id> {
        self.line.ring.items()
    }

    pub fn is_closed(&self) -> bool {
        self.line.ring.is_closed()
    }

    /// Drops the account of what has left the queue, for a run that goes on and on.
    pub fn forget_settled(&mut self) {
        self.taken.clear();
        self.refused.clear();
        self.dropped.clear();
    }

    fn decided<A: Displaced>(&mut self, at: usize, result: Result<A, Refused<Id>>) {
        match result {
            Ok(accepted) => self.dropped.extend(accepted.displaced()),
            Err(refused) => self.refused.push(refused.item),
        }
        let producer = &mut self.producers[at];
        producer.done += 1;
        producer.waits = false;
        producer.awake = true;
    }

    fn wake_all_due(&mut self) {
        while let Some((actor, _)) = self.line.due() {
            match actor {
                Actor::Producer(at) => self.producers[at].awake = true,
                Actor::Consumer(at) => self.consumers[at].awake = true,
            }
        }
    }

    fn offered(&self) -> impl Iterator<Item = Id> {
        self.producers
            .iter()
            .enumerate()
            .flat_map(|(at, producer)| (0..producer.done).map(move |item| (at, item)))
    }

    fn accounted(&self) -> Vec<Id> {
        let settled = [&self.taken, &self.refused, &self.dropped];
        let settled = settled.into_iter().flatten();
        settled.chain(self.line.ring.items()).copied().collect()
    }
}
