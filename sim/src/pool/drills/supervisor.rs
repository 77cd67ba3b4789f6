//! A small supervisor with tasks that keep to a script: who starts, who comes back and when, who is told to stop in which
//! order, and whether the report counts it all.

use std::{sync::Arc, time::Duration};

use ron_core::{
    Shutdown,
    backoff::Backoff,
    bus::Bus,
    lifecycle::{Escalate, Restart},
    readiness::Readiness,
    supervisor::{PhaseId, Supervisor, TaskSpec},
};

use super::{
    Bench, Verdict, agree, demand,
    supervisor_checked::Checked,
    supervisor_script::{Log, Part, Pulse, Told, live},
};

/// More than anything that is late without being wrong: the point `supervisor.restart_late` and a timer or two.
pub const LATE: Duration = Duration::from_millis(60);
pub const PHASES: [&str; 3] = ["intake", "work", "store"];
pub const TASKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// What is declared and what is to come of it.
pub struct Script {
    pub deadlines: Vec<Duration>,
    pub tasks: Vec<(usize, Part)>,
    pub restart: Restart,
    /// The process is to give up when a task is beyond its budget.
    exits: bool,
}

pub async fn drill(bench: &mut Bench) -> Verdict {
    let script = Arc::new(Script::draw(bench));
    let (log, pulse, stop) = (Log::new(&bench.env), Pulse::new(), Shutdown::new());
    let env = bench.env.clone();
    let beating = env.spawn("drill", pulse.clone().beat(env.clone()));
    let bus = Bus::new();
    let mut news = bus.subscribe();
    let readiness = Readiness::new(env.clone(), bus.clone());
    let mut supervisor = Supervisor::new(env.clone(), bus, readiness.clone());
    script.declare(&mut supervisor, &log);
    let running = env.spawn("drill", supervisor.run(stop.clone()));
    let played = script.play(bench, &log, &pulse, &stop, &readiness).await;
    stop.trigger();
    let asked = bench.env.now();
    let report = running.await;
    // The pulse is to have noticed whatever held up the others.
    for _ in 0..3 {
        bench.env.sleep(Duration::from_millis(2)).await;
    }
    beating.abort();
    played?;
    let report = report.map_err(|_| "run: it ended without a report".to_owned())?;
    let checked = Checked {
        script: &script,
        lines: &log.lines(),
        missed: pulse.missed(),
    };
    checked.restarts()?;
    checked.order()?;
    checked.report(&report, asked)?;
    agree("ready after the end", readiness.is_ready(), false)?;
    let mut told = Vec::new();
    while let Some(Some(event)) = futures_util::FutureExt::now_or_never(news.recv()) {
        told.push(event);
    }
    checked.news(&told)
}

impl Script {
    fn draw(bench: &mut Bench) -> Self {
        let phases = bench.pick(1, 3) as usize;
        let max_restarts = bench.pick(1, 4) as u32;
        let mut tasks = Vec::new();
        for _ in 0..bench.pick(2, 5) {
            let part = match bench.pick(0, 6) {
                0..=1 => Part::Steady(bench.ms(0, 6)),
                2..=3 => Part::Flaky {
                    times: bench.pick(1, u64::from(max_restarts) + 1) as u32,
                    after: bench.ms(0, 3),
                    returns: bench.one_in(2),
                },
                6 => Part::Clumsy,
                4 => Part::Stubborn,
                _ => Part::Once(bench.ms(0, 5)),
            };
            tasks.push((bench.index(phases), part));
        }
        let low = bench.ms(1, 10);
        Script {
            deadlines: (0..phases).map(|_| bench.ms(20, 50)).collect(),
            tasks,
            restart: Restart {
                backoff: Backoff::band(low, low * 2, low * 6),
                max_restarts,
                window: Duration::from_secs(60),
                stable_after: Duration::from_secs(30),
            },
            exits: bench.one_in(3),
        }
    }

    fn declare(&self, supervisor: &mut Supervisor, log: &Log) {
        let mut phases: Vec<PhaseId> = Vec::new();
        for (n, deadline) in self.deadlines.iter().enumerate() {
            let hook = log.clone();
            let entered = move || hook.tell(PHASE + n, Told::Phase);
            phases.push(supervisor.phase(PHASES[n], *deadline, entered));
        }
        for (who, (phase, part)) in self.tasks.iter().copied().enumerate() {
            let spec = TaskSpec {
                long_lived: !matches!(part, Part::Once(_)),
                restart: self.restart,
                escalate: match self.exits {
                    true => Escalate::Exit,
                    false => Escalate::ReadinessOff,
                },
                ..TaskSpec::new(TASKS[who], "drilled", phases[phase])
            };
            let log = log.clone();
            supervisor.task(spec, move |context| live(part, who, log.clone(), context));
        }
    }

    pub fn beyond_budget(&self, part: Part) -> bool {
        matches!(part, Part::Flaky { times, .. } if times > self.restart.max_restarts)
    }

    /// The first task that makes the process give up.
    pub fn gives_up(&self) -> bool {
        self.exits && self.tasks.iter().any(|(_, part)| self.beyond_budget(*part))
    }

    /// Waits until every task is in the state that its part leads to, or the process has given up.
    async fn play(
        &self,
        bench: &mut Bench,
        log: &Log,
        pulse: &Pulse,
        stop: &Shutdown,
        readiness: &Readiness,
    ) -> Verdict {
        let began = bench.env.now();
        loop {
            bench.env.sleep(Duration::from_millis(2)).await;
            let passed = bench.env.now() - began;
            if stop.is_triggered() {
                return demand(self.gives_up(), || {
                    "it stopped, though nobody asked".to_owned()
                });
            }
            let unsettled = self.unsettled(log);
            if unsettled.is_none() && !self.gives_up() {
                break;
            }
            // All backoffs at their longest, one after the other.
            let longest = self.restart.backoff.max * 6 + LATE * 8;
            demand(passed <= longest + pulse.missed() * 2, || {
                format!(
                    "after {passed:?}: {}",
                    unsettled.unwrap_or("it runs, though it gave up".into())
                )
            })?;
        }
        let flapping = self.tasks.iter().any(|(_, part)| self.beyond_budget(*part));
        agree("ready", readiness.is_ready(), !flapping)?;
        let span = bench.ms(0, 8);
        bench.env.sleep(span).await;
        Ok(())
    }

    fn unsettled(&self, log: &Log) -> Option<String> {
        for (who, (_, part)) in self.tasks.iter().enumerate() {
            let (lives, ends) = match part {
                Part::Flaky { times, .. } => (*times as usize + 1, *times as usize),
                Part::Once(_) => (1, 1),
                Part::Steady(_) | Part::Stubborn | Part::Clumsy => (1, 0),
            };
            let started = log.count(who, |told| matches!(told, Told::Started(_)));
            let gone = log.count(who, |told| told == Told::Gone);
            if (started, gone) != (lives, ends) {
                return Some(format!(
                    "{part:?}: expected {lives} starts and {ends} ends, came {started} and {gone}"
                ));
            }
        }
        None
    }
}

/// Phases are told apart from tasks in the log.
pub const PHASE: usize = 100;
