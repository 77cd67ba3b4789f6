//! The executor under a world: its tasks, the order in which they step, and its clock.
//!
//! One world, one thread. Always: which task steps next and how long its step takes come from the seed alone;
//! every task belongs to a crew, and when the crew is killed each of its tasks is dropped without another
//! step. madsim stays around it for what it alone can do: the clock, hash keys and OS randomness that
//! libraries ask for behind our back.

mod crew;

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

pub use crew::{AbortTask, Crew, OnSpin, Task};
use madsim::time::TimeHandle;
use tokio::sync::oneshot;

use crate::timer::{self, Timers};

/// One world, to be run on a thread of its own: hash keys are seeded once per thread.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    seed: u64,
    limit: Duration,
}

impl Simulation {
    pub fn new(seed: u64) -> Self {
        Simulation {
            seed,
            limit: Duration::MAX,
        }
    }

    /// Panics once its clock has gone further than this.
    pub fn limited(self, limit: Duration) -> Self {
        Simulation { limit, ..self }
    }

    /// Runs the world until `main` is done; what else is alive then is dropped.
    ///
    /// # Panics
    /// If nothing can ever happen again, if a task panics, or beyond the limit of time.
    pub fn block_on<F: Future>(self, main: F) -> F::Output {
        let config = madsim::Config::default();
        let runtime = madsim::runtime::Runtime::with_seed_and_config(self.seed, config);
        // Never awaits: as far as madsim knows the whole world is one step of one task.
        runtime.block_on(async { self.drive(main) })
    }

    fn drive<F: Future>(self, main: F) -> F::Output {
        let mut clock = Entered::new(self.seed);
        let mut main = pin!(main);
        let main_task = Task::of_main(here(|h| h.world.borrow().clone()));
        let waker = Waker::from(main_task.clone());
        let mut cx = Context::from_waker(&waker);
        waker.wake_by_ref();
        loop {
            while let Some(task) = clock.pick() {
                if Arc::ptr_eq(&task, &main_task) {
                    main_task.begin_step();
                    if let Poll::Ready(output) = main.as_mut().poll(&mut cx) {
                        return output;
                    }
                } else {
                    task.step();
                }
                clock.spend_a_step();
            }
            assert!(
                clock.jump(),
                "nothing can ever happen again: every task waits for another"
            );
            assert!(
                timer::elapsed() < self.limit,
                "time limit exceeded: {:?}",
                self.limit
            );
        }
    }
}

/// Starts a task of the world itself, which no node's death ends.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> WorldTask<T> {
    let (done, ended) = oneshot::channel();
    let crew = here(|h| h.world.borrow().clone());
    let task = crew.spawn(
        "world",
        Box::pin(async move {
            let _ = done.send(task.await);
        }),
    );
    WorldTask { task, ended }
}

/// A task of the world; it goes on if this is dropped.
pub struct WorldTask<T> {
    task: Arc<Task>,
    ended: oneshot::Receiver<T>,
}

impl<T> WorldTask<T> {
    pub fn abort(&self) {
        self.task.abort();
    }
}

impl<T> Future for WorldTask<T> {
    /// `None` if it was aborted.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.ended).poll(cx).map(Result::ok)
    }
}

// ------------------------------------------------------------------------- the thread's world

/// What a step costs in simulated time, in nanoseconds: this much and up to 63 more.
const STEP_NS: u64 = 50;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    static BASE: Cell<Option<Instant>> = const { Cell::new(None) };
    static HERE: Here = Here::default();
}

/// The world of this thread.
#[derive(Default)]
struct Here {
    ready: RefCell<Vec<Arc<Task>>>,
    timers: RefCell<Timers>,
    /// Of the tasks that belong to no node.
    world: RefCell<Arc<Crew>>,
    crews: RefCell<Vec<Weak<Crew>>>,
}

fn here<T>(look: impl FnOnce(&Here) -> T) -> T {
    HERE.with(look)
}

/// Simulated nanoseconds since the world began.
pub(crate) fn nanos() -> u64 {
    NOW_NS.get()
}

/// The instant at which the world began.
pub(crate) fn base() -> Instant {
    BASE.get().expect("no simulation runs on this thread")
}

/// Late, from destructors of the thread, there are no timers any more.
pub(crate) fn with_timers<T>(act: impl FnOnce(&mut Timers) -> T) -> Option<T> {
    HERE.try_with(|h| act(&mut h.timers.borrow_mut())).ok()
}

fn make_ready(task: Arc<Task>) {
    // Dropped outside of the closure, should the thread be over.
    let mut task = Some(task);
    let _ = HERE.try_with(|h| h.ready.borrow_mut().extend(task.take()));
}

fn enlist(crew: &Arc<Crew>) {
    here(|h| h.crews.borrow_mut().push(Arc::downgrade(crew)));
}

/// The world while it runs: its dice, and the clock that libraries see.
struct Entered {
    dice: Dice,
    seen_by_libraries: TimeHandle,
    told_ns: u64,
}

impl Entered {
    fn new(seed: u64) -> Self {
        let seen_by_libraries = TimeHandle::current();
        BASE.set(Some(
            seen_by_libraries.now_instant() - seen_by_libraries.elapsed(),
        ));
        let told_ns = seen_by_libraries.elapsed().as_nanos() as u64;
        NOW_NS.set(told_ns);
        let world = Crew::new(None);
        here(|h| h.world.replace(world));
        Entered {
            dice: Dice(seed),
            seen_by_libraries,
            told_ns,
        }
    }

    /// Any of the tasks that could step, each as likely as the others.
    fn pick(&mut self) -> Option<Arc<Task>> {
        here(|h| {
            let mut ready = h.ready.borrow_mut();
            match ready.len() {
                0 => None,
                1 => ready.pop(),
                n => Some(ready.swap_remove(self.dice.below(n))),
            }
        })
    }

    fn spend_a_step(&mut self) {
        let now = nanos() + STEP_NS + (self.dice.roll() >> 58);
        NOW_NS.set(now);
        fire(now);
    }

    /// To the next timer; false if there is none.
    fn jump(&mut self) -> bool {
        let Some(at) = here(|h| h.timers.borrow_mut().next()) else {
            return false;
        };
        let now = nanos().max(at);
        NOW_NS.set(now);
        let passed = Duration::from_nanos(now - self.told_ns);
        self.seen_by_libraries.advance(passed);
        self.told_ns = now;
        fire(now);
        true
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Tasks and their crews hold each other; whatever a task does while it falls apart finds the world
        // still there, and what it wakes or starts is dropped in its turn.
        loop {
            let crews = here(|h| h.crews.take());
            let alive = crews.iter().filter_map(Weak::upgrade);
            let dropped: usize = alive.map(|crew| crew.drop_all()).sum();
            drop(here(|h| h.ready.take()));
            drop(here(|h| h.timers.take()));
            if dropped == 0 {
                break;
            }
            here(|h| h.crews.borrow_mut().extend(crews));
        }
        BASE.set(None);
    }
}

/// Wakes whoever waits for a moment that has come.
fn fire(now: u64) {
    // One by one: what a waker does may touch the timers again.
    while let Some(waker) = here(|h| h.timers.borrow_mut().due(now)) {
        waker.wake();
    }
}

/// SplitMix64: the order of steps wants even and quick, nothing more.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.roll()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests;
