//! The life-cycle machine, driven by hand and by a small event loop with random tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use proptest::prelude::*;
use rand_chacha::rand_core::SeedableRng;
use ron_core::{
    Rng,
    backoff::{Backoff, Jitter},
    lifecycle::{
        Action, Ended, Escalate, Exit, Lifecycle, Restart, Stage, TaskId, TaskRules, Timer,
    },
};

const SECOND: Duration = Duration::from_secs(1);

#[allow(
    clippy::disallowed_methods,
    reason = "an Instant can be had from nowhere else; its value plays no part"
)]
fn origin() -> Instant {
    Instant::now()
}

fn rules(phase: usize) -> TaskRules {
    TaskRules {
        name: "worker",
        kind: "worker",
        worker: None,
        phase,
        long_lived: true,
        ready_while_restarting: true,
        restart: Restart {
            backoff: Backoff {
                min: Duration::from_millis(100),
                max: 5 * SECOND,
                jitter: Jitter::None,
            },
            max_restarts: 3,
            window: 60 * SECOND,
            stable_after: 10 * SECOND,
        },
        escalate: Escalate::ReadinessOff,
    }
}

/// The machine with a clock that the test turns.
struct Bench {
    machine: Lifecycle,
    now: Instant,
    rng: Rng,
}

impl Bench {
    fn new(phases: usize) -> Self {
        Bench {
            machine: Lifecycle::new(vec![3 * SECOND; phases]),
            now: origin(),
            rng: Rng::seed_from_u64(1),
        }
    }

    fn register(&mut self, rules: TaskRules) -> TaskId {
        self.machine.handle_register(rules, self.now).unwrap().0
    }

    fn end(&mut self, task: TaskId, how: Ended) -> Vec<Action> {
        self.machine
            .handle_ended(task, how, self.now, &mut self.rng)
    }

    fn fire(&mut self, timer: Timer) -> Vec<Action> {
        self.machine.handle_timer(timer, self.now)
    }

    fn shutdown(&mut self) -> Vec<Action> {
        self.machine.handle_shutdown(self.now)
    }

    /// Fails the task and returns how long it waits for its restart, if it does.
    fn fail(&mut self, task: TaskId) -> Option<Duration> {
        let actions = self.end(task, Ended::Panicked);
        self.wait_in(&actions, Timer::Restart(task))
    }

    /// Fails the task and restarts it at its time.
    fn bounce(&mut self, task: TaskId) {
        let wait = self.fail(task).expect("it is restarted");
        self.now += wait;
        self.fire(Timer::Restart(task));
    }

    fn wait_in(&self, actions: &[Action], wanted: Timer) -> Option<Duration> {
        actions.iter().find_map(|action| match action {
            Action::Arm { timer, at } if *timer == wanted => Some(*at - self.now),
            _ => None,
        })
    }
}

#[test]
fn a_failed_task_waits_longer_each_time_until_it_has_been_stable() {
    let mut bench = Bench::new(1);
    let task = bench.register(TaskRules {
        restart: Restart {
            max_restarts: 100,
            ..rules(0).restart
        },
        ..rules(0)
    });
    for (incarnation, ms) in [(1, 100), (2, 200), (3, 400)] {
        let wait = bench.fail(task).unwrap();
        assert_eq!(wait, Duration::from_millis(ms));
        bench.now += wait;
        let start = Action::Start { task, incarnation };
        assert!(bench.fire(Timer::Restart(task)).contains(&start));
        assert_eq!(bench.fire(Timer::Restart(task)), [], "it starts once");
    }
    bench.fire(Timer::Stable(task, 2));
    assert_eq!(
        bench.fail(task),
        Some(Duration::from_millis(800)),
        "2 is long gone"
    );
    bench.fire(Timer::Restart(task));
    bench.fire(Timer::Stable(task, 4));
    assert_eq!(bench.fail(task), Some(Duration::from_millis(100)));
    let counts = bench.machine.counts()["worker"];
    assert_eq!(
        (counts.spawned, counts.restarted, counts.panicked),
        (5, 4, 5)
    );
    assert_eq!(counts.alive, 0);
}

