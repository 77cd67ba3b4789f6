//! One timer that wakes a connection's task no later than asked, and is left alone as long as it does.
//!
//! It is only held, not polled: a busy connection touches no timer at all. But whoever is woken by a future has to poll it
//! again before it will wake him a second time, and a timer may wake before its time, because the clock was slowed since.
//! Always: a timer that has rung is never relied upon again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use crate::seam::BoxFuture;

#[derive(Default)]
pub(super) struct Alarm(Option<Armed>);

struct Armed {
    at: Instant,
    /// Only held: dropping it would cancel the wake-up.
    _timer: BoxFuture<'static, ()>,
    bell: Arc<Bell>,
}

/// Passes a wake-up on to the task, and remembers it.
struct Bell {
    rang: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Relaxed);
        self.task.wake_by_ref();
    }
}

impl Alarm {
    /// The task is woken by `at`, by the timer that is set already or by a new one.
    pub fn wake_by(
        &mut self,
        at: Instant,
        now: Instant,
        cx: &Context<'_>,
        timer: impl FnOnce(Instant) -> BoxFuture<'static, ()>,
    ) {
        let kept = self.0.as_ref().is_some_and(|armed| {
            let rang = armed.bell.rang.load(Relaxed);
            armed.at <= at && armed.at > now && !rang && armed.bell.task.will_wake(cx.waker())
        });
        if kept {
            return;
        }
        let (mut timer, bell) = (timer(at), Arc::new(Bell::new(cx.waker())));
        match timer
            .as_mut()
            .poll(&mut Context::from_waker(&bell.clone().into()))
        {
            Poll::Pending => {
                self.0 = Some(Armed {
                    at,
                    _timer: timer,
                    bell,
                });
            }
            // Only if time moved on meanwhile: look again at once.
            Poll::Ready(()) => cx.waker().wake_by_ref(),
        }
    }
}

impl Bell {
    fn new(task: &Waker) -> Self {
        Bell {
            rang: AtomicBool::new(false),
            task: task.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{Mutex, atomic::AtomicUsize},
        time::Duration,
    };

    use super::*;
    use crate::serve::tests::some_instant;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Timers that are never done, and wake whoever polled them when the test says so.
    #[derive(Clone, Default)]
    struct Timers(Arc<Mutex<Vec<Waker>>>);

    impl Timers {
        fn set(&self) -> BoxFuture<'static, ()> {
            let set = self.0.clone();
            Box::pin(poll_fn(move |cx| {
                set.lock().unwrap().push(cx.waker().clone());
                Poll::Pending
            }))
        }

        fn count(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    #[test]
    fn a_timer_that_woke_early_is_replaced_and_one_that_has_not_rung_is_kept() {
        let (task, timers) = (Arc::new(Task::default()), Timers::default());
        let waker = task.clone().into();
        let cx = Context::from_waker(&waker);
        let (now, mut alarm) = (some_instant(), Alarm::default());
        let at = now + Duration::from_secs(60);
        for later in 0..3 {
            let at = at + Duration::from_secs(later);
            alarm.wake_by(at, now, &cx, |_| timers.set());
            assert_eq!(timers.count(), 1, "no limit is earlier");
        }
        let early = timers.0.lock().unwrap()[0].clone();
        early.wake();
        assert_eq!(task.0.load(Relaxed), 1, "the task looks again");
        alarm.wake_by(at, now, &cx, |_| timers.set());
        assert_eq!(timers.count(), 2, "the first one will not wake again");
        alarm.wake_by(at - Duration::from_secs(1), now, &cx, |_| timers.set());
        assert_eq!(timers.count(), 3, "an earlier limit");
    }
}
