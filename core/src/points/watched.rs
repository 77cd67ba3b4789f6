//! What the points do in a build that is simulated: each asks the watcher of its thread.
//!
//! A simulated run has a thread of its own, so the thread is the run. Always: a place asks its watcher once
//! per thread for what cannot change, so a mark that was reached, or a point that is off, costs one look.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    thread::LocalKey,
};

/// Who watches the run of this thread.
pub trait Watcher {
    /// The run came by this mark for the first time.
    fn reached(&self, mark: &'static str);
    /// Did this run draw the point at all?
    fn drew(&self, point: &'static str) -> bool;
    /// The point was drawn: does it fire this time?
    fn fires(&self, point: &'static str) -> bool;
}

/// What one place in the code knows about the run of its thread.
pub struct Site(Cell<State>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unasked,
    Off,
    On,
}

impl Site {
    #[allow(clippy::new_without_default, reason = "a Site is made in a const only")]
    pub const fn new() -> Self {
        Site(Cell::new(State::Unasked))
    }
}

thread_local! {
    static APART: Cell<bool> = const { Cell::new(false) };
    static WATCHER: RefCell<Option<Rc<dyn Watcher>>> = const { RefCell::new(None) };
}

/// From now on the points of this thread ask `watcher`. To be called before the first of them is passed.
pub fn watch(watcher: Rc<dyn Watcher>) {
    WATCHER.set(Some(watcher));
}

/// Runs code that is no part of the run, such as a model that steps the same machines: no point is reached or
/// bent in it.
pub fn apart<T>(work: impl FnOnce() -> T) -> T {
    let before = APART.replace(true);
    let done = work();
    APART.set(before);
    done
}

pub fn sometimes(site: &'static LocalKey<Site>, name: &'static str) {
    if is_apart() {
        return;
    }
    decided(site, |watcher| {
        watcher.reached(name);
        false
    });
}

pub fn buggify(site: &'static LocalKey<Site>, name: &'static str) -> bool {
    !is_apart() && decided(site, |watcher| watcher.drew(name)) && ask(|watcher| watcher.fires(name))
}

fn is_apart() -> bool {
    APART.try_with(Cell::get).unwrap_or(true)
}

/// The answer to a question that is asked once per site and thread.
fn decided(site: &'static LocalKey<Site>, question: impl FnOnce(&dyn Watcher) -> bool) -> bool {
    // A thread that ends may pass a point while its locals are already gone.
    let known = site.try_with(|site| site.0.get()).unwrap_or(State::Off);
    if known != State::Unasked {
        return known == State::On;
    }
    // First, so that a watcher that comes by here itself is not asked again.
    let _ = site.try_with(|site| site.0.set(State::Off));
    let on = ask(question);
    if on {
        let _ = site.try_with(|site| site.0.set(State::On));
    }
    on
}

fn ask(question: impl FnOnce(&dyn Watcher) -> bool) -> bool {
    let watcher = WATCHER.try_with(|watcher| watcher.borrow().clone());
    watcher
        .ok()
        .flatten()
        .is_some_and(|watcher| question(&*watcher))
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;

    struct Told(RefCell<Vec<String>>);

    impl Watcher for Told {
        fn reached(&self, mark: &'static str) {
            self.0.borrow_mut().push(mark.to_owned());
        }

        fn drew(&self, point: &'static str) -> bool {
            self.0.borrow_mut().push(format!("drew {point}"));
            point == "queue.pop_yields"
        }

        fn fires(&self, _: &'static str) -> bool {
            true
        }
    }

    #[test]
    fn what_runs_apart_reaches_and_bends_nothing() {
        let told = Rc::new(Told(RefCell::default()));
        watch(told.clone());
        let pass = || {
            crate::sometimes!("queue.full");
            crate::buggify!("queue.pop_yields")
        };
        assert!(!apart(pass));
        assert!(told.0.borrow().is_empty());
        assert!(pass());
        assert!(!apart(pass));
        assert_eq!(*told.0.borrow(), ["queue.full", "drew queue.pop_yields"]);
    }

    #[test]
    fn each_place_asks_once_per_run_and_then_knows() {
        let told = Rc::new(Told(RefCell::default()));
        watch(told.clone());
        for _ in 0..3 {
            crate::sometimes!("queue.full");
            assert!(crate::buggify!("queue.pop_yields"));
            assert!(!crate::buggify!("timer.late"));
        }
        let told = told.0.borrow();
        assert_eq!(
            *told,
            ["queue.full", "drew queue.pop_yields", "drew timer.late"]
        );
    }
}