#[test]
fn the_stable_period_is_counted_from_the_relaunch() {
    let mut bench = Bench::new(1);
    let task = bench.register(rules(0));
    let wait = bench.fail(task).unwrap();
    bench.now += wait;
    let actions = bench.fire(Timer::Restart(task));
    assert_eq!(
        bench.wait_in(&actions, Timer::Stable(task, 1)),
        Some(10 * SECOND)
    );
}

#[test]
fn an_unexpected_return_of_a_long_lived_task_is_a_failure_but_not_a_panic() {
    let mut bench = Bench::new(1);
    let task = bench.register(rules(0));
    let actions = bench.end(task, Ended::Finished);
    assert!(bench.wait_in(&actions, Timer::Restart(task)).is_some());
    assert_eq!(bench.machine.counts()["worker"].panicked, 0);

    let once = bench.register(TaskRules {
        long_lived: false,
        ..rules(0)
    });
    assert_eq!(bench.end(once, Ended::Finished), [], "its work is done");
    assert!(
        !bench.machine.tasks().contains_key(&once),
        "it is forgotten"
    );
    assert_eq!(bench.machine.counts()["worker"].canceled, 0);
}

// proves: RWD-2.10
#[test]
fn over_budget_closes_the_gate_retries_at_the_cap_and_opens_once_stable() {
    let mut bench = Bench::new(1);
    let task = bench.register(rules(0));
    for _ in 0..3 {
        bench.bounce(task);
        assert_eq!(
            bench.machine.gate_reason("worker"),
            None,
            "within its budget"
        );
    }
    let actions = bench.end(task, Ended::Panicked);
    assert!(actions.contains(&Action::Escalated(task)));
    assert!(actions.contains(&Action::GateChanged(task)));
    let cap = bench.wait_in(&actions, Timer::Restart(task));
    assert_eq!(cap, Some(5 * SECOND));
    assert_eq!(
        bench.machine.gate_reason("worker"),
        Some("failing again and again")
    );

    bench.now += 5 * SECOND;
    bench.fire(Timer::Restart(task));
    assert!(
        bench.machine.gate_reason("worker").is_some(),
        "a relaunch is no proof"
    );
    let actions = bench.end(task, Ended::Panicked);
    assert!(
        !actions.contains(&Action::Escalated(task)),
        "it is told once"
    );
    bench.now += 5 * SECOND;
    bench.fire(Timer::Restart(task));
    assert_eq!(
        bench.fire(Timer::Stable(task, 5)),
        [Action::GateChanged(task)]
    );
    assert_eq!(bench.machine.gate_reason("worker"), None);
    assert_eq!(bench.machine.stage(), Stage::Running);
}

#[test]
fn restarts_count_against_the_budget_for_one_window_only() {
    let mut bench = Bench::new(1);
    let task = bench.register(TaskRules {
        escalate: Escalate::Exit,
        ..rules(0)
    });
    for _ in 0..20 {
        bench.bounce(task);
        bench.now += 20 * SECOND;
        bench.fire(Timer::Stable(
            task,
            bench.machine.tasks()[&task].incarnation,
        ));
    }
    assert_eq!(
        bench.machine.stage(),
        Stage::Running,
        "three in a minute are allowed"
    );
    bench.bounce(task);
    assert_eq!(bench.fail(task), None, "the fourth within a minute is not");
    assert_eq!(bench.machine.stage(), Stage::Stopped);
}

#[test]
fn escalation_to_exit_drains_the_rest_in_order_and_fails() {
    let mut bench = Bench::new(2);
    let restart = Restart {
        max_restarts: 0,
        ..rules(0).restart
    };
    let flapping = bench.register(TaskRules {
        restart,
        escalate: Escalate::Exit,
        ..rules(1)
    });
    let other = bench.register(rules(0));
    let actions = bench.end(flapping, Ended::Panicked);
    let told: Vec<_> = (actions.into_iter())
        .filter(|action| !matches!(action, Action::Arm { .. }))
        .collect();
    let want = [
        Action::Escalated(flapping),
        Action::Unready,
        Action::EnterPhase(0),
        Action::Stop(other),
    ];
    assert_eq!(told, want);
    let last = bench.end(other, Ended::Finished).pop();
    assert_eq!(last, Some(Action::Stopped(Exit::Escalated(flapping))));
}

