//! The run's side of marks and buggify points ([`ron_core::points`]).
//!
//! Always: what a point does in a run depends on the plan and the seed alone; nothing is bent once the faults
//! have healed.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use ron_core::points::{self, Watcher};

use crate::{
    recorder::Recorder,
    seed::{self, SimRng},
    swarm::Bent,
    trace::What,
};

pub struct RunWatcher {
    recorder: Recorder,
    bent: BTreeMap<String, RefCell<Point>>,
    /// Everything has healed, or the run is over.
    calm: Cell<bool>,
    over: Cell<bool>,
}

struct Point {
    per_10_000: u32,
    rng: SimRng,
    fired: bool,
}

impl RunWatcher {
    /// Watches the run of this thread from now on.
    pub fn install(recorder: &Recorder, seed: u64, bent: &[Bent]) -> Rc<RunWatcher> {
        let point = |bent: &Bent| {
            let point = Point {
                per_10_000: bent.per_10_000,
                rng: seed::stream(seed, &format!("bent {}", bent.point)),
                fired: false,
            };
            (bent.point.clone(), RefCell::new(point))
        };
        let watcher = Rc::new(RunWatcher {
            recorder: recorder.clone(),
            bent: bent.iter().map(point).collect(),
            calm: Cell::new(false),
            over: Cell::new(false),
        });
        points::watch(watcher.clone());
        watcher
    }

    /// Nothing is bent any more.
    pub fn calm(&self) {
        self.calm.set(true);
    }

    /// The world is being taken apart: what is passed now is no part of the run.
    pub fn end(&self) {
        self.calm();
        self.over.set(true);
    }

    fn tell(&self, event: &'static str, detail: String) {
        if !self.over.get() {
            let what = What::Probe {
                event,
                id: 0,
                detail,
            };
            self.recorder.record(None, what);
        }
    }
}

impl Watcher for RunWatcher {
    fn reached(&self, mark: &'static str) {
        self.tell(mark, "reached".to_owned());
    }

    fn drew(&self, point: &'static str) -> bool {
        self.bent.contains_key(point)
    }

    fn fires(&self, point: &'static str) -> bool {
        if self.calm.get() {
            return false;
        }
        let Some(state) = self.bent.get(point) else {
            return false;
        };
        let mut state = state.borrow_mut();
        let per_10_000 = state.per_10_000;
        let fires = seed::chance(&mut state.rng, per_10_000);
        let first = fires && !state.fired;
        state.fired |= fires;
        drop(state);
        if first {
            self.tell(point, "bent".to_owned());
        }
        fires
    }
}
