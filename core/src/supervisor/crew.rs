//! The supervisor at work: waits for what happens, asks the machine, does what it says.
//!
//! Always: the lock on the machine is never held while an action is done or anything is awaited.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Exit, Factory, PROCESS_GATE, Phase, PhaseReport, Report, SupervisorView, TaskContext,
    commands::{Command, Receiver},
    late_rng::LateRng,
    status::label,
    tracked::{Death, Endings, Killer, Tracked},
};
use crate::{
    Env,
    bus::{Bus, KernelEvent, Subscriber},
    lifecycle::{self, Action, Ended, Escalate, Lifecycle, TaskId, TaskRules, Timer},
    readiness::{Gate, Readiness},
    seam::{Abort, BoxFuture},
    shutdown::Shutdown,
};

/// Everything that lives while the supervisor runs.
pub(super) struct Crew {
    env: Env,
    bus: Bus,
    readiness: Readiness,
    process_gate: Gate,
    news: Subscriber,
    view: SupervisorView,
    rng: LateRng,
    /// Times are told from here.
    began: Instant,
    phases: Vec<Phase>,
    shutdown: Shutdown,
    /// Boxed: a map has room for a dozen, most processes have a few.
    members: BTreeMap<TaskId, Box<Member>>,
    endings: Arc<Endings>,
    timers: BTreeSet<(Instant, Timer)>,
    /// Why the process stops, once it does.
    reason: Option<String>,
    /// The bus has already heard of it.
    announced: bool,
    exit: Exit,
    aborted: Vec<String>,
}

/// A task as the shell holds it.
struct Member {
    rules: Arc<TaskRules>,
    factory: Factory,
    stop: Shutdown,
    /// Present if the task's rules can close it.
    gate: Option<Gate>,
    running: Option<Box<dyn Abort>>,
}

enum Event {
    Ended(TaskId, Result<(), Death>),
    Asked,
    News(KernelEvent),
    Command(Command),
    Time,
}

impl Crew {
    pub fn new(
        env: Env,
        bus: Bus,
        readiness: Readiness,
        view: SupervisorView,
        phases: Vec<Phase>,
        shutdown: Shutdown,
    ) -> Self {
        let mut shared = view.lock();
        shared.machine = Lifecycle::new(phases.iter().map(|phase| phase.deadline).collect());
        shared.phases = phases.iter().map(|phase| phase.name).collect();
        drop(shared);
        let phase_count = phases.len() as u64;
        env.probe("spec.lifecycle.began", phase_count, format_args!(""));
        Crew {
            began: env.now(),
            rng: LateRng::new(&env),
            news: bus.subscribe(),
            process_gate: readiness.gate(PROCESS_GATE),
            env,
            bus,
            readiness,
            view,
            phases,
            shutdown,
            members: BTreeMap::new(),
            endings: Arc::default(),
            timers: BTreeSet::new(),
            reason: None,
            announced: false,
            exit: Exit::Clean,
            aborted: Vec::new(),
        }
    }

    /// Starts a task, unless the process is draining or has no such phase.
    pub fn register(&mut self, rules: TaskRules, factory: Factory) -> Option<TaskId> {
        let now = self.env.now();
        let mut shared = self.view.lock();
        let (id, actions) = shared.machine.handle_register(rules, now)?;
        // As the machine holds them: tasks are many, and most are like another.
        let kept = shared
            .machine
            .tasks()
            .get(&id)
            .map(|task| task.rules.clone());
        drop(shared);
        self.env.probe(
            "spec.lifecycle.register",
            id.0,
            format_args!(
                "{} {} {} {} {} {}",
                rules.phase,
                rules.long_lived,
                rules.ready_while_restarting,
                rules.escalate == Escalate::Exit,
                rules.restart.max_restarts,
                rules.restart.window.as_nanos(),
            ),
        );
        let closable = !rules.ready_while_restarting || rules.escalate == Escalate::ReadinessOff;
        let gate = closable.then(|| self.readiness.gate(format!("task:{}", rules.name)));
        let member = Member {
            rules: kept.unwrap_or_else(|| Arc::new(rules)),
            factory,
            stop: Shutdown::new(),
            gate,
            running: None,
        };
        self.members.insert(id, Box::new(member));
        self.set_gate(id);
        self.apply(actions);
        Some(id)
    }

