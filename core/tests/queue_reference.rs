//! Random histories against a second, plain implementation: for every policy, each answer and each
//! count agree after each step, and the laws of the counts hold.
#![cfg(not(feature = "loom"))]

mod hands;

use std::{task::Poll, time::Duration};

use hands::{Hands, Polled, world};
use proptest::prelude::*;
use ron_core::{
    DropOldest, Env, Queue, Refusal, Refused, RejectNew, RetryOnce, WaitFor, WaitThenDropOldest,
    view::QueueStats,
};

const WAIT: Duration = Duration::from_millis(200);

/// Items are told apart by number; some must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    number: u32,
    kept: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// `relief`: if the push has to wait, an item is taken meanwhile.
    Push {
        kept: bool,
        relief: bool,
    },
    TryPop,
    Pop,
    PopBatch(usize),
    Clear,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reject,
    Wait,
    DropOldest,
    WaitThenDrop,
    RetryOnce,
}

/// What a push came to: in (and who had to leave), or refused.
type Outcome = Result<Option<Item>, (Item, Refusal)>;

// ------------------------------------------------------------------------------------- reference

/// The obvious queue: a list, and a list of everything that ever happened to an item.
struct Reference {
    kind: Kind,
    cap: usize,
    items: Vec<Item>,
    closed: bool,
    deepest: usize,
    history: Vec<Fate>,
}

#[derive(PartialEq)]
enum Fate {
    Accepted,
    Refused,
    Delivered,
    Dropped,
}

impl Reference {
    fn push(&mut self, item: Item, relief: bool) -> Outcome {
        let waits = matches!(self.kind, Kind::Wait | Kind::WaitThenDrop | Kind::RetryOnce);
        if waits && relief && !self.closed && self.items.len() == self.cap {
            self.pop();
        }
        if self.closed {
            self.history.push(Fate::Refused);
            return Err((item, Refusal::Closed));
        }
        let mut left = None;
        if self.items.len() == self.cap {
            let victim = match self.kind {
                Kind::DropOldest => Some(0),
                Kind::WaitThenDrop => self.items.iter().position(|i| !i.kept),
                Kind::Reject | Kind::Wait | Kind::RetryOnce => None,
            };
            let Some(victim) = victim else {
                self.history.push(Fate::Refused);
                return Err((item, Refusal::Full));
            };
            left = Some(self.items.remove(victim));
            self.history.push(Fate::Dropped);
        }
        self.items.push(item);
        self.history.push(Fate::Accepted);
        self.deepest = self.deepest.max(self.items.len());
        Ok(left)
    }

    fn pop(&mut self) -> Option<Item> {
        if self.items.is_empty() {
            return None;
        }
        self.history.push(Fate::Delivered);
        Some(self.items.remove(0))
    }

    fn clear(&mut self) -> Vec<Item> {
        self.history
            .extend(self.items.iter().map(|_| Fate::Dropped));
        std::mem::take(&mut self.items)
    }

    fn stats(&self) -> QueueStats {
        let count = |fate| self.history.iter().filter(|f| **f == fate).count() as u64;
        QueueStats {
            name: "reference",
            cap: self.cap,
            depth: self.items.len(),
            high_water: self.deepest,
            offered: count(Fate::Accepted) + count(Fate::Refused),
            accepted: count(Fate::Accepted),
            refused: count(Fate::Refused),
            delivered: count(Fate::Delivered),
            dropped: count(Fate::Dropped),
        }
    }
}

// --------------------------------------------------------------------------------------- subject

/// The queue under test, whatever its policy.
trait Subject {
    fn push(&self, world: &(Env, Hands), item: Item, relief: bool) -> Outcome;
}

fn outcome(result: Result<Option<Item>, Refused<Item>>) -> Outcome {
    result.map_err(|refused| (refused.item, refused.why))
}

/// Polls a push that may wait: relief comes or not, then the wait ends.
fn decide<A>(
    push: impl Future<Output = Result<A, Refused<Item>>>,
    relieve: impl FnOnce(),
    hands: &Hands,
) -> Result<A, Refused<Item>> {
    let mut push = Polled::new(push);
    if let Poll::Ready(result) = push.poll() {
        return result;
    }
    relieve();
    hands.advance(WAIT);
    match push.poll() {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a push decides once its wait is over"),
    }
}

impl Subject for Queue<Item, RejectNew> {
    fn push(&self, _: &(Env, Hands), item: Item, _: bool) -> Outcome {
        outcome(Queue::<_, RejectNew>::push(self, item).map(|()| None))
    }
}