#[test]
fn a_task_that_may_not_be_missed_closes_its_gate_until_the_relaunch() {
    let mut bench = Bench::new(1);
    let missed = TaskRules {
        ready_while_restarting: false,
        ..rules(0)
    };
    let (first, second) = (bench.register(missed), bench.register(missed));
    bench.fail(first);
    bench.fail(second);
    assert_eq!(bench.machine.gate_reason("worker"), Some("restarting"));
    let actions = bench.fire(Timer::Restart(first));
    assert!(actions.contains(&Action::GateChanged(first)));
    assert_eq!(
        bench.machine.gate_reason("worker"),
        Some("restarting"),
        "its fellow is still away"
    );
    bench.fire(Timer::Restart(second));
    assert_eq!(bench.machine.gate_reason("worker"), None);
}

// proves: KMS-6.7, DHT-6.6, RWD-6.8, ADM-6.15
#[test]
fn a_phase_ends_with_its_tasks_or_at_its_deadline_and_leftovers_are_aborted_and_counted() {
    let mut bench = Bench::new(2);
    let (quick, stuck, last) = (
        bench.register(rules(0)),
        bench.register(rules(0)),
        bench.register(rules(1)),
    );
    let actions = bench.shutdown();
    assert_eq!(bench.wait_in(&actions, Timer::Phase(0)), Some(3 * SECOND));
    assert!(!actions.contains(&Action::Stop(last)));
    assert_eq!(bench.end(quick, Ended::Finished), []);
    assert_eq!(bench.machine.counts()["worker"].canceled, 1);

    bench.now += 3 * SECOND;
    let actions = bench.fire(Timer::Phase(0));
    let order: Vec<_> = (actions.into_iter())
        .filter(|action| !matches!(action, Action::Arm { .. }))
        .collect();
    let want = [
        Action::Abort(stuck),
        Action::EnterPhase(1),
        Action::Stop(last),
    ];
    assert_eq!(order, want);
    assert_eq!(bench.machine.counts()["worker"].aborted, 1);

    assert_eq!(bench.end(last, Ended::Finished), []);
    assert_eq!(
        bench.machine.stage(),
        Stage::Aborting,
        "the aborted one is not gone yet"
    );
    assert_eq!(
        bench.end(stuck, Ended::Finished),
        [Action::Stopped(Exit::Clean)]
    );
    assert_eq!(
        bench.machine.counts()["worker"].canceled,
        2,
        "an abort is no cancel"
    );
    let records = bench.machine.phases();
    assert_eq!((records[0].drained, records[0].aborted), (1, 1));
    assert_eq!((records[1].drained, records[1].aborted), (1, 0));
    assert_eq!(
        records[0].ended.unwrap() - records[0].entered.unwrap(),
        3 * SECOND
    );
}

// proves: DHT-6.7
#[test]
fn more_requests_to_stop_change_nothing() {
    let mut bench = Bench::new(2);
    let task = bench.register(rules(0));
    bench.shutdown();
    let before = bench.machine.clone();
    assert_eq!(bench.shutdown(), []);
    assert_eq!(bench.machine, before);
    bench.end(task, Ended::Finished);
    assert_eq!(bench.shutdown(), []);
    assert_eq!(bench.machine.stage(), Stage::Stopped);
}

