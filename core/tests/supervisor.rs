//! The supervisor on a paused clock: real tasks, real panics, no wall time.

mod support;

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use ron_core::{
    Env, Join,
    bus::{Bus, KernelEvent, Subscriber},
    lifecycle::{Escalate, Restart},
    readiness::Readiness,
    shutdown::Shutdown,
    supervisor::{
        Draining, Exit, PhaseId, Report, Supervisor, SupervisorView, TaskContext, TaskSpec,
    },
    view::{TaskCounts, TaskView},
};
use support::{in_world, pass};

const SECOND: Duration = Duration::from_secs(1);

/// A supervisor about to run, and all that a test wants to look at.
struct Plant {
    env: Env,
    bus: Bus,
    readiness: Readiness,
    shutdown: Shutdown,
    supervisor: Supervisor,
}

impl Plant {
    fn new(env: Env) -> Self {
        let bus = Bus::new();
        let readiness = Readiness::new(env.clone(), bus.clone());
        Plant {
            supervisor: Supervisor::new(env.clone(), bus.clone(), readiness.clone()),
            shutdown: Shutdown::new(),
            env,
            bus,
            readiness,
        }
    }

    fn phase(&mut self, name: &'static str) -> PhaseId {
        self.supervisor.phase(name, 3 * SECOND, || {})
    }

    fn run(self) -> Running {
        let view = self.supervisor.view();
        let run = self.supervisor.run(self.shutdown.clone());
        Running {
            news: self.bus.subscribe(),
            report: self.env.spawn("supervisor", run),
            env: self.env,
            bus: self.bus,
            readiness: self.readiness,
            shutdown: self.shutdown,
            view,
        }
    }
}

struct Running {
    env: Env,
    bus: Bus,
    readiness: Readiness,
    shutdown: Shutdown,
    view: SupervisorView,
    news: Subscriber,
    report: Join<Report>,
}

impl Running {
    async fn stop(self) -> Report {
        self.shutdown.trigger();
        self.report.await.expect("the supervisor itself never dies")
    }

    fn counts(&self, kind: &str) -> TaskCounts {
        self.view.tasks()[kind]
    }

    fn news(&mut self) -> Vec<KernelEvent> {
        std::iter::from_fn(|| self.news.recv().now_or_never().flatten()).collect()
    }
}

/// Stops when told to.
async fn obedient(context: TaskContext) {
    context.stop.wait().await;
}

/// Adds a line to a shared log when dropped.
struct Leaves(&'static str, Log);
type Log = Arc<Mutex<Vec<&'static str>>>;

impl Drop for Leaves {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

// proves: RWD-6.4, ADM-2.39, ADM-6.9
#[test]
fn phases_drain_in_order_each_hook_before_its_tasks_and_readiness_falls_first() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let log = Log::default();
        let mut phases = Vec::new();
        for (name, hook) in [("intake", "intake begins"), ("audit", "audit begins")] {
            let (log, readiness) = (log.clone(), plant.readiness.clone());
            phases.push(plant.supervisor.phase(name, 3 * SECOND, move || {
                assert!(!readiness.is_ready());
                log.lock().unwrap().push(hook);
            }));
        }
        for (phase, name, takes) in [(1, "appender", 50), (0, "listener", 400)] {
            let log = log.clone();
            plant
                .supervisor
                .task(TaskSpec::new(name, name, phases[phase]), move |context| {
                    let leaves = Leaves(name, log.clone());
                    async move {
                        context.stop.wait().await;
                        pass(&context.env, takes).await;
                        drop(leaves);
                    }
                });
        }
        let running = plant.run();
        assert_eq!(running.view.status().state, "starting");
        assert!(!running.readiness.is_ready());
        pass(&running.env, 1).await;
        assert!(running.readiness.is_ready());
        assert_eq!(running.view.status().state, "running");
        assert_eq!(running.view.status().tasks.len(), 2);

        running.shutdown.trigger();
        pass(&running.env, 1).await;
        assert_eq!(running.readiness.status().missing[0].reason, "draining");
        assert_eq!(running.view.status().phase, Some("intake"));
        let view = running.view.clone();
        let report = running.stop().await;
        let order = ["intake begins", "listener", "audit begins", "appender"];
        assert_eq!(*log.lock().unwrap(), order);
        assert_eq!(report.to_string(), "drained 2 tasks in 0.5 s, aborted 0");
        assert_eq!((report.exit_code(), report.exit), (0, Exit::Clean));
        assert_eq!(report.phases[0].name, "intake");
        assert_eq!(report.phases[0].took, Duration::from_millis(400));
        assert_eq!(view.status().state, "stopped");
        assert_eq!(view.tasks()["listener"].canceled, 1);
    });
}