impl Subject for Queue<Item, DropOldest> {
    fn push(&self, _: &(Env, Hands), item: Item, _: bool) -> Outcome {
        outcome(Queue::<_, DropOldest>::push(self, item))
    }
}

impl Subject for Queue<Item, WaitFor> {
    fn push(&self, (env, hands): &(Env, Hands), item: Item, relief: bool) -> Outcome {
        let push = Queue::<_, WaitFor>::push(self, env, item);
        let relieve = || {
            if relief {
                self.try_pop();
            }
        };
        outcome(decide(push, relieve, hands).map(|()| None))
    }
}

impl Subject for Queue<Item, WaitThenDropOldest<Item>> {
    fn push(&self, (env, hands): &(Env, Hands), item: Item, relief: bool) -> Outcome {
        let push = Queue::<_, WaitThenDropOldest<_>>::push(self, env, item);
        let relieve = || {
            if relief {
                self.try_pop();
            }
        };
        outcome(decide(push, relieve, hands))
    }
}

impl Subject for Queue<Item, RetryOnce> {
    fn push(&self, (env, hands): &(Env, Hands), item: Item, relief: bool) -> Outcome {
        let mut rng = env.rng();
        let push = Queue::<_, RetryOnce>::push(self, env, &mut rng, item);
        let relieve = || {
            if relief {
                self.try_pop();
            }
        };
        outcome(decide(push, relieve, hands).map(|()| None))
    }
}

// ---------------------------------------------------------------------------------------- driver

fn agree<P>(kind: Kind, cap: usize, policy: P, steps: &[Step]) -> Result<(), TestCaseError>
where
    Queue<Item, P>: Subject,
{
    let world = world();
    let queue = Queue::new("reference", cap, policy);
    let mut reference = Reference {
        kind,
        cap,
        items: Vec::new(),
        closed: false,
        deepest: 0,
        history: Vec::new(),
    };
    for (number, step) in (0..).zip(steps) {
        match *step {
            Step::Push { kept, relief } => {
                let item = Item { number, kept };
                let expected = reference.push(item, relief);
                prop_assert_eq!(Subject::push(&queue, &world, item, relief), expected);
            }
            Step::TryPop => prop_assert_eq!(queue.try_pop(), reference.pop()),
            Step::Pop => {
                let expected = match reference.pop() {
                    None if !reference.closed => Poll::Pending,
                    popped => Poll::Ready(popped),
                };
                prop_assert_eq!(Polled::new(queue.pop()).poll(), expected);
            }
            Step::PopBatch(max) => {
                let batch: Vec<_> = (0..max.max(1)).map_while(|_| reference.pop()).collect();
                let expected = match batch.is_empty() && !reference.closed {
                    true => Poll::Pending,
                    false => Poll::Ready(batch),
                };
                prop_assert_eq!(Polled::new(queue.pop_batch(max)).poll(), expected);
            }
            Step::Clear => prop_assert_eq!(queue.clear(), reference.clear()),
            Step::Close => {
                prop_assert_eq!(queue.close(), !reference.closed);
                reference.closed = true;
            }
        }
        let stats = queue.stats();
        prop_assert_eq!(&stats, &reference.stats());
        prop_assert_eq!(stats.offered, stats.accepted + stats.refused);
        let settled = stats.delivered + stats.dropped + stats.depth as u64;
        prop_assert_eq!(stats.accepted, settled);
        prop_assert!(stats.depth <= stats.high_water && stats.high_water <= stats.cap);
        prop_assert_eq!(queue.len(), reference.items.len());
        prop_assert_eq!(queue.is_closed(), reference.closed);
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<bool>(), any::<bool>()).prop_map(|(kept, relief)| Step::Push { kept, relief }),
        3 => Just(Step::TryPop),
        2 => Just(Step::Pop),
        1 => (0..4usize).prop_map(Step::PopBatch),
        1 => Just(Step::Clear),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..60)
}

// proves: KMS-1.3, KMS-3.7, RWD-1.9
proptest! {
    #[test]
    fn every_policy_agrees_with_the_reference(cap in 1..5usize, steps in steps()) {
        let keep = |item: &Item| item.kept;
        let (lo, hi) = (WAIT / 4, WAIT);
        agree(Kind::Reject, cap, RejectNew, &steps)?;
        agree(Kind::Wait, cap, WaitFor(WAIT), &steps)?;
        agree(Kind::DropOldest, cap, DropOldest, &steps)?;
        agree(Kind::WaitThenDrop, cap, WaitThenDropOldest { wait: WAIT, keep }, &steps)?;
        agree(Kind::RetryOnce, cap, RetryOnce { lo, hi }, &steps)?;
    }
}