#[test]
fn nothing_starts_once_the_drain_has_begun() {
    let mut bench = Bench::new(2);
    let (waiting, later, stays) = (
        bench.register(rules(0)),
        bench.register(rules(1)),
        bench.register(rules(0)),
    );
    bench.fail(waiting);
    bench.shutdown();
    assert_eq!(bench.fire(Timer::Restart(waiting)), []);
    let early = bench.machine.handle_stop(later, bench.now);
    assert_eq!(early, [], "its phase will come");
    assert_eq!(
        bench.end(later, Ended::Panicked),
        [],
        "a later phase's task neither"
    );
    assert!(bench.machine.handle_register(rules(0), bench.now).is_none());
    assert_eq!(bench.machine.counts()["worker"].alive, 1);
    let last = bench.end(stays, Ended::Panicked).pop();
    assert_eq!(last, Some(Action::Stopped(Exit::Clean)));
    let records = bench.machine.phases();
    assert_eq!(records[0].drained, 0, "a panic is no drain");
}

#[test]
fn a_task_aborted_in_one_phase_and_gone_in_the_next_is_drained_in_neither() {
    let mut bench = Bench::new(2);
    let (stuck, last) = (bench.register(rules(0)), bench.register(rules(1)));
    bench.shutdown();
    bench.fire(Timer::Phase(0));
    assert_eq!(bench.end(stuck, Ended::Finished), []);
    bench.end(last, Ended::Finished);
    let drained: Vec<_> = bench.machine.phases().iter().map(|p| p.drained).collect();
    assert_eq!(drained, [0, 1]);
    assert_eq!(bench.machine.counts()["worker"].canceled, 1);
}

#[test]
fn a_deadline_of_a_phase_that_is_not_on_changes_nothing() {
    let mut bench = Bench::new(2);
    let (first, last) = (bench.register(rules(0)), bench.register(rules(1)));
    assert_eq!(bench.fire(Timer::Phase(0)), []);
    bench.shutdown();
    assert_eq!(bench.fire(Timer::Phase(1)), []);
    bench.end(first, Ended::Finished);
    assert_eq!(bench.fire(Timer::Phase(0)), []);
    assert_eq!(bench.fire(Timer::Phase(1))[0], Action::Abort(last));
}

#[test]
fn a_task_of_an_unknown_phase_is_refused() {
    let mut bench = Bench::new(1);
    assert!(bench.machine.handle_register(rules(1), bench.now).is_none());
}

#[test]
fn a_task_stopped_alone_has_the_time_of_its_phase_and_is_not_restarted() {
    let mut bench = Bench::new(1);
    let (polite, stuck, waiting) = (
        bench.register(rules(0)),
        bench.register(rules(0)),
        bench.register(TaskRules {
            ready_while_restarting: false,
            ..rules(0)
        }),
    );
    for task in [polite, stuck] {
        let actions = bench.machine.handle_stop(task, bench.now);
        assert!(actions.contains(&Action::Stop(task)));
        assert_eq!(bench.wait_in(&actions, Timer::Stop(task)), Some(3 * SECOND));
        assert_eq!(bench.machine.handle_stop(task, bench.now), []);
    }
    bench.fail(waiting);
    let released = bench.machine.handle_stop(waiting, bench.now);
    assert_eq!(released, [Action::GateChanged(waiting)]);
    assert_eq!(bench.fire(Timer::Restart(waiting)), []);
    assert_eq!(bench.end(polite, Ended::Finished), []);
    assert_eq!(bench.fire(Timer::Stop(polite)), []);
    assert_eq!(bench.fire(Timer::Stop(stuck)), [Action::Abort(stuck)]);
    assert_eq!(bench.fire(Timer::Stop(stuck)), []);
    assert_eq!(bench.end(stuck, Ended::Finished), []);
    let counts = bench.machine.counts()["worker"];
    assert_eq!((counts.alive, counts.canceled, counts.aborted), (0, 1, 1));
    assert!(bench.machine.tasks().is_empty());
    assert_eq!(bench.machine.stage(), Stage::Running);
}

#[test]
fn times_beyond_the_clock_are_cut_instead_of_overflowing() {
    let mut machine = Lifecycle::new(vec![Duration::MAX]);
    let now = origin();
    machine.handle_register(rules(0), now).unwrap();
    assert!(!machine.handle_shutdown(now).is_empty());
}

/// What a random task does: lives for so long, then panics or returns; told to stop, it takes so long.
#[derive(Clone, Copy, Debug)]
struct Habit {
    phase: usize,
    fails_after_ms: u64,
    stops_after_ms: Option<u64>,
    exits: bool,
}