// proves: KMS-1.8, KMS-6.7, EDG-6.4, DHT-6.6, RWD-6.8, ADM-6.14, ADM-6.15, ADM-8.8
#[test]
fn a_straggler_is_aborted_at_the_deadline_and_gone_when_run_returns() {
    in_world(|env, trace| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let log = Log::default();
        let gone = log.clone();
        plant.supervisor.workers(
            2,
            TaskSpec::new("signer", "worker", drain),
            move |context| {
                let leaves = Leaves("gone", gone.clone());
                async move {
                    let _leaves = leaves;
                    if context.worker == 0 {
                        context.stop.wait().await;
                    } else {
                        pending::<()>().await;
                    }
                }
            },
        );
        let mut running = plant.run();
        pass(&running.env, 1).await;
        let began = running.env.now();
        running.shutdown.trigger();
        pass(&running.env, 2_998).await;
        assert_eq!(
            running.counts("worker").aborted,
            0,
            "it has until its deadline"
        );
        let (env, view, news) = (running.env.clone(), running.view.clone(), running.news());
        assert!(!news.contains(&KernelEvent::Aborted {
            task: "signer-1".into()
        }));
        let mut late = running.bus.subscribe();
        let report = running.stop().await;
        assert_eq!(env.now() - began, 3 * SECOND);
        assert_eq!(*log.lock().unwrap(), ["gone", "gone"]);
        assert_eq!(
            report.to_string(),
            "drained 1 task in 3.0 s, aborted 1 (signer-1)"
        );
        let counts = view.tasks()["worker"];
        assert_eq!((counts.alive, counts.canceled, counts.aborted), (0, 1, 1));
        let aborted = KernelEvent::Aborted {
            task: "signer-1".into(),
        };
        assert_eq!(late.recv().await, Some(aborted));
        assert!(
            trace
                .lock()
                .unwrap()
                .contains(&"task.aborted signer-1".to_owned())
        );
    });
}

#[test]
fn killed_workers_are_replaced_after_their_backoff_and_readiness_is_kept() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let spec = TaskSpec::new("signer", "worker", drain);
        plant.supervisor.workers(4, spec, obedient);
        let mut running = plant.run();
        pass(&running.env, 1).await;
        let tasks = running.view.status().tasks;
        assert!(running.view.kill(tasks[0].id) && running.view.kill(tasks[3].id));
        pass(&running.env, 99).await;
        assert_eq!(
            running.counts("worker").alive,
            2,
            "no sooner than the backoff allows"
        );
        assert!(!running.view.kill(tasks[0].id), "it does not live");
        assert!(running.readiness.is_ready());
        pass(&running.env, 301).await;
        let counts = running.counts("worker");
        assert_eq!((counts.alive, counts.panicked, counts.restarted), (4, 2, 2));
        let restarted = |task: &str| KernelEvent::Restarted {
            task: task.into(),
            attempt: 1,
        };
        let news = running.news();
        assert!(news.contains(&restarted("signer-0")) && news.contains(&restarted("signer-3")));
        assert_eq!(running.view.status().tasks[0].restarts, 1);
        assert_eq!(running.stop().await.drained, 4);
    });
}

#[test]
fn readiness_falls_with_a_worker_that_may_not_be_missed_and_is_back_at_its_relaunch() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let spec = TaskSpec {
            ready_while_restarting: false,
            ..TaskSpec::new("filler", "worker", drain)
        };
        plant.supervisor.workers(2, spec, obedient);
        let running = plant.run();
        pass(&running.env, 1).await;
        running.view.kill(running.view.status().tasks[1].id);
        pass(&running.env, 1).await;
        let missing = running.readiness.status().missing;
        assert_eq!(
            (missing[0].gate.as_str(), missing.len()),
            ("task:filler", 1)
        );
        assert_eq!(missing[0].reason, "restarting");
        while running.counts("worker").alive < 2 {
            assert!(!running.readiness.is_ready());
            pass(&running.env, 1).await;
        }
        assert!(running.readiness.is_ready());
        assert_eq!(running.stop().await.panics, 1);
    });
}

