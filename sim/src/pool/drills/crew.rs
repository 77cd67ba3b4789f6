//! A running supervisor whose tasks do as they are told: what it shows, counts and tells is what the tasks themselves saw.
//!
//! Tasks are started and stopped one by one, fail within their budget and beyond it, and the whole is stopped by the latch,
//! by news on the bus or by a task that is given up. Which decision is right is judged by `lifecycle`; here it is whether
//! each is carried out.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ron_core::{
    Env, Join, Shutdown,
    backoff::{Backoff, Jitter},
    bus::{Bus, Subscriber},
    lifecycle::{Escalate, Restart, TaskId},
    readiness::Readiness,
    supervisor::{
        Draining, PhaseId, Report, Supervisor, SupervisorHandle, SupervisorView, TaskContext,
        TaskSpec,
    },
    telemetry::Telemetry,
};
use tokio::sync::Notify;

use super::{
    Bench, Verdict, agree, demand,
    supervisor::{LATE, TASKS},
    supervisor_script::{Leaves, Log, Pulse, Told},
};

pub const KIND: &str = "puppet";
pub const PHASES: [&str; 2] = ["first", "second"];

pub async fn drill(bench: &mut Bench) -> Verdict {
    let mut crew = Crew::start(bench)?;
    let played = crew.play(bench).await;
    let ended = crew.end(bench).await;
    played.and(ended)
}

/// A phase that began, and in which one the status said it was.
type Entered = (&'static str, Option<&'static str>);

/// A task and what is known of it.
pub struct Puppet {
    pub id: TaskId,
    pub fails: Arc<Notify>,
    /// It hears no stop.
    pub deaf: bool,
    pub failures: u32,
    /// It was stopped, and is gone for good.
    pub stopped: bool,
}

pub struct Crew {
    pub env: Env,
    pub pulse: Pulse,
    pub beating: Join<()>,
    pub log: Log,
    pub bus: Bus,
    pub news: Subscriber,
    pub readiness: Readiness,
    pub telemetry: Telemetry,
    pub view: SupervisorView,
    pub handle: SupervisorHandle,
    pub phases: Vec<PhaseId>,
    pub entered: Arc<Mutex<Vec<Entered>>>,
    pub stop: Shutdown,
    pub running: Option<Join<Report>>,
    pub deadline: Duration,
    pub spec: TaskSpec,
    pub puppets: Vec<Puppet>,
    pub gives_up: bool,
}

impl Crew {
    fn start(bench: &mut Bench) -> Result<Self, String> {
        let env = bench.env.clone();
        let (bus, pulse) = (Bus::new(), Pulse::new());
        let beating = env.spawn("drill", pulse.clone().beat(env.clone()));
        let readiness = Readiness::new(env.clone(), bus.clone());
        let mut supervisor = Supervisor::new(env.clone(), bus.clone(), readiness.clone());
        let (view, deadline) = (supervisor.view(), bench.ms(15, 40));
        let entered: Arc<Mutex<Vec<_>>> = Arc::default();
        let mut phases = Vec::new();
        for name in PHASES {
            let (view, entered) = (view.clone(), entered.clone());
            phases.push(supervisor.phase(name, deadline, move || {
                let at = view.status().phase;
                entered.lock().unwrap().push((name, at));
            }));
        }
        let telemetry = Telemetry::new("drill", "");
        telemetry.watch_tasks(Arc::new(view.clone()));
        let (handle, stop, news) = (supervisor.handle(), Shutdown::new(), bus.subscribe());
        agree("state before the start", view.status().state, "starting")?;
        agree("ready before the start", readiness.is_ready(), false)?;
        let wait = bench.ms(8, 20);
        let spec = TaskSpec {
            ready_while_restarting: bench.one_in(2),
            restart: Restart {
                backoff: Backoff {
                    min: wait,
                    max: wait,
                    jitter: Jitter::None,
                },
                max_restarts: bench.pick(0, 2) as u32,
                window: Duration::from_secs(60),
                stable_after: bench.one_of(&[
                    Duration::from_millis(25),
                    Duration::from_secs(30),
                    Duration::from_secs(30),
                ]),
            },
            escalate: match bench.one_in(4) {
                true => Escalate::Exit,
                false => Escalate::ReadinessOff,
            },
            ..TaskSpec::new("", KIND, phases[0])
        };
        let running = env.spawn("drill", supervisor.run(stop.clone()));
        Ok(Crew {
            log: Log::new(&env),
            env,
            pulse,
            beating,
            bus,
            news,
            readiness,
            telemetry,
            view,
            handle,
            phases,
            entered,
            stop,
            running: Some(running),
            deadline,
            spec,
            puppets: Vec::new(),
            gives_up: false,
        })
    }