fn any_habit() -> impl Strategy<Value = Habit> {
    (
        0..3usize,
        1..20_000u64,
        prop::option::of(0..5_000u64),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(phase, fails_after_ms, stops_after_ms, exits)| Habit {
            phase,
            fails_after_ms,
            stops_after_ms,
            exits,
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    End(TaskId, u32, bool),
    Timer(Timer),
    Shutdown,
}

proptest! {
    // proves: ADM-1.19, EDG-6.4
    #[test]
    fn a_drain_ends_within_the_sum_of_its_phases_and_leaves_no_task(
        habits in prop::collection::vec(any_habit(), 0..8),
        deadlines_ms in prop::collection::vec(0..4_000u64, 3),
        shutdown_ms in 0..60_000u64,
        seed: u64,
    ) {
        let ms = Duration::from_millis;
        let start = origin();
        let mut rng = Rng::seed_from_u64(seed);
        let mut machine = Lifecycle::new(deadlines_ms.iter().copied().map(ms).collect());
        let mut agenda = BTreeSet::from([(start + ms(shutdown_ms), Due::Shutdown)]);
        let mut alive = BTreeMap::new();
        let (mut now, mut began, mut stopped, mut aborts) = (start, None, None, 0);
        let mut pending = Vec::new();
        for habit in &habits {
            let escalate = if habit.exits { Escalate::Exit } else { Escalate::ReadinessOff };
            let rules = TaskRules { escalate, ..rules(habit.phase) };
            pending.extend(machine.handle_register(rules, now).unwrap().1);
        }
        loop {
            for action in std::mem::take(&mut pending) {
                match action {
                    Action::Start { task, incarnation } => {
                        prop_assert!(began.is_none(), "a start while draining");
                        prop_assert!(alive.insert(task, incarnation).is_none(), "it runs twice");
                        let at = now + ms(habits[task.0 as usize].fails_after_ms);
                        agenda.insert((at, Due::End(task, incarnation, true)));
                    }
                    Action::Stop(task) => {
                        // Told to stop, it forgets about failing.
                        let incarnation = alive[&task];
                        agenda.retain(|(_, due)| *due != Due::End(task, incarnation, true));
                        if let Some(wait) = habits[task.0 as usize].stops_after_ms {
                            agenda.insert((now + ms(wait), Due::End(task, incarnation, false)));
                        }
                    }
                    Action::Abort(task) => {
                        aborts += 1;
                        agenda.insert((now, Due::End(task, alive[&task], false)));
                    }
                    Action::Arm { timer, at } => {
                        prop_assert!(at >= now);
                        agenda.insert((at, Due::Timer(timer)));
                    }
                    Action::Unready => began = Some(now),
                    Action::Stopped(_) => stopped = Some(now),
                    Action::EnterPhase(_) | Action::GateChanged(_) | Action::Escalated(_) => {}
                }
            }
            let Some((at, due)) = agenda.pop_first() else { break };
            now = at;
            pending = match due {
                Due::Shutdown => machine.handle_shutdown(now),
                Due::Timer(timer) => machine.handle_timer(timer, now),
                Due::End(task, incarnation, panics) if alive.get(&task) == Some(&incarnation) => {
                    alive.remove(&task);
                    let how = if panics { Ended::Panicked } else { Ended::Finished };
                    machine.handle_ended(task, how, now, &mut rng)
                }
                Due::End(..) => Vec::new(),
            };
        }
        let whole: u64 = deadlines_ms.iter().sum();
        prop_assert!(stopped.unwrap() - began.unwrap() <= ms(whole));
        prop_assert!(alive.is_empty() && machine.tasks().is_empty());
        let counts = machine.counts().get("worker").copied().unwrap_or_default();
        prop_assert_eq!(counts.aborted, aborts);
        prop_assert_eq!(counts.alive, 0);
        prop_assert_eq!(counts.spawned, habits.len() as u64 + counts.restarted);
    }
}
