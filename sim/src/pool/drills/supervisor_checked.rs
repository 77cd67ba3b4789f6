//! What the log of a drilled supervisor, its report and its news have to say, judged by its script.

use std::time::{Duration, Instant};

use ron_core::{
    bus::KernelEvent,
    lifecycle::Restart,
    supervisor::{Exit, Report},
};

use super::{
    Verdict, agree, demand,
    supervisor::{LATE, PHASE, PHASES, Script, TASKS},
    supervisor_script::{Line, Part, Told},
};

pub struct Checked<'a> {
    pub script: &'a Script,
    pub lines: &'a [Line],
    pub missed: Duration,
}

impl Checked<'_> {
    fn of(&self, who: usize) -> Vec<Line> {
        self.lines
            .iter()
            .filter(|l| l.who == who)
            .copied()
            .collect()
    }

    /// Each life has the next number and begins a backoff after the end of the one before it.
    pub fn restarts(&self) -> Verdict {
        let Restart {
            backoff,
            max_restarts,
            ..
        } = self.script.restart;
        for (who, (_, part)) in self.script.tasks.iter().enumerate() {
            let (mut failed, mut lives) = (None, 0);
            for line in self.of(who) {
                match line.what {
                    Told::Failed | Told::Left => failed = Some(line.at),
                    Told::Started(incarnation) => {
                        agree(&format!("{part:?}: its number"), incarnation, lives)?;
                        lives += 1;
                        let Some(failed) = failed.take() else {
                            continue;
                        };
                        // The first failure is followed by attempt 0; beyond the budget each waits longest.
                        let doubled = if incarnation > max_restarts {
                            20
                        } else {
                            incarnation - 1
                        };
                        let high = (backoff.min * 2 * 2u32.pow(doubled)).min(backoff.max);
                        let low = high / 2;
                        let waited = line.at - failed;
                        let most = high + LATE + self.missed * 2;
                        demand(
                            low <= waited + Duration::from_nanos(1) && waited <= most,
                            || {
                                format!(
                                    "restart {incarnation} of {part:?}: expected {low:?} to {most:?}, came {waited:?}"
                                )
                            },
                        )?;
                    }
                    _ => {}
                }
            }
            let most = match part {
                Part::Flaky { times, .. } => times + 1,
                _ => 1,
            };
            demand((1..=most).contains(&lives), || {
                format!("{part:?} was started {lives} times")
            })?;
        }
        Ok(())
    }

    /// Phase after phase: first its hook, then its tasks are told, and the next only when they are gone.
    pub fn order(&self) -> Verdict {
        let mut entered: Option<usize> = None;
        for (n, line) in self.lines.iter().enumerate() {
            match line.what {
                Told::Phase => {
                    let phase = line.who - PHASE;
                    agree("the next phase", phase, entered.map_or(0, |last| last + 1))?;
                    entered = Some(phase);
                    for (who, (of, part)) in self.script.tasks.iter().enumerate() {
                        let late = self.lines[n..]
                            .iter()
                            .any(|l| l.who == who && l.what == Told::Stopped);
                        demand(*of >= phase || !late, || {
                            format!("{part:?} of phase {of} was told in phase {phase}")
                        })?;
                    }
                }
                Told::Stopped => {
                    let (of, part) = self.script.tasks[line.who];
                    demand(entered == Some(of), || {
                        format!("{part:?} of phase {of} was told in phase {entered:?}")
                    })?;
                }
                _ => {}
            }
        }
        agree("phases", entered, Some(self.script.deadlines.len() - 1))
    }

    pub fn report(&self, report: &Report, asked: Instant) -> Verdict {
        let told = |what: &str| format!("report's {what}");
        let starts = self
            .lines
            .iter()
            .filter(|l| matches!(l.what, Told::Started(_)))
            .count();
        let gone = self.lines.iter().filter(|l| l.what == Told::Gone).count();
        agree("tasks that are gone", gone, starts)?;
        let panics = self.lines.iter().filter(|l| l.what == Told::Failed).count() as u64;
        agree(&told("panics"), report.panics, panics)?;
        let gave_up = matches!(report.exit, Exit::Escalated(_));
        agree(&told("exit"), gave_up, self.script.gives_up())?;
        agree(&told("exit code"), report.exit_code(), u8::from(gave_up))?;
        let (mut drained, mut aborted, mut names) = (0, 0, Vec::new());
        agree(
            &told("phases"),
            report.phases.len(),
            self.script.deadlines.len(),
        )?;
        for (n, phase) in report.phases.iter().enumerate() {
            let mut stubborn = 0;
            for (who, (of, part)) in self.script.tasks.iter().enumerate() {
                if *of == n && *part == Part::Stubborn {
                    names.push(TASKS[who].to_owned());
                    stubborn += 1;
                }
            }
            agree(&told("name"), phase.name, PHASES[n])?;
            self.aborts(&told("aborts of a phase"), phase.aborted, stubborn)?;
            let (took, deadline) = (phase.took, self.script.deadlines[n]);
            demand(stubborn == 0 || took >= deadline, || {
                format!("phase {n} aborted after {took:?}, before its {deadline:?}")
            })?;
            let most = deadline + Duration::from_millis(10) + self.missed * 2;
            demand(took <= most, || {
                format!("phase {n} took {took:?} of {deadline:?}")
            })?;
            aborted += stubborn;
            drained += phase.drained;
        }
        self.aborts(&told("aborts"), report.aborted, aborted)?;
        let listed = report.aborted_tasks.len() as u64;
        agree(&told("list of the aborted"), listed, report.aborted)?;
        let all = names.iter().all(|name| report.aborted_tasks.contains(name));
        demand(all, || {
            format!("expected {names:?}, came {:?}", report.aborted_tasks)
        })?;
        agree(&told("drained"), report.drained, drained)?;
        if !gave_up && self.calm() {
            let heard = self
                .lines
                .iter()
                .filter(|l| l.what == Told::Stopped)
                .count() as u64;
            let clumsy = self.script.tasks.iter();
            let clumsy = clumsy.filter(|(_, part)| *part == Part::Clumsy).count() as u64;
            agree(&told("drained in all"), report.drained, heard - clumsy)?;
            let all = self.script.tasks.iter();
            let living = all.filter(|(_, part)| !matches!(part, Part::Stubborn | Part::Once(_)));
            agree("tasks that were told to stop", heard, living.count() as u64)?;
            let ended = self.lines.last().map_or(asked, |line| line.at);
            let most = ended.saturating_duration_since(asked) + Duration::from_millis(10);
            demand(report.took <= most + self.missed * 2, || {
                format!(
                    "{}: expected at most {most:?}, came {:?}",
                    told("time"),
                    report.took
                )
            })?;
        }
        Ok(())
    }

    /// Nothing held the tasks up for longer than a phase has time to spare.
    fn calm(&self) -> bool {
        self.missed < Duration::from_millis(5)
    }

    fn aborts(&self, what: &str, came: u64, stubborn: u64) -> Verdict {
        let exact = came == stubborn || (!self.calm() && came > stubborn);
        demand(exact, || {
            format!("{what}: expected {stubborn}, came {came}")
        })
    }

    pub fn news(&self, told: &[KernelEvent]) -> Verdict {
        let count = |wanted: fn(&KernelEvent) -> bool| told.iter().filter(|e| wanted(e)).count();
        let restarts = self
            .lines
            .iter()
            .filter(|l| matches!(l.what, Told::Started(n) if n > 0));
        let restarted = count(|e| matches!(e, KernelEvent::Restarted { .. }));
        agree("news of restarts", restarted, restarts.count())?;
        agree(
            "news of the stop",
            count(|e| matches!(e, KernelEvent::Shutdown { .. })),
            1,
        )?;
        let stubborn = self
            .script
            .tasks
            .iter()
            .filter(|(_, part)| *part == Part::Stubborn);
        let aborts = count(|e| matches!(e, KernelEvent::Aborted { .. }));
        self.aborts("news of aborts", aborts as u64, stubborn.count() as u64)?;
        let beyond = self
            .script
            .tasks
            .iter()
            .filter(|(_, part)| self.script.beyond_budget(*part));
        let expected = if self.script.gives_up() {
            1
        } else {
            beyond.count()
        };
        agree(
            "news of escalations",
            count(|e| matches!(e, KernelEvent::Escalated { .. })),
            expected,
        )
    }
}