    /// Looks again and again; broken if it does not hold within this and what may be late.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut() -> bool,
    ) -> Result<Instant, String> {
        let began = self.env.now();
        loop {
            if holds() {
                return Ok(self.env.now());
            }
            self.env.sleep(Duration::from_millis(1)).await;
            if self.env.now() - began <= limit + LATE + self.pulse.missed() * 2 {
                continue;
            }
            self.held_up().await;
            let passed = self.env.now() - began;
            if passed > limit + LATE + self.pulse.missed() * 2 {
                return Err(format!("{what}: not so after {passed:?}"));
            }
        }
    }

    // ------------------------------------------------------------------------------------- play

    async fn play(&mut self, bench: &mut Bench) -> Verdict {
        self.begin(bench).await?;
        for _ in 0..bench.pick(3, 7) {
            if self.gives_up {
                return Ok(());
            }
            let who = bench.index(self.puppets.len());
            match bench.pick(0, 5) {
                0 => self.begin(bench).await?,
                1..=3 => self.fail(who, bench).await?,
                _ => self.stop_one(who).await?,
            }
            self.counted().await?;
        }
        Ok(())
    }

    async fn begin(&mut self, bench: &mut Bench) -> Verdict {
        let who = self.puppets.len();
        if who == TASKS.len() {
            return Ok(());
        }
        let (fails, deaf, log) = (Arc::new(Notify::new()), bench.one_in(3), self.log.clone());
        let spec = TaskSpec {
            name: TASKS[who],
            phase: bench.one_of(&self.phases),
            ..self.spec
        };
        let told = fails.clone();
        let started = self.handle.start(spec, move |context| {
            live(who, deaf, told.clone(), log.clone(), context)
        });
        let id = started.await.map_err(|Draining| "start: refused")?;
        self.puppets.push(Puppet {
            id,
            fails,
            deaf,
            failures: 0,
            stopped: false,
        });
        self.until("a task that was asked for lives", Duration::ZERO, || {
            self.starts(who) == 1
        })
        .await?;
        self.shown(who, Some(("alive", 0)))
    }

    fn starts(&self, who: usize) -> usize {
        self.log.count(who, |told| matches!(told, Told::Started(_)))
    }

    /// What the status says of a task: its state, and how often it came back.
    fn status(&self, who: usize) -> Option<(&'static str, u32)> {
        let tasks = self.view.status().tasks;
        let task = tasks.iter().find(|task| task.id == self.puppets[who].id)?;
        let named = task.name == TASKS[who] && task.kind == KIND;
        named.then_some((task.state, task.restarts))
    }

    fn shown(&self, who: usize, expected: Option<(&'static str, u32)>) -> Verdict {
        agree("status of a task", self.status(who), expected)
    }

    fn gate(&self, who: usize) -> Option<String> {
        let name = format!("task:{}", TASKS[who]);
        let missing = self.readiness.status().missing;
        missing
            .into_iter()
            .find_map(|gate| (gate.gate == name).then_some(gate.reason))
    }

    /// It fails, waits and comes back, with its gate as its budget says; or the process gives up.
    async fn fail(&mut self, who: usize, bench: &mut Bench) -> Verdict {
        if self.puppets[who].stopped {
            return Ok(());
        }
        let Restart {
            backoff,
            max_restarts,
            stable_after,
            ..
        } = self.spec.restart;
        let lives = self.starts(who);
        self.puppets[who].fails.notify_one();
        self.puppets[who].failures += 1;
        let failures = self.puppets[who].failures;
        let beyond = failures > max_restarts;
        self.until("a task failed", Duration::ZERO, || {
            self.log.count(who, |told| told == Told::Failed) as u32 == failures
        })
        .await?;
        if beyond && self.spec.escalate == Escalate::Exit {
            self.gives_up = true;
            return Ok(());
        }
        if bench.one_in(3) {
            return self.stop_in_wait(who, lives).await;
        }
        let back = self
            .until("a task is back", backoff.max, || self.starts(who) > lives)
            .await?;
        let waited = self.last_wait(who);
        demand(waited >= backoff.min, || {
            format!("a task was back after {waited:?}, before {:?}", backoff.min)
        })?;
        self.shown(who, Some(("alive", lives as u32)))?;
        if !beyond {
            return agree("the gate of a task that is back", self.gate(who), None);
        }
        let closed = Some("failing again and again".to_owned());
        let flapping = self.gate(who);
        if stable_after > Duration::from_secs(1) {
            return agree("the gate beyond the budget", flapping, closed);
        }
        let open = || self.gate(who).is_none();
        let opened = self.until("it is well again", stable_after, open).await?;
        if self.held_up().await {
            return Ok(());
        }
        agree("the gate beyond the budget", flapping, closed)?;
        let lived = opened - back;
        demand(lived + Duration::from_millis(4) >= stable_after, || {
            format!("well again after {lived:?}, before {stable_after:?}")
        })
    }

    /// From the last failure to the last start.
    fn last_wait(&self, who: usize) -> Duration {
        let lines = self.log.lines();
        let last = |wanted: fn(Told) -> bool| {
            let mut of = lines.iter().rev().filter(|line| line.who == who);
            of.find(|line| wanted(line.what)).map(|line| line.at)
        };
        let back = last(|told| matches!(told, Told::Started(_)));
        let failed = last(|told| told == Told::Failed);
        back.zip(failed)
            .map_or(Duration::ZERO, |(back, failed)| back - failed)
    }

    /// Whether something kept the node from running on time. The pulse is given the time to notice.
    pub async fn held_up(&self) -> bool {
        for _ in 0..3 {
            self.env.sleep(Duration::from_millis(2)).await;
        }
        self.pulse.missed() > Duration::from_millis(5)
    }

    /// Stopped while it waits, it is gone at once. Who came back meanwhile is told like any other.
    async fn stop_in_wait(&mut self, who: usize, lives: usize) -> Verdict {
        let waits = || {
            self.status(who)
                .is_some_and(|(state, _)| state == "waiting")
        };
        let waits = || waits() || self.starts(who) > lives;
        self.until("a task waits", Duration::ZERO, waits).await?;
        let asked = self.env.now();
        self.handle.stop(self.puppets[who].id).await;
        self.puppets[who].stopped = true;
        let gone = || self.status(who).is_none();
        self.until("stopped in its wait", Duration::ZERO, || {
            gone() || self.starts(who) > lives
        })
        .await?;
        if self.starts(who) > lives {
            return self.is_gone(who, asked).await;
        }
        agree("the gate of one that is gone", self.gate(who), None)
    }

    async fn stop_one(&mut self, who: usize) -> Verdict {
        let asked = self.env.now();
        let before = self.starts(who);
        self.handle.stop(self.puppets[who].id).await;
        if self.puppets[who].stopped {
            // Asked again, nothing happens.
            return agree("a stop of one that is gone", self.starts(who), before);
        }
        self.puppets[who].stopped = true;
        self.is_gone(who, asked).await
    }

    /// Who hears is gone at once, who does not when its time is over.
    async fn is_gone(&self, who: usize, asked: Instant) -> Verdict {
        let gone = || self.status(who).is_none();
        let at = self.until("stopped alone", self.deadline, gone).await?;
        let heard = self.log.count(who, |told| told == Told::Stopped);
        let deaf = self.puppets[who].deaf;
        let late = self.held_up().await;
        demand(heard == usize::from(!deaf) || late, || {
            format!("a task (deaf {deaf}) was told to stop {heard} times")
        })?;
        let took = at - asked;
        demand(!deaf || took >= self.deadline, || {
            format!("aborted after {took:?}, before {:?}", self.deadline)
        })?;
        demand(deaf || late || took < self.deadline, || {
            format!("one that hears was gone after {took:?}")
        })?;
        agree("the gate of one that is gone", self.gate(who), None)
    }
}

/// One life of a puppet.
async fn live(who: usize, deaf: bool, fails: Arc<Notify>, log: Log, context: TaskContext) {
    let _leaves = Leaves(log.clone(), who);
    log.tell(who, Told::Started(context.incarnation));
    let heard = tokio::select! {
        biased;
        () = fails.notified() => false,
        () = context.stop.wait(), if !deaf => true,
    };
    if heard {
        return log.tell(who, Told::Stopped);
    }
    log.tell(who, Told::Failed);
    // Without the hook that would print it: it is meant.
    std::panic::resume_unwind(Box::new("on purpose"));
}
