//! A latch that tells every task to stop: once triggered it stays so, however late a task asks.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub struct Shutdown {
    latch: Arc<watch::Sender<bool>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        Shutdown {
            latch: Arc::new(watch::channel(false).0),
        }
    }

    pub fn trigger(&self) {
        self.latch.send_replace(true);
    }

    pub fn is_triggered(&self) -> bool {
        *self.latch.borrow()
    }

    pub async fn wait(&self) {
        // The sender lives in `self`, so this can only end by the latch.
        let _ = self.latch.subscribe().wait_for(|stop| *stop).await;
    }
}
