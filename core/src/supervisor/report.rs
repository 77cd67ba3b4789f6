//! What a supervised process has to say once it has ended: for the operator's log and the exit code.

use std::{fmt, time::Duration};

/// How the process came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was asked to stop.
    Clean,
    /// This task failed beyond its budget.
    Escalated(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub exit: Exit,
    /// Tasks that ended by themselves during the drain.
    pub drained: u64,
    /// Tasks that outlasted their drain phase and were stopped by force.
    pub aborted: u64,
    /// Their names.
    pub aborted_tasks: Vec<String>,
    /// Panics since the start.
    pub panics: u64,
    /// From the request to stop until the last task was gone.
    pub took: Duration,
    pub phases: Vec<PhaseReport>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseReport {
    pub name: &'static str,
    pub took: Duration,
    pub drained: u64,
    pub aborted: u64,
}

impl Report {
    /// 0 if the process was asked to stop, 1 if it gave up. Aborted stragglers are counted, not a failure.
    pub fn exit_code(&self) -> u8 {
        match self.exit {
            Exit::Clean => 0,
            Exit::Escalated(_) => 1,
        }
    }
}

/// One line: `drained 3 tasks in 0.4 s, aborted 0`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.drained == 1 { "" } else { "s" };
        let seconds = self.took.as_secs_f64();
        write!(f, "drained {} task{plural} in {seconds:.1} s", self.drained)?;
        write!(f, ", aborted {}", self.aborted)?;
        if !self.aborted_tasks.is_empty() {
            write!(f, " ({})", self.aborted_tasks.join(", "))?;
        }
        if let Exit::Escalated(task) = &self.exit {
            write!(f, "; {task} failed beyond its restart budget")?;
        }
        Ok(())
    }
}
