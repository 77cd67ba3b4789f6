//! Time from the operating system. Always: a sleep never ends early.

use std::time::{Instant, SystemTime};

use ron_core::seam::{BoxFuture, Clock};

use crate::TokioRuntime;

impl Clock for TokioRuntime {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        // The timer belongs to our runtime, whichever thread asks.
        let _here = self.handle.enter();
        Box::pin(tokio::time::sleep_until(at.into()))
    }
}
