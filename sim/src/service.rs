//! What a service must bring to live in a simulated world; it registers in [`crate::services`].

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use ron_core::{
    Env,
    config::{ConfigErrors, Settings, Sources},
    points::Points,
    seam::BoxFuture,
    shutdown::Shutdown,
    supervisor::SupervisorView,
    view::QueueView,
};

use crate::{
    calls::CallKind,
    chaos::Chaos,
    conformance::Followed,
    disk::SimDisk,
    models::ModelKind,
    oracle::OracleKind,
    trace::{Outcome, StopReport},
    workload::{Clients, WorkloadKind},
};

/// A service as the simulator starts it: the same wiring as its binary, on another Env.
pub trait SimService: Send + Sync {
    fn name(&self) -> &'static str;

    /// The port of its HTTP listener, for workloads and for `/readyz`.
    fn port(&self) -> u16;

    /// Refuses a config that cannot be used; called before anything runs.
    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors>;

    /// Puts on the disk what a first start would need too long to make.
    fn prepare(&self, disk: &SimDisk) {
        let _ = disk;
    }

    /// Its marks and buggify points: the `POINTS` of its crate.
    fn points(&self) -> Points {
        Points::default()
    }

    /// Its page of generated docs.
    fn page(&self) -> Option<(&'static str, String)> {
        None
    }

    /// Its laws. They hold in every scenario that it takes part in, unless the file names an exception.
    fn laws(&self) -> &'static [OracleKind] {
        &[]
    }

    /// What clients may be told to do to it.
    fn workloads(&self) -> &'static [WorkloadKind] {
        &[]
    }

    /// Each single request that its workloads are made of.
    fn calls(&self) -> &'static [CallKind] {
        &[]
    }

    /// What `eventually` may ask of it besides `ready`.
    fn conditions(&self) -> &'static [Condition] {
        &[]
    }

    /// Models of its own that `sim models` checks.
    fn models(&self) -> &'static [ModelKind] {
        &[]
    }

    /// Those that a run is compared with step by step.
    fn followed(&self) -> &'static [Followed] {
        &[]
    }

    /// Runs one process until it has stopped.
    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport>;
}

/// Something that must hold on a node once everything has healed.
pub struct Condition {
    pub name: &'static str,
    /// An answer after this is no answer.
    pub patience: Duration,
    /// Finds out by asking the node; 200 means that it holds.
    pub check: fn(Question) -> BoxFuture<'static, (Outcome, Bytes)>,
}

/// Who asks whom whether a condition holds.
pub struct Question {
    pub clients: Clients,
    /// The node, by name.
    pub on: String,
    /// Its place among the nodes of its service, and how many they are: what all of them must know can be shared out.
    pub share: (usize, usize),
    pub patience: Duration,
}

/// A node's `config` table read as a service's settings, with the service's own checks.
pub fn read_config<T: Settings>(table: &toml::Table) -> Result<T, ConfigErrors> {
    let cli = as_flags(table);
    let sources = Sources {
        cli,
        ..Sources::default()
    };
    sources.load("", |_| Vec::new()).map(|loaded| loaded.config)
}

/// As `--set` would be given them: text stands for itself, without quotes.
pub fn as_flags(table: &toml::Table) -> Vec<String> {
    let flag = |(key, value): (&String, &toml::Value)| match value.as_str() {
        Some(text) => format!("{key}={text}"),
        None => format!("{key}={value}"),
    };
    table.iter().map(flag).collect()
}

/// A file of settings that an operator writes and the process reads when it is told to. Whoever starts a process
/// begins with an empty one: what is set otherwise is the scenario's.
#[derive(Default)]
pub struct SettingsFile {
    text: Mutex<String>,
}

impl SettingsFile {
    pub fn write(&self, text: &str) {
        text.clone_into(&mut self.text.lock().unwrap());
    }

    pub fn read(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

/// What one process is given.
pub struct ProcessContext {
    pub env: Env,
    pub config: toml::Table,
    pub shutdown: Shutdown,
    pub incarnation: u32,
    /// The seed of the run, for what must be the same at every start.
    pub seed: u64,
    pub inspector: Inspector,
    /// What troubles the machine besides its network and disk.
    pub chaos: Arc<Chaos>,
    pub settings: Arc<SettingsFile>,
}

/// Where a process shows its inside to the oracles.
#[derive(Clone, Default)]
pub struct Inspector {
    shown: Arc<Mutex<Shown>>,
}

#[derive(Default)]
pub(crate) struct Shown {
    pub queues: Vec<Arc<dyn QueueView>>,
    pub supervisor: Option<SupervisorView>,
}

impl Inspector {
    pub fn show_queue(&self, queue: Arc<dyn QueueView>) {
        self.shown.lock().unwrap().queues.push(queue);
    }

    pub fn show_supervisor(&self, supervisor: SupervisorView) {
        self.shown.lock().unwrap().supervisor = Some(supervisor);
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&Shown) -> T) -> T {
        look(&self.shown.lock().unwrap())
    }
}
