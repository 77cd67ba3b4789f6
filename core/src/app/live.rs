//! The configuration of a running process: where it comes from, what is in force, and who is told of a change.
//!
//! Always: a reload that finds anything wrong changes nothing; one that finds nothing wrong is told on the bus.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::AppSettings;
use crate::{
    bus::{Bus, KernelEvent},
    config::{ConfigErrors, ReloadReport, Reloadable, Sources},
    ops::Reload,
};

type Read = Box<dyn Fn() -> Result<Sources, ConfigErrors> + Send + Sync>;
type Prepare<C> = Box<dyn Fn(&C) -> Result<Commit, ConfigErrors> + Send + Sync>;

/// Where the newest configuration is found.
pub type Source<C> = Arc<dyn Fn() -> Arc<C> + Send + Sync>;

/// Puts in force what was prepared. It cannot fail.
pub type Commit = Box<dyn FnOnce()>;

pub struct Live<C> {
    config: Reloadable<C>,
    read: Read,
    prepare: Option<Prepare<C>>,
    bus: Bus,
    version: AtomicU64,
}

impl<C: AppSettings> Live<C> {
    /// Loads for the first time. `read` is asked again at each reload.
    pub fn load(
        prefix: &str,
        bus: &Bus,
        read: impl Fn() -> Result<Sources, ConfigErrors> + Send + Sync + 'static,
    ) -> Result<Live<C>, ConfigErrors> {
        Ok(Live {
            config: Reloadable::load(&read()?, prefix, C::rules)?,
            read: Box::new(read),
            prepare: None,
            bus: bus.clone(),
            version: AtomicU64::new(0),
        })
    }

    /// What else is read anew, such as certificates: checked with the sources, put in force with them.
    #[must_use]
    pub fn preparing(
        mut self,
        prepare: impl Fn(&C) -> Result<Commit, ConfigErrors> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    pub fn current(&self) -> Arc<C> {
        self.config.current()
    }

    pub fn source(self: &Arc<Self>) -> Source<C> {
        let live = self.clone();
        Arc::new(move || live.current())
    }

    pub fn reload(&self) -> Result<ReloadReport, ConfigErrors> {
        let prepared = self
            .prepare
            .as_ref()
            .map(|prepare| prepare(&self.current()));
        let prepared = prepared.transpose()?;
        let report = self.config.reload(&(self.read)()?)?;
        if let Some(commit) = prepared {
            commit();
        }
        let version = 1 + self.version.fetch_add(1, Relaxed);
        self.bus.publish(KernelEvent::ConfigUpdated { version });
        Ok(report)
    }

    /// As an operator asks for it over HTTP.
    pub fn on_request(self: &Arc<Self>) -> Reload {
        let live = self.clone();
        Arc::new(move || {
            let done = live.reload();
            Box::pin(async move { done })
        })
    }
}
