//! A listener that outlives the task that accepts from it.
//!
//! The first incarnation takes the one that was bound before the start; a later one binds the same address again.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use crate::{Env, seam::Listener};

pub struct Bound {
    first: Mutex<Option<Box<dyn Listener>>>,
    addr: Option<SocketAddr>,
}

impl Bound {
    pub fn new(listener: Box<dyn Listener>) -> Bound {
        Bound {
            addr: listener.local_addr().ok(),
            first: Mutex::new(Some(listener)),
        }
    }

    /// `None` if the address cannot be had again; the caller's task ends, and its supervisor decides.
    pub async fn take(&self, env: &Env) -> Option<Box<dyn Listener>> {
        let first = self.first.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).take();
        if first.is_some() {
            return first;
        }
        let addr = self.addr?;
        let again = env.listen(addr).await;
        again
            .inspect_err(|error| tracing::error!(%error, %addr, "cannot listen again"))
            .ok()
    }
}
