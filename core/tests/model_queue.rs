//! Every order of events of a small work queue, on the shipped code, and proof that the checker would
//! notice a queue that loses, doubles, overflows or oversleeps.

use std::time::Duration;

use ron_core::{
    DropOldest, RejectNew, WaitFor, WaitThenDropOldest,
    models::queue::{
        Displaced, Flaw, Id, NO_DUPLICATE, NO_LOSS, NO_SLEEPER, WITHIN_CAP, WorkQueue,
    },
    queue::policy::Policy,
};
use stateright::{Checker, HasDiscoveries, Model};

fn world<P>(policy: P) -> WorkQueue<P> {
    WorkQueue {
        policy,
        cap: 2,
        producers: 2,
        items: 2,
        consumers: 2,
        cancels: 1,
        flaw: None,
    }
}

fn holds<P>(model: WorkQueue<P>)
where
    P: Policy<Id, Accepted: Displaced> + Clone + Send + Sync + 'static,
{
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.unique_state_count() > 500, "it went somewhere");
    checker.assert_properties();
}

fn refuted(flaw: Flaw, property: &'static str) {
    let flawed = WorkQueue {
        flaw: Some(flaw),
        ..world(RejectNew)
    };
    // A flawed world may be endless: the first counterexample will do.
    let found = HasDiscoveries::AllOf([property].into());
    let checker = flawed.checker().finish_when(found).spawn_bfs().join();
    checker.assert_any_discovery(property);
}

// proves: EDG-10.7
#[test]
fn a_queue_that_rejects_neither_loses_nor_doubles_and_serves_all() {
    holds(world(RejectNew));
}

// proves: EDG-10.7
#[test]
fn a_queue_that_waits_neither_loses_nor_doubles_and_serves_all() {
    holds(WorkQueue {
        cap: 1,
        ..world(WaitFor(Duration::ZERO))
    });
}

#[test]
fn a_queue_that_drops_hands_out_what_it_drops_and_serves_the_rest() {
    holds(world(DropOldest));
    holds(WorkQueue {
        cap: 1,
        ..world(WaitThenDropOldest {
            wait: Duration::ZERO,
            keep: |(producer, _): &Id| *producer == 0,
        })
    });
}

#[test]
fn the_checker_finds_each_known_flaw() {
    refuted(Flaw::LosesOnClose, NO_LOSS);
    refuted(Flaw::TakesWithoutRemoving, NO_DUPLICATE);
    refuted(Flaw::SwallowsWakeUp, NO_SLEEPER);
    refuted(Flaw::IgnoresCap, WITHIN_CAP);
}
