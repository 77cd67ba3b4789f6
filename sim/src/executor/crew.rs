//! Tasks, and the crews they belong to: all tasks of one process, or of the world itself.
//!
//! Always: a task that has ended or was dropped holds nothing any more, however many wakers are left of it; a
//! crew that was killed steps no more.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use ron_core::seam::{Abort, BoxFuture};

use super::{enlist, make_ready};
use crate::steps::{Step, Steps};

/// Room for so many members is never given back.
const ROOMY: usize = 16;

/// Told the name of a task that broke the budget of steps.
pub type OnSpin = Arc<dyn Fn(&'static str) + Send + Sync>;

/// The tasks of one process.
#[derive(Default)]
pub struct Crew {
    members: Mutex<Vec<Arc<Task>>>,
    /// Would step, if the crew were not paused.
    parked: Mutex<Vec<Arc<Task>>>,
    paused: AtomicBool,
    killed: AtomicBool,
    /// Tasks that were started through the seam and have not ended.
    live: AtomicU64,
    /// Without it its steps are not counted: the world's own.
    counted: Option<(Steps, OnSpin)>,
}

impl Crew {
    pub fn new(counted: Option<(Steps, OnSpin)>) -> Arc<Self> {
        let crew = Arc::new(Crew {
            counted,
            ..Crew::default()
        });
        enlist(&crew);
        crew
    }

    pub fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        future: BoxFuture<'static, ()>,
    ) -> Arc<Task> {
        self.start(name, false, future)
    }

    /// As [`Crew::spawn`], and it is one of the [live](Crew::live) tasks until it ends.
    pub fn spawn_live(
        self: &Arc<Self>,
        name: &'static str,
        future: BoxFuture<'static, ()>,
    ) -> Arc<Task> {
        self.live.fetch_add(1, Relaxed);
        self.start(name, true, future)
    }

    fn start(
        self: &Arc<Self>,
        name: &'static str,
        live: bool,
        future: BoxFuture<'static, ()>,
    ) -> Arc<Task> {
        let mut members = lock(&self.members);
        let task = Arc::new(Task {
            crew: self.clone(),
            name,
            live,
            place: AtomicU32::new(members.len() as u32),
            running: Mutex::new(None),
            queued: AtomicBool::new(true),
            cancelled: AtomicBool::new(false),
        });
        let waker = Waker::from(task.clone());
        *lock(&task.running) = Some(Running { future, waker });
        members.push(task.clone());
        drop(members);
        make_ready(task.clone());
        task
    }

    pub fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    pub fn live_names(&self) -> Vec<&'static str> {
        let members = lock(&self.members);
        let live = members.iter().filter(|task| task.live);
        live.map(|task| task.name).collect()
    }

    /// Lets whoever was woken take a turn, and those whom that wakes, up to a limit. To be asked by one of the crew.
    pub async fn settle(&self) {
        const MOST: usize = 100;
        for _ in 0..MOST {
            let queued = |task: &Arc<Task>| task.queued.load(Relaxed);
            if !lock(&self.members).iter().any(queued) {
                return;
            }
            let mut yielded = false;
            std::future::poll_fn(|cx| match std::mem::replace(&mut yielded, true) {
                true => Poll::Ready(()),
                false => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
        }
    }

    /// Each of its tasks is dropped at its next turn, which comes at once.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
        let members = lock(&self.members).clone();
        members.into_iter().for_each(Wake::wake);
        self.unpark();
    }

    pub fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    pub fn resume(&self) {
        self.paused.store(false, Relaxed);
        self.unpark();
    }

    fn unpark(&self) {
        let parked = std::mem::take(&mut *lock(&self.parked));
        parked.into_iter().for_each(make_ready);
    }

    /// Drops every task where it stands, and says how many there were.
    pub(super) fn drop_all(&self) -> usize {
        drop(std::mem::take(&mut *lock(&self.parked)));
        let members = std::mem::take(&mut *lock(&self.members));
        for task in &members {
            let running = lock(&task.running).take();
            drop(running);
        }
        members.len()
    }

    fn remove(&self, task: &Task) {
        let mut members = lock(&self.members);
        let place = task.place.load(Relaxed) as usize;
        // Not there if the whole crew was taken at once.
        if members
            .get(place)
            .is_some_and(|m| std::ptr::eq(&raw const **m, task))
        {
            let gone = members.swap_remove(place);
            if members.capacity() > ROOMY && members.len() < members.capacity() / 4 {
                // A burst of connections is over.
                let half = members.capacity() / 2;
                members.shrink_to(half);
            }
            if let Some(moved) = members.get(place) {
                moved.place.store(place as u32, Relaxed);
            }
            drop(members);
            drop(gone);
        }
        if task.live {
            self.live.fetch_sub(1, Relaxed);
        }
    }
}

pub struct Task {
    crew: Arc<Crew>,
    name: &'static str,
    live: bool,
    /// Where it stands among the crew's members.
    place: AtomicU32,
    /// `None` once it has ended.
    running: Mutex<Option<Running>>,
    /// It has a turn coming.
    queued: AtomicBool,
    cancelled: AtomicBool,
}

/// What a task is made of. It holds itself by its waker until it ends, and so does its crew.
struct Running {
    future: BoxFuture<'static, ()>,
    waker: Waker,
}

impl Task {
    /// Stands for the future that the executor itself holds.
    pub(super) fn of_main(crew: Arc<Crew>) -> Arc<Self> {
        Arc::new(Task {
            crew,
            name: "main",
            live: false,
            place: AtomicU32::new(u32::MAX),
            running: Mutex::new(None),
            queued: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        })
    }

    /// From now on a wake-up means another turn.
    pub(super) fn begin_step(&self) {
        self.queued.store(false, Relaxed);
    }

    /// It is dropped at its next turn, which comes at once.
    pub fn abort(self: &Arc<Self>) {
        self.cancelled.store(true, Relaxed);
        Wake::wake_by_ref(self);
    }

    pub(super) fn step(self: Arc<Self>) {
        let crew = &self.crew;
        if self.cancelled.load(Relaxed) || crew.killed.load(Relaxed) {
            self.begin_step();
            let running = lock(&self.running).take();
            return self.end(running);
        }
        if crew.paused.load(Relaxed) {
            lock(&crew.parked).push(self.clone());
            return;
        }
        self.begin_step();
        if let Some((steps, on_spin)) = &crew.counted {
            match steps.step() {
                Step::Go => {}
                Step::Spun => return on_spin(self.name),
                Step::Frozen => return,
            }
        }
        let mut slot = lock(&self.running);
        let Some(Running { future, waker }) = slot.as_mut() else {
            return;
        };
        if let Poll::Ready(()) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            let running = slot.take();
            drop(slot);
            self.end(running);
        }
    }

    fn end(&self, running: Option<Running>) {
        if running.is_some() {
            // First what it holds, then its place: who asks how many are alive is never told too few.
            drop(running);
            self.crew.remove(self);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            make_ready(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            make_ready(self.clone());
        }
    }
}

/// Aborts a task for whoever started it through the seam.
pub struct AbortTask(pub Arc<Task>);

impl Abort for AbortTask {
    fn abort(&self) {
        self.0.abort();
    }
}

/// A task that panicked inside its step leaves a poisoned lock behind; the world ends anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
