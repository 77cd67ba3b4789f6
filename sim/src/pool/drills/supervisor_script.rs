//! What the tasks of a drilled supervisor are to do, and the log in which they tell what became of them.

use std::{
    future::pending,
    panic::resume_unwind,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ron_core::{Env, supervisor::TaskContext};

/// The part that a task plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Works until it is told to stop, and takes so long to do so.
    Steady(Duration),
    /// Panics after so long, or returns though it should not, so often; then as if steady.
    Flaky {
        times: u32,
        after: Duration,
        returns: bool,
    },
    /// Panics when it is told to stop.
    Clumsy,
    /// Hears nothing.
    Stubborn,
    /// Is done after so long, and returns.
    Once(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Started(u32),
    Failed,
    /// It returned, though it was to go on.
    Left,
    /// It heard that it is to stop.
    Stopped,
    Gone,
    /// The hook of a phase.
    Phase,
}

/// One line: when, which task (or phase), what.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub at: Instant,
    pub who: usize,
    pub what: Told,
}

#[derive(Clone)]
pub struct Log {
    env: Env,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Log {
    pub fn new(env: &Env) -> Self {
        Log {
            env: env.clone(),
            lines: Arc::default(),
        }
    }

    pub fn tell(&self, who: usize, what: Told) {
        let at = self.env.now();
        self.lines.lock().unwrap().push(Line { at, who, what });
    }

    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    pub fn count(&self, who: usize, what: impl Fn(Told) -> bool) -> usize {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter(|l| l.who == who && what(l.what))
            .count()
    }
}

/// Tells that the future is gone, however it went.
pub struct Leaves(pub Log, pub usize);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.tell(self.1, Told::Gone);
    }
}

/// One life of a task.
pub async fn live(part: Part, who: usize, log: Log, context: TaskContext) {
    let leaves = Leaves(log.clone(), who);
    log.tell(who, Told::Started(context.incarnation));
    let mut last = Duration::ZERO;
    match part {
        Part::Steady(takes) => last = takes,
        Part::Stubborn => pending().await,
        Part::Once(after) => return context.env.sleep(after).await,
        Part::Clumsy => {}
        Part::Flaky {
            times,
            after,
            returns,
        } => {
            if context.incarnation < times {
                context.env.sleep(after).await;
                if returns {
                    return log.tell(who, Told::Left);
                }
                log.tell(who, Told::Failed);
                // Without the hook that would print it: it is meant.
                resume_unwind(Box::new("on purpose"));
            }
        }
    }
    context.stop.wait().await;
    log.tell(who, Told::Stopped);
    if part == Part::Clumsy {
        log.tell(who, Told::Failed);
        resume_unwind(Box::new("on purpose"));
    }
    context.env.sleep(last).await;
    drop(leaves);
}

/// How much longer than meant a task's sleeps took, all together: the node was paused, or its clock changed.
#[derive(Clone)]
pub struct Pulse(Arc<Mutex<Duration>>);

impl Pulse {
    pub async fn beat(self, env: Env) {
        loop {
            let before = env.now();
            env.sleep(Duration::from_millis(2)).await;
            let took = env.now() - before;
            *self.0.lock().unwrap() += took.saturating_sub(Duration::from_millis(4));
        }
    }

    pub fn new() -> Self {
        Pulse(Arc::default())
    }

    pub fn missed(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}
