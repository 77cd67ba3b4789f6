//! One wake-up for all the deadlines of a connection, put off lazily.
//!
//! Deadlines move with every request, timers are dear: a timer that is due too early just wakes the task once, and is
//! set again only then. Two are kept, a far one for idleness and a near one for requests, so that a request after a quiet
//! time does not throw away the far one. Always: the task is woken by the earliest time it asked for.

use std::{
    task::{Context, Waker},
    time::Instant,
};

use ron_core::{Env, seam::BoxFuture};

#[derive(Default)]
pub(crate) struct Timer {
    far: Option<Alarm>,
    near: Option<Alarm>,
    /// Whom they wake.
    waker: Option<Waker>,
}

struct Alarm {
    at: Instant,
    /// Held, not looked at: it has the waker.
    _sleep: BoxFuture<'static, ()>,
}

impl Timer {
    /// Wakes the task at `due` or earlier. A time that has come wakes it at once.
    pub fn wake_by(&mut self, env: &Env, due: Instant, now: Instant, cx: &mut Context<'_>) {
        for alarm in [&mut self.near, &mut self.far] {
            if alarm.as_ref().is_some_and(|alarm| alarm.at <= now) {
                *alarm = None;
            }
        }
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            // The task moved: what is set would wake nobody.
            *self = Timer::default();
            self.waker = Some(cx.waker().clone());
        }
        let set = [&self.near, &self.far].into_iter().flatten();
        if set.map(|alarm| alarm.at).min().is_some_and(|at| at <= due) {
            return;
        }
        let mut sleep = env.sleep_until(due);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
            return;
        }
        let alarm = Some(Alarm {
            at: due,
            _sleep: sleep,
        });
        match &self.far {
            None => self.far = alarm,
            Some(_) => self.near = alarm,
        }
    }
}