    pub async fn run(&mut self, commands: Receiver) -> Report {
        self.view.lock().started = true;
        self.process_gate.open();
        // One timer, made anew only when another time is due next.
        let mut sleep: Option<(Instant, BoxFuture<'static, ()>)> = None;
        while self.view.lock().machine.stage() != lifecycle::Stage::Stopped {
            let due = self.timers.first().map(|(at, _)| *at);
            if sleep.as_ref().map(|(at, _)| *at) != due {
                sleep = due.map(|at| (at, self.env.sleep_until(at)));
            }
            let time = async {
                match &mut sleep {
                    Some((_, sleep)) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                (id, ended) = self.endings.next() => Event::Ended(id, ended),
                () = self.shutdown.wait(), if self.reason.is_none() => Event::Asked,
                Some(event) = self.news.recv() => Event::News(event),
                command = commands.next() => Event::Command(command),
                () = time => Event::Time,
            };
            match event {
                Event::Time => {
                    sleep = None;
                    self.fire_timers();
                }
                event => self.handle(event),
            }
        }
        let report = self.report();
        self.env.probe("stopped", 0, format_args!("{report}"));
        tracing::info!(%report, "stopped");
        report
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ended(id, ended) => self.ended(id, ended),
            Event::Asked => self.drain("asked to stop".into()),
            Event::News(KernelEvent::Shutdown { reason }) if self.reason.is_none() => {
                self.announced = true;
                self.drain(reason);
            }
            Event::Command(Command::Start(start)) => {
                let _ = start.reply.send(self.register(start.rules, start.factory));
            }
            Event::Command(Command::Stop(id)) => {
                self.env
                    .probe("spec.lifecycle.stop_alone", id.0, format_args!(""));
                let now = self.env.now();
                let actions = self.view.lock().machine.handle_stop(id, now);
                self.apply(actions);
                self.forget(id);
            }
            Event::News(_) | Event::Time => {}
        }
    }

    fn drain(&mut self, reason: String) {
        self.reason = Some(reason);
        self.env
            .probe("spec.lifecycle.shutdown", 0, format_args!(""));
        let now = self.env.now();
        let actions = self.view.lock().machine.handle_shutdown(now);
        self.apply(actions);
    }

    fn ended(&mut self, id: TaskId, ended: Result<(), Death>) {
        self.view.lock().killers.remove(&id);
        if let Some(member) = self.members.get_mut(&id) {
            member.running = None;
            if let Err(Death(panic)) = &ended {
                let task = label(&member.rules);
                self.env.probe("task.failed", id.0, format_args!("{task}"));
                tracing::error!(task, kind = member.rules.kind, panic, "a task panicked");
            }
        }
        let how = match ended {
            Ok(()) => Ended::Finished,
            Err(_) => Ended::Panicked,
        };
        let now = self.env.now();
        let since = now.saturating_duration_since(self.began).as_nanos();
        self.env.probe(
            "spec.lifecycle.ended",
            id.0,
            format_args!("{} {since}", how == Ended::Panicked),
        );
        let actions = (self.view.lock().machine).handle_ended(id, how, now, &mut self.rng);
        self.apply(actions);
        self.forget(id);
    }

    fn fire_timers(&mut self) {
        let now = self.env.now();
        while let Some((at, timer)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.tell_fired(timer);
            let actions = self.view.lock().machine.handle_timer(timer, now);
            self.apply(actions);
        }
    }

    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start { task, incarnation } => self.launch(task, incarnation),
                Action::Arm { timer, mut at } => {
                    if matches!(timer, Timer::Restart(_))
                        && crate::buggify!("supervisor.restart_late")
                    {
                        at += Duration::from_millis(40);
                    }
                    self.timers.insert((at, timer));
                }
                Action::EnterPhase(phase) => self.enter(phase),
                Action::Stop(id) => {
                    self.members[&id].stop.trigger();
                    self.env
                        .probe("spec.lifecycle.stop", id.0, format_args!(""));
                }
                Action::Abort(id) => self.abort(id),
                Action::Unready => self.announce(),
                Action::GateChanged(id) => self.set_gate(id),
                Action::Escalated(id) => self.escalated(id),
                Action::Stopped(_) => {
                    self.env
                        .probe("spec.lifecycle.stopped", 0, format_args!(""));
                }
            }
        }
    }

    fn tell_fired(&self, timer: Timer) {
        let (id, word, incarnation) = match timer {
            Timer::Restart(id) => (id.0, "restart", 0),
            Timer::Stable(id, incarnation) => (id.0, "stable", incarnation),
            Timer::Stop(id) => (id.0, "stop", 0),
            Timer::Phase(phase) => (phase as u64, "phase", 0),
        };
        let detail = format_args!("{word} {incarnation}");
        self.env.probe("spec.lifecycle.fire", id, detail);
    }

    fn launch(&mut self, id: TaskId, incarnation: u32) {
        let member = (self.members.get_mut(&id)).expect("a task is a member before it starts");
        let context = TaskContext {
            env: self.env.clone(),
            stop: member.stop.clone(),
            incarnation,
            worker: member.rules.worker.unwrap_or(0),
        };
        let (factory, killer) = (member.factory.clone(), Killer::default());
        let endings = self.endings.clone();
        let tracked = Tracked::new(id, factory, context, killer.clone(), endings);
        member.running = Some(self.env.launch(member.rules.name, Box::pin(tracked)));
        self.view.lock().killers.insert(id, killer);
        self.env
            .probe("spec.lifecycle.start", id.0, format_args!("{incarnation}"));
        if incarnation > 0 {
            let task = label(&member.rules);
            self.env.probe(
                "task.relaunched",
                id.0,
                format_args!("{task} {incarnation}"),
            );
            tracing::warn!(task, incarnation, "restarted a task");
            self.bus.publish(KernelEvent::Restarted {
                task,
                attempt: incarnation,
            });
        }
    }

    fn enter(&mut self, phase: usize) {
        let Phase { name, on_enter, .. } = &mut self.phases[phase];
        self.env.probe("phase", 0, format_args!("{name}"));
        self.env
            .probe("spec.lifecycle.phase", phase as u64, format_args!(""));
        tracing::info!(phase = *name, "draining");
        if let Some(hook) = on_enter.take()
            && catch_unwind(AssertUnwindSafe(hook)).is_err()
        {
            tracing::error!(phase = *name, "the phase's hook panicked");
        }
    }

    fn abort(&mut self, id: TaskId) {
        let member = &self.members[&id];
        if let Some(running) = &member.running {
            running.abort();
            self.env
                .probe("spec.lifecycle.abort", id.0, format_args!(""));
        }
        let task = label(&member.rules);
        self.env.probe("task.aborted", id.0, format_args!("{task}"));
        tracing::warn!(task, "aborted a task that did not stop in time");
        // Outside a drain the list would grow with every task stopped alone; the counter has those.
        if self.reason.is_some() {
            self.aborted.push(task.clone());
        }
        self.bus.publish(KernelEvent::Aborted { task });
    }

    fn announce(&mut self) {
        let reason = self.reason.get_or_insert_with(|| match &self.exit {
            Exit::Escalated(task) => format!("{task} failed beyond its restart budget"),
            Exit::Clean => "asked to stop".into(),
        });
        let reason = reason.clone();
        self.process_gate.close("draining");
        self.env
            .probe("spec.lifecycle.unready", 0, format_args!(""));
        self.env.probe("shutdown", 0, format_args!("{reason}"));
        tracing::info!(reason, "shutting down");
        if !self.announced {
            self.bus.publish(KernelEvent::Shutdown { reason });
        }
        self.shutdown.trigger();
    }

    fn escalated(&mut self, id: TaskId) {
        let rules = self.members[&id].rules.clone();
        let task = label(&rules);
        self.env
            .probe("task.escalated", id.0, format_args!("{task}"));
        tracing::error!(task, "a task failed beyond its restart budget");
        if rules.escalate == Escalate::Exit {
            self.exit = Exit::Escalated(task.clone());
        }
        self.bus.publish(KernelEvent::Escalated { task });
    }

    fn set_gate(&self, id: TaskId) {
        let member = &self.members[&id];
        let reason = self.view.lock().machine.gate_reason(member.rules.name);
        match (&member.gate, reason) {
            (Some(gate), Some(reason)) => gate.close(reason),
            (Some(gate), None) => gate.open(),
            (None, _) => {}
        }
    }

    /// Drops what is held for a task that the machine has forgotten.
    fn forget(&mut self, id: TaskId) {
        if !self.view.lock().machine.tasks().contains_key(&id) {
            self.members.remove(&id);
        }
    }

    fn report(&self) -> Report {
        let shared = self.view.lock();
        let phases: Vec<_> = (self.phases.iter())
            .zip(shared.machine.phases())
            .map(|(phase, record)| PhaseReport {
                name: phase.name,
                took: span(record.entered, record.ended),
                drained: record.drained,
                aborted: record.aborted,
            })
            .collect();
        let began = shared.machine.phases().first().and_then(|p| p.entered);
        Report {
            exit: self.exit.clone(),
            drained: phases.iter().map(|phase| phase.drained).sum(),
            aborted: phases.iter().map(|phase| phase.aborted).sum(),
            aborted_tasks: self.aborted.clone(),
            panics: shared.machine.counts().values().map(|c| c.panicked).sum(),
            took: span(began, Some(self.env.now())),
            phases,
        }
    }
}

/// Whoever gives up on `run` gives up its tasks too.
impl Drop for Crew {
    fn drop(&mut self) {
        for running in self.members.values().filter_map(|m| m.running.as_ref()) {
            running.abort();
        }
    }
}

fn span(from: Option<Instant>, to: Option<Instant>) -> Duration {
    match (from, to) {
        (Some(from), Some(to)) => to.saturating_duration_since(from),
        _ => Duration::ZERO,
    }
}
