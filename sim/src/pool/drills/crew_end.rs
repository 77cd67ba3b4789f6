//! What is left of a drilled crew when it was stopped, and what it has counted: its own tasks say what is right.

use std::time::Duration;

use futures_util::FutureExt;
use ron_core::{
    bus::KernelEvent,
    supervisor::{Draining, Exit, Report},
    view::{TaskCounts, TaskView},
};

use super::{
    Bench, Verdict, agree,
    crew::{Crew, KIND, PHASES},
    supervisor::TASKS,
    supervisor_script::Told,
};
use crate::metrics_page;

impl Crew {
    // ----------------------------------------------------------------------------------- counts

    /// What the tasks saw, as the counts that must follow from it.
    fn seen(&self) -> TaskCounts {
        let mut counts = TaskCounts::default();
        let mut over = 0;
        for line in self.log.lines() {
            match line.what {
                Told::Started(n) => {
                    counts.spawned += 1;
                    counts.restarted += u64::from(n > 0);
                }
                Told::Failed => counts.panicked += 1,
                Told::Stopped => counts.canceled += 1,
                Told::Gone => over += 1,
                Told::Left | Told::Phase => {}
            }
        }
        counts.alive = counts.spawned - over;
        // Gone without a word.
        counts.aborted = over - counts.panicked - counts.canceled;
        counts
    }

    pub async fn counted(&self) -> Verdict {
        let same = || self.view.tasks().get(KIND).copied() == Some(self.seen());
        let settled = self.until("counts", Duration::ZERO, same).await;
        settled.map_err(|why| {
            let (seen, told) = (self.seen(), self.view.tasks());
            format!("{why}: expected {seen:?}, came {told:?}")
        })?;
        let (seen, page) = (self.seen(), self.telemetry.render());
        for (metric, label, expected) in [
            ("tasks_spawned_total", "kind", seen.spawned),
            ("tasks_canceled_total", "kind", seen.canceled),
            ("tasks_aborted_total", "kind", seen.aborted),
            ("service_restarts_total", "task", seen.restarted),
        ] {
            let label = format!("{label}=\"{KIND}\"");
            agree(
                metric,
                metrics_page::value(&page, metric, &[&label]),
                Some(expected),
            )?;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------ the end

    pub async fn end(mut self, bench: &mut Bench) -> Verdict {
        let reason = match (self.gives_up, bench.one_in(2)) {
            (true, _) => None,
            (false, true) => {
                self.stop.trigger();
                Some("asked to stop".to_owned())
            }
            (false, false) => {
                let reason = format!("told {}", bench.pick(0, 99));
                self.bus.publish(KernelEvent::Shutdown {
                    reason: reason.clone(),
                });
                Some(reason)
            }
        };
        let heard = || self.stop.is_triggered();
        let told = self.until("the latch", Duration::ZERO, heard).await;
        // Even if it was not told, nothing may be left running.
        self.stop.trigger();
        let report = self.running.take().expect("it was started").await;
        let counted = self.counted().await;
        self.beating.abort();
        told?;
        counted?;
        let report = report.map_err(|_| "it ended without a report".to_owned())?;
        self.reported(&report)?;
        self.told(reason)?;
        agree("ready after the end", self.readiness.is_ready(), false)?;
        let status = self.view.status();
        agree(
            "state at the end",
            (status.state, status.tasks.len()),
            ("stopped", 0),
        )?;
        self.phased()?;
        let late = self.handle.start(self.spec, |_| async {}).now_or_never();
        agree("a start after the end", late, Some(Err(Draining)))
    }

    /// One after the other. A phase without a task is over before its hook runs, and the status tells of a later one.
    fn phased(&self) -> Verdict {
        let entered = self.entered.lock().unwrap().clone();
        let names: Vec<_> = entered.iter().map(|(name, _)| *name).collect();
        agree("phases that began", names, PHASES.to_vec())?;
        agree(
            "not yet in the second",
            entered[1].1 == Some(PHASES[0]),
            false,
        )
    }

    fn reported(&self, report: &Report) -> Verdict {
        let exits = matches!(report.exit, Exit::Escalated(_));
        agree("gave up", exits, self.gives_up)?;
        agree("exit code", report.exit_code(), u8::from(exits))?;
        let seen = self.seen();
        agree("panics in the report", report.panics, seen.panicked)?;
        let phases = report.phases.iter();
        let sum = phases.fold((0, 0), |(d, a), p| (d + p.drained, a + p.aborted));
        agree(
            "phases of the report",
            sum,
            (report.drained, report.aborted),
        )?;
        // Who was stopped alone is counted, but not listed.
        let listed = report.aborted_tasks.len() as u64;
        agree("list of the aborted", listed, report.aborted)
    }

    /// All news that came: one stop with its reason, one escalation for each that went beyond its budget, one abort for
    /// each that was, one restart for each that came back.
    fn told(&mut self, reason: Option<String>) -> Verdict {
        let (mut stops, mut restarts, mut aborts, mut escalated) = (vec![], 0, 0, 0);
        while let Some(Some(event)) = self.news.recv().now_or_never() {
            match event {
                KernelEvent::Shutdown { reason } => stops.push(reason),
                KernelEvent::Restarted { .. } => restarts += 1,
                KernelEvent::Aborted { .. } => aborts += 1,
                KernelEvent::Escalated { .. } => escalated += 1,
                KernelEvent::ConfigUpdated { .. } | KernelEvent::ReadinessChanged { .. } => {}
            }
        }
        let seen = self.seen();
        agree("news of restarts", restarts, seen.restarted)?;
        agree("news of aborts", aborts, seen.aborted)?;
        let last = self
            .puppets
            .iter()
            .position(|p| p.failures > self.spec.restart.max_restarts);
        let given_up = last.map(|who| format!("{} failed beyond its restart budget", TASKS[who]));
        agree(
            "news of the stop",
            stops,
            vec![reason.or(given_up).unwrap_or_default()],
        )?;
        if self.spec.restart.stable_after < Duration::from_secs(1) {
            return Ok(());
        }
        let most = self.spec.restart.max_restarts;
        let beyond = self.puppets.iter().filter(|p| p.failures > most).count();
        agree("news of escalations", escalated, beyond)
    }
}