#[test]
fn a_panic_in_factory_body_or_destructor_never_reaches_the_runtime() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "in the destructor");
        }
    }
    in_world(|env, trace| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        plant
            .supervisor
            .task(TaskSpec::new("factory", "a", drain), |context| {
                assert!(context.incarnation > 0, "in the factory");
                obedient(context)
            });
        plant
            .supervisor
            .task(TaskSpec::new("body", "b", drain), |context| async move {
                pass(&context.env, 1).await;
                assert!(context.incarnation > 0, "in the body");
                obedient(context).await;
            });
        plant
            .supervisor
            .task(TaskSpec::new("return", "c", drain), |context| async move {
                let _grenade = (context.incarnation == 0).then(|| Grenade);
                if context.incarnation > 0 {
                    obedient(context).await;
                }
            });
        plant
            .supervisor
            .task(TaskSpec::new("abort", "d", drain), |_| async {
                let _grenade = Grenade;
                pending::<()>().await;
            });
        let running = plant.run();
        pass(&running.env, 1_000).await;
        for kind in ["a", "b", "c"] {
            let counts = running.counts(kind);
            assert_eq!(
                (counts.panicked, counts.restarted, counts.alive),
                (1, 1, 1),
                "{kind}"
            );
        }
        let report = running.stop().await;
        assert_eq!((report.drained, report.aborted, report.panics), (3, 1, 3));
        assert!(
            trace
                .lock()
                .unwrap()
                .contains(&"task.failed body".to_owned())
        );
    });
}

#[test]
fn a_task_over_its_budget_ends_the_process_with_failure_and_tells_everyone() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let starts = Arc::new(AtomicU32::new(0));
        let counter = starts.clone();
        let spec = TaskSpec {
            escalate: Escalate::Exit,
            ..TaskSpec::new("listener", "listener", drain)
        };
        plant.supervisor.task(spec, move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            async {}
        });
        plant
            .supervisor
            .task(TaskSpec::new("worker", "worker", drain), obedient);
        let mut running = plant.run();
        running.shutdown.wait().await;
        let news = running.news();
        let escalated = KernelEvent::Escalated {
            task: "listener".into(),
        };
        assert!(news.contains(&escalated));
        let reason = "listener failed beyond its restart budget".to_owned();
        assert!(news.contains(&KernelEvent::Shutdown { reason }));
        let report = running.report.await.unwrap();
        assert_eq!(starts.load(Ordering::Relaxed), 11, "ten restarts a minute");
        assert_eq!((report.exit_code(), report.drained), (1, 1));
        assert_eq!(report.exit, Exit::Escalated("listener".into()));
        let line = report.to_string();
        assert!(
            line.ends_with("; listener failed beyond its restart budget"),
            "{line}"
        );
    });
}

// proves: RWD-2.10
#[test]
fn readiness_falls_when_a_task_goes_over_its_budget_and_returns_once_it_is_stable() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let spec = TaskSpec {
            restart: Restart {
                max_restarts: 5,
                ..Restart::default()
            },
            ..TaskSpec::new("compute", "worker", drain)
        };
        plant.supervisor.task(spec, |context| async move {
            assert!(context.incarnation >= 6, "not yet");
            obedient(context).await;
        });
        let mut running = plant.run();
        pass(&running.env, 1).await;
        while running.counts("worker").panicked < 6 {
            assert!(running.readiness.is_ready());
            pass(&running.env, 1).await;
        }
        assert_eq!(running.readiness.status().missing[0].gate, "task:compute");
        assert!(running.news().contains(&KernelEvent::Escalated {
            task: "compute".into()
        }));
        while running.counts("worker").alive == 0 {
            pass(&running.env, 1).await;
        }
        pass(&running.env, 4_990).await;
        assert!(!running.readiness.is_ready());
        pass(&running.env, 20).await;
        assert!(running.readiness.is_ready());
        assert_eq!(running.stop().await.exit, Exit::Clean);
    });
}

