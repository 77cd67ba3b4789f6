//! The queue, each policy in turn: producers and consumers that wait, give up and go away, against the obvious queue.
//!
//! Time passes only between steps, so that who comes to what is known exactly; only how late a timer may be is left open.
//! Now and then two things happen before anybody who was woken looks.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ron_core::{
    DropOldest, Env, Queue, Refused, RejectNew, RetryOnce, WaitFor, WaitThenDropOldest,
    queue::policy::Policy, seam::BoxFuture,
};

use super::{
    Bench, Verdict, agree, demand,
    hands::Hand,
    queue_reference::{Came, Item, Kind, Outcome, Reference},
    slack,
};

const NAME: &str = "drilled";
const STEPS: usize = 40;

pub async fn drill(bench: &mut Bench) -> Verdict {
    let (wait, longer) = (bench.ms(2, 12), bench.ms(0, 8));
    let (lo, hi) = (wait, wait + longer);
    let keep = |item: &Item| item.kept;
    play(bench, Kind::RejectNew, RejectNew, wait, wait).await?;
    play(bench, Kind::WaitFor, WaitFor(wait), wait, wait).await?;
    play(bench, Kind::DropOldest, DropOldest, wait, wait).await?;
    let policy = WaitThenDropOldest { wait, keep };
    play(bench, Kind::WaitThenDropOldest, policy, wait, wait).await?;
    play(bench, Kind::RetryOnce, RetryOnce { lo, hi }, lo, hi).await
}

async fn play<P: Policy<Item>>(
    bench: &mut Bench,
    kind: Kind,
    policy: P,
    lo: Duration,
    hi: Duration,
) -> Verdict
where
    Queue<Item, P>: Push,
{
    let cap = bench.pick(0, 5) as usize;
    let mut game = Game {
        queue: Queue::new(NAME, cap, policy),
        reference: Reference::new(kind, cap),
        wait: (lo, hi),
        next: 0,
        producers: BTreeMap::new(),
        consumers: BTreeMap::new(),
    };
    let played = game.play(bench).await;
    played.map_err(|why| format!("{kind:?} of {cap}: {why}"))
}

/// A push by whatever policy.
trait Push: Clone + Send + Sync + 'static {
    fn offer(self, env: Env, item: Item) -> BoxFuture<'static, Outcome>;
}

fn outcome(result: Result<Option<Item>, Refused<Item>>) -> Outcome {
    result.map_err(|refused| (refused.item, refused.why))
}

impl Push for Queue<Item, RejectNew> {
    fn offer(self, _: Env, item: Item) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { outcome(self.push(item).map(|()| None)) })
    }
}

impl Push for Queue<Item, DropOldest> {
    fn offer(self, _: Env, item: Item) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { outcome(self.push(item)) })
    }
}

impl Push for Queue<Item, WaitFor> {
    fn offer(self, env: Env, item: Item) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { outcome(self.push(&env, item).await.map(|()| None)) })
    }
}

impl Push for Queue<Item, WaitThenDropOldest<Item>> {
    fn offer(self, env: Env, item: Item) -> BoxFuture<'static, Outcome> {
        Box::pin(async move { outcome(self.push(&env, item).await) })
    }
}

impl Push for Queue<Item, RetryOnce> {
    fn offer(self, env: Env, item: Item) -> BoxFuture<'static, Outcome> {
        let mut rng = env.rng();
        Box::pin(async move { outcome(self.push(&env, &mut rng, item).await.map(|()| None)) })
    }
}

struct Game<P> {
    queue: Queue<Item, P>,
    reference: Reference,
    /// How long a push that finds it full waits, at least and at most.
    wait: (Duration, Duration),
    /// The next number, of an item or of who waits.
    next: u64,
    /// Those who wait, by number and therefore in order of arrival.
    producers: BTreeMap<u64, (Instant, Hand<Outcome>)>,
    consumers: BTreeMap<u64, Hand<Vec<Item>>>,
}

