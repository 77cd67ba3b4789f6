//! Models, so that one command checks them all and another explores one: the kernel's are here, a service registers its
//! own ([`crate::services`]). A model counts as checked only if all of its states were visited.

use std::{
    fmt::{Debug, Write as _},
    hash::Hash,
    net::SocketAddr,
    time::{Duration, Instant},
};

use ron_core::{
    DropOldest, RejectNew, WaitFor, WaitThenDropOldest,
    models::{
        lifecycle::{Defect, LifecycleModel},
        queue::{Id, WorkQueue},
    },
};
use stateright::{Checker, Expectation, Model};

pub struct ModelKind {
    pub name: &'static str,
    pub about: &'static str,
    pub check: fn() -> Checked,
    /// Serves the explorer; returns only if it cannot.
    pub explore: fn(SocketAddr),
}

/// The kernel's.
pub const KERNEL: &[ModelKind] = &[
    ModelKind {
        name: "lifecycle",
        about: "tasks that panic, hang and return; restarts, drain, shutdown at any moment",
        check: || check(lifecycle()),
        explore: |addr| explore(lifecycle(), addr),
    },
    ModelKind {
        name: "queue.reject",
        about: "producers and consumers of a queue that refuses when it is full",
        check: || check(queue(2, RejectNew)),
        explore: |addr| explore(queue(2, RejectNew), addr),
    },
    ModelKind {
        name: "queue.wait",
        about: "the same, with producers that wait for room",
        check: || check(queue(1, WaitFor(Duration::ZERO))),
        explore: |addr| explore(queue(1, WaitFor(Duration::ZERO)), addr),
    },
    ModelKind {
        name: "queue.drop",
        about: "the same, where the oldest item leaves for the newest",
        check: || check(queue(2, DropOldest)),
        explore: |addr| explore(queue(2, DropOldest), addr),
    },
    ModelKind {
        name: "queue.wait_drop",
        about: "the same, after a wait, and some items are kept",
        check: || check(queue(1, wait_then_drop())),
        explore: |addr| explore(queue(1, wait_then_drop()), addr),
    },
];

pub fn find(name: &str) -> Option<&'static ModelKind> {
    crate::services::models().find(|kind| kind.name == name)
}

/// What the checker found.
#[derive(Clone, Debug)]
pub struct Checked {
    pub states: usize,
    pub depth: usize,
    pub properties: Vec<PropertyResult>,
    /// All states were visited.
    pub complete: bool,
    pub took: Duration,
}

#[derive(Clone, Debug)]
pub struct PropertyResult {
    pub name: &'static str,
    pub holds: bool,
    /// The steps to the state that breaks it.
    pub steps: Vec<String>,
}

impl Checked {
    pub fn holds(&self) -> bool {
        self.complete && self.properties.iter().all(|p| p.holds)
    }

    /// One row, and below it what is broken and how to get there.
    pub fn row(&self, name: &str) -> String {
        let held = self.properties.iter().filter(|p| p.holds).count();
        let mut row = format!(
            "{name:<18} {:>9} {:>6} {:>7} {:>8.2} s  {}",
            self.states,
            self.depth,
            format!("{held}/{}", self.properties.len()),
            self.took.as_secs_f64(),
            if self.holds() { "holds" } else { "VIOLATED" }
        );
        if !self.complete {
            let _ = write!(row, "\n    does not end: stopped at {LIMIT} states");
        }
        for broken in self.properties.iter().filter(|p| !p.holds) {
            let way = if broken.steps.is_empty() {
                "no state has it".to_owned()
            } else {
                broken.steps.join(" → ")
            };
            let _ = write!(row, "\n    {}: {way}", broken.name);
        }
        row
    }

    pub fn header() -> String {
        format!(
            "{:<18} {:>9} {:>6} {:>7} {:>10}",
            "model", "states", "depth", "holds", "time"
        )
    }
}

/// A model this large is taken to be endless.
const LIMIT: usize = 3_000_000;

/// Visits every state of a model.
pub fn check<M>(model: M) -> Checked
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync> + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
    M::State: 'static,
{
    let begin = Instant::now();
    let checker = model.checker().target_state_count(LIMIT).spawn_bfs().join();
    let found = checker.discoveries();
    let result = |property: stateright::Property<M>| {
        let path = found.get(property.name);
        let holds = match property.expectation {
            Expectation::Always | Expectation::Eventually => path.is_none(),
            Expectation::Sometimes => path.is_some(),
        };
        let steps = match path {
            Some(path) if !holds => {
                let actions = path.clone().into_actions();
                actions.iter().map(|action| format!("{action:?}")).collect()
            }
            _ => Vec::new(),
        };
        PropertyResult {
            name: property.name,
            holds,
            steps,
        }
    };
    Checked {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        properties: checker
            .model()
            .properties()
            .into_iter()
            .map(result)
            .collect(),
        complete: checker.state_count() < LIMIT,
        took: begin.elapsed(),
    }
}

/// Serves the explorer of a model.
pub fn explore<M>(model: M, addr: SocketAddr)
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync> + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let _ = model.checker().serve(addr);
}

fn lifecycle() -> LifecycleModel {
    LifecycleModel::new(Defect::None, Instant::now())
}

fn queue<P>(cap: usize, policy: P) -> WorkQueue<P> {
    WorkQueue {
        policy,
        cap,
        producers: 2,
        items: 2,
        consumers: 2,
        cancels: 1,
        flaw: None,
    }
}

fn wait_then_drop() -> WaitThenDropOldest<Id> {
    WaitThenDropOldest {
        wait: Duration::ZERO,
        keep: |(producer, _): &Id| *producer == 0,
    }
}

#[cfg(test)]
mod tests {
    use ron_core::models::queue::{Flaw, NO_LOSS};

    use super::*;

    #[test]
    fn a_violated_property_is_told_with_the_way_to_it() {
        let flawed = WorkQueue {
            flaw: Some(Flaw::LosesOnClose),
            ..queue(2, RejectNew)
        };
        let checked = check(flawed);
        assert!(!checked.holds() && checked.complete);
        let row = checked.row("queue.reject");
        assert!(row.contains("VIOLATED") && row.contains(NO_LOSS), "{row}");
        assert!(row.contains("Close"), "the way there: {row}");
    }

    #[test]
    fn a_sound_model_holds_and_says_how_large_it_is() {
        let checked = (find("queue.reject").expect("it is listed").check)();
        assert!(checked.holds(), "{}", checked.row("queue.reject"));
        assert!(checked.states > 500 && checked.depth > 5 && checked.properties.len() >= 6);
        assert!(checked.row("queue.reject").ends_with("holds"));
    }
}