// proves: KMS-6.1, DHT-6.1, EDG-6.1, RWD-6.1, ADM-6.2, DHT-6.7
#[test]
fn a_shutdown_on_the_bus_drains_too_and_is_announced_once() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        plant
            .supervisor
            .task(TaskSpec::new("worker", "worker", drain), obedient);
        let mut running = plant.run();
        pass(&running.env, 1).await;
        let asked = KernelEvent::Shutdown {
            reason: "an operator asked".into(),
        };
        running.bus.publish(asked.clone());
        running.bus.publish(asked.clone());
        running.shutdown.wait().await;
        let told = |event: &&KernelEvent| matches!(event, KernelEvent::Shutdown { .. });
        assert_eq!(
            running.news().iter().filter(told).count(),
            2,
            "both are the operator's"
        );
        assert_eq!(running.report.await.unwrap().drained, 1);
    });
}

#[test]
fn a_latch_that_fired_before_the_start_stops_the_process_at_once() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        plant
            .supervisor
            .task(TaskSpec::new("worker", "worker", drain), obedient);
        plant.shutdown.trigger();
        let running = plant.run();
        let report = running.report.await.unwrap();
        assert_eq!((report.drained, report.took), (1, Duration::ZERO));
    });
}

// proves: KMS-1.11, ADM-1.30, RWD-1.11
#[test]
fn dropping_a_running_supervisor_aborts_its_tasks_without_waiting() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let log = Log::default();
        let gone = log.clone();
        plant
            .supervisor
            .task(TaskSpec::new("worker", "worker", drain), move |_| {
                let leaves = Leaves("gone", gone.clone());
                async move {
                    let _leaves = leaves;
                    pending::<()>().await;
                }
            });
        let env = plant.env.clone();
        let run = plant.supervisor.run(Shutdown::new());
        assert!(env.timeout(SECOND, run).await.is_err());
        pass(&env, 1).await;
        assert_eq!(*log.lock().unwrap(), ["gone"]);
    });
}

#[test]
fn tasks_can_be_started_and_stopped_while_it_runs_but_not_while_it_drains() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = plant.phase("drain");
        let spec = TaskSpec::new("sampler", "sampler", drain);
        plant
            .supervisor
            .task(TaskSpec::new("slow", "slow", drain), |context| async move {
                context.stop.wait().await;
                pass(&context.env, 100).await;
            });
        let handle = plant.supervisor.handle();
        let running = plant.run();
        let first = handle.start(spec, obedient).await.unwrap();
        let stuck = handle.start(spec, |_| pending()).await.unwrap();
        assert_eq!(running.counts("sampler").alive, 2);
        assert!(running.readiness.is_ready());
        handle.stop(first).await;
        handle.stop(stuck).await;
        pass(&running.env, 10).await;
        assert_eq!(running.counts("sampler").alive, 1);
        pass(&running.env, 3_000).await;
        let counts = running.counts("sampler");
        assert_eq!((counts.alive, counts.canceled, counts.aborted), (0, 1, 1));
        assert_eq!(
            running.view.status().tasks.len(),
            1,
            "what has ended is forgotten"
        );
        running.shutdown.trigger();
        pass(&running.env, 1).await;
        assert_eq!(handle.start(spec, obedient).await, Err(Draining));
        let report = running.stop().await;
        assert_eq!((report.drained, report.aborted), (1, 0));
        assert_eq!(handle.start(spec, obedient).await, Err(Draining));
    });
}

#[test]
fn a_hook_that_panics_does_not_hold_up_the_drain() {
    in_world(|env, _| async move {
        let mut plant = Plant::new(env);
        let drain = (plant.supervisor).phase("drain", SECOND, || panic!("in the hook"));
        plant
            .supervisor
            .task(TaskSpec::new("worker", "worker", drain), obedient);
        let running = plant.run();
        pass(&running.env, 1).await;
        let report = running.stop().await;
        assert_eq!((report.drained, report.aborted), (1, 0));
    });
}