impl<P: Policy<Item>> Game<P>
where
    Queue<Item, P>: Push,
{
    async fn play(&mut self, bench: &mut Bench) -> Verdict {
        let mut settled = true;
        for _ in 0..STEPS {
            self.step(bench)?;
            settled = !settled || !bench.one_in(3);
            if settled {
                self.settle()?;
                if bench.one_in(4) {
                    self.let_pass(bench).await?;
                }
            }
            self.compare()?;
        }
        self.end(bench).await
    }

    fn step(&mut self, bench: &mut Bench) -> Verdict {
        match bench.pick(0, 16) {
            0..=6 => self.push(bench),
            7..=8 => self.pop(1),
            9 => self.pop(bench.pick(0, 3) as usize),
            10..=11 => {
                let expected = self.reference.take(1).pop();
                agree("try_pop", self.queue.try_pop(), expected)
            }
            12 => self.cancel(bench),
            13 => agree("pass", self.queue.pass(), self.reference.pass()),
            14 if bench.one_in(2) => agree("clear", self.queue.clear(), self.reference.clear()),
            15 if bench.one_in(6) => self.close(),
            _ => Ok(()),
        }
    }

    fn push(&mut self, bench: &mut Bench) -> Verdict {
        let (number, kept) = (self.number(), bench.one_in(2));
        let item = Item { number, kept };
        let mut hand = Hand::new(self.queue.clone().offer(bench.env.clone(), item));
        let expected = self.reference.push(number, item);
        let came = hand.look();
        if came.is_none() {
            let since = bench.env.now();
            self.producers.insert(number, (since, hand));
        }
        agree(&format!("push of {item:?}"), came, expected)
    }

    fn pop(&mut self, max: usize) -> Verdict {
        let (number, queue) = (self.number(), self.queue.clone());
        let mut hand = Hand::new(async move {
            match max {
                1 => queue.pop().await.into_iter().collect(),
                _ => queue.pop_batch(max).await,
            }
        });
        let expected = self.reference.pop(number, max.max(1));
        let came = hand.look();
        if came.is_none() {
            self.consumers.insert(number, hand);
        }
        agree(&format!("pop of {max}"), came, expected)
    }

    /// Somebody who waits goes away, woken or not.
    fn cancel(&mut self, bench: &mut Bench) -> Verdict {
        let waiting: Vec<u64> = (self.producers.keys().chain(self.consumers.keys()))
            .copied()
            .collect();
        if !waiting.is_empty() {
            let gone = bench.one_of(&waiting);
            self.producers.remove(&gone);
            self.consumers.remove(&gone);
            self.reference.cancel(gone);
        }
        Ok(())
    }

    fn close(&mut self) -> Verdict {
        let first = !std::mem::replace(&mut self.reference.closed, true);
        agree("close is the first", self.queue.close(), first)
    }

    /// Whoever was woken looks, until nobody is.
    fn settle(&mut self) -> Verdict {
        let expected = self.reference.settle();
        let mut came = BTreeMap::new();
        while let Some((id, done)) = self.next_done() {
            came.insert(id, done);
        }
        agree("who waited came to", came, expected)
    }

    /// The first who is done, consumers before producers and each in order of arrival.
    fn next_done(&mut self) -> Option<(u64, Came)> {
        let consumers = self.consumers.iter_mut();
        let popped = { consumers }.find_map(|(id, hand)| Some((*id, Came::Popped(hand.look()?))));
        if let Some((id, done)) = popped {
            self.consumers.remove(&id);
            return Some((id, done));
        }
        if self.reference.kind == Kind::RetryOnce {
            return None;
        }
        let producers = self.producers.iter_mut();
        let pushed =
            { producers }.find_map(|(id, (_, hand))| Some((*id, Came::Pushed(hand.look()?))));
        self.producers.remove(&pushed.as_ref()?.0);
        pushed
    }

    /// Time passes, and waits end: not before their time, and soon after it.
    async fn let_pass(&mut self, bench: &mut Bench) -> Verdict {
        let most = self.wait.1.as_millis() as u64 + 4;
        let span = bench.ms(0, most);
        bench.env.sleep(span).await;
        let now = bench.env.now();
        let waiting: Vec<u64> = self.producers.keys().copied().collect();
        for id in waiting {
            let Some((since, hand)) = self.producers.get_mut(&id) else {
                continue;
            };
            let (waited, (least, most)) = (now - *since, self.wait);
            let Some(came) = hand.look() else {
                demand(waited <= most + slack(most), || {
                    format!("producer {id} waits since {waited:?}, though {most:?} was the most")
                })?;
                continue;
            };
            self.producers.remove(&id);
            demand(waited >= least, || {
                format!("producer {id} gave up after {waited:?}, before its {least:?} were over")
            })?;
            agree("after its wait a push", came, self.reference.give_up(id))?;
            // It may have got in where somebody waits for an item; other waits are over too, and are not to be looked at yet.
            if self.reference.kind == Kind::RetryOnce {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Closed, everybody is told, and what is left can still be taken.
    async fn end(&mut self, bench: &mut Bench) -> Verdict {
        self.settle()?;
        self.close()?;
        self.settle()?;
        self.compare()?;
        while !self.producers.is_empty() {
            self.let_pass(bench).await?;
        }
        while let Some(expected) = self.reference.take(1).pop() {
            agree("drained", self.queue.try_pop(), Some(expected))?;
        }
        agree("drained", self.queue.try_pop(), None)?;
        self.pop(1)?;
        self.compare()
    }

    fn compare(&self) -> Verdict {
        let (queue, reference) = (&self.queue, &self.reference);
        agree("stats", queue.stats(), reference.stats(NAME))?;
        agree("len", queue.len(), reference.items.len())?;
        agree("is_empty", queue.is_empty(), reference.items.is_empty())?;
        agree("cap", queue.cap(), reference.cap)?;
        agree("is_closed", queue.is_closed(), reference.closed)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
