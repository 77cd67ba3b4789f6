//! The world: nodes by name, and what can be done to them.
//!
//! A node keeps its disk, clock and address; each start is a new incarnation of its process. Killing is
//! not closing: what an old incarnation still holds gets errors and changes nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use ron_core::{Env, shutdown::Shutdown, view::TaskView};

use crate::{
    chaos::Chaos,
    clock::NodeClock,
    disk::{Death, SimDisk},
    executor::{Crew, OnSpin},
    net::{Incarnation, Link, Network, NodeId},
    oracle::{NO_SPIN, NodeView, WorldView},
    recorder::Recorder,
    runtime::{NodeParts, Observer, OnDiskCrash, SimRuntime},
    seed::{self, SimRng},
    service::{Inspector, ProcessContext, SimService},
    steps::Steps,
    timer,
    trace::What,
};

#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    seed: u64,
    net: Network,
    recorder: Recorder,
    nodes: Mutex<Vec<Node>>,
    steps: Steps,
    observer: Observer,
    on_disk_crash: OnDiskCrash,
}

struct Node {
    name: String,
    parts: NodeParts,
    /// The tasks of its last process.
    crew: Option<Arc<Crew>>,
    service: Option<Arc<dyn SimService>>,
    config: toml::Table,
    incarnation: u32,
    status: Status,
    shutdown: Shutdown,
    inspector: Inspector,
    env: Option<Env>,
    paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Never started, or dead.
    Down,
    Up,
    /// Ended by itself.
    Stopped,
}

impl World {
    pub fn new(seed: u64, link: Link, recorder: Recorder) -> Self {
        Self::counted(seed, link, recorder, Steps::default())
    }

    /// A world whose steps are counted by the caller's counter.
    pub fn counted(seed: u64, link: Link, recorder: Recorder, steps: Steps) -> Self {
        let inner = Arc::new_cyclic(|world: &Weak<Inner>| Inner {
            seed,
            net: Network::new(seed::stream(seed, "net"), link),
            observer: observer(recorder.clone()),
            on_disk_crash: on_disk_crash(world.clone()),
            recorder,
            nodes: Mutex::default(),
            steps,
        });
        World { inner }
    }

    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    pub fn net(&self) -> &Network {
        &self.inner.net
    }

    pub fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }

    /// Adds a node that is down. Without a service it is a place for clients.
    pub fn add_node(
        &self,
        name: &str,
        service: Option<Arc<dyn SimService>>,
        config: toml::Table,
    ) -> NodeId {
        let mut nodes = self.lock();
        let id = NodeId(nodes.len() as u32);
        let disk = SimDisk::new(seed::pick(
            &mut seed::stream(self.inner.seed, &format!("disk {name}")),
            0,
            u64::MAX,
        ));
        disk.set_faults(crate::faults::untroubled());
        if let Some(service) = &service {
            service.prepare(&disk);
        }
        self.inner.recorder.add_node(name);
        self.inner.net.add_host(name, id, id.default_ip());
        let felt = self.inner.net.felt(id);
        disk.note_in(felt.clone());
        let parts = NodeParts {
            id,
            clock: Arc::new(NodeClock::noting(felt.clone())),
            disk,
            chaos: Arc::new(Chaos::new(felt.clone())),
            settings: Arc::default(),
            net: self.inner.net.clone(),
            felt,
            observer: self.inner.observer.clone(),
            on_disk_crash: self.inner.on_disk_crash.clone(),
        };
        nodes.push(Node {
            name: name.to_owned(),
            parts,
            crew: None,
            service,
            config,
            incarnation: 0,
            status: Status::Down,
            shutdown: Shutdown::new(),
            inspector: Inspector::default(),
            env: None,
            paused: false,
        });
        id
    }

    /// Starts a new process on a node that is down; one that runs is left alone.
    pub fn start(&self, id: NodeId) {
        let mut nodes = self.lock();
        let node = &mut nodes[id.0 as usize];
        if node.status == Status::Up {
            return;
        }
        node.incarnation += 1;
        node.status = Status::Up;
        node.paused = false;
        node.shutdown = Shutdown::new();
        node.inspector = Inspector::default();
        let incarnation = Incarnation(node.incarnation);
        // A fresh set of tasks: whatever the last incarnation left behind dies with its own.
        let crew = Crew::new(Some((self.inner.steps.clone(), self.on_spin(id))));
        if let Some(old) = node.crew.replace(crew.clone()) {
            old.kill();
        }
        self.inner.net.host_up(id, incarnation);
        let entropy = seed::stream(
            self.inner.seed,
            &format!("entropy {} {}", node.name, node.incarnation),
        );
        let runtime = SimRuntime::new(node.parts.clone(), incarnation, crew.clone(), entropy);
        let env = Env::new(runtime.clone());
        node.env = Some(env.clone());
        let Some(service) = node.service.clone() else {
            return;
        };
        let context = ProcessContext {
            env,
            config: node.config.clone(),
            shutdown: node.shutdown.clone(),
            incarnation: node.incarnation,
            seed: self.inner.seed,
            inspector: node.inspector.clone(),
            chaos: node.parts.chaos.clone(),
            settings: node.parts.settings.clone(),
        };
        drop(nodes);
        self.inner.recorder.record(
            Some(id),
            What::Started {
                incarnation: incarnation.0,
            },
        );
        let world = self.clone();
        let alive = crew.clone();
        let process = async move {
            let mut report = service.run(context).await;
            runtime.close_idle();
            // Connections that were cut in this moment end at their next turn.
            alive.settle().await;
            report.alive = alive.live_names();
            world.process_ended(id, incarnation, report);
        };
        crew.spawn("main", Box::pin(process));
    }

    fn on_spin(&self, id: NodeId) -> OnSpin {
        let recorder = self.inner.recorder.clone();
        Arc::new(move |task| {
            let name = recorder.node_name(id);
            let why = format!("{name}: the task {task} or another one spins");
            recorder.violate(NO_SPIN, why);
        })
    }

    /// The service returned: the process exits, and its machine closes what it left open.
    fn process_ended(
        &self,
        id: NodeId,
        incarnation: Incarnation,
        report: crate::trace::StopReport,
    ) {
        let crew = {
            let mut nodes = self.lock();
            let node = &mut nodes[id.0 as usize];
            if node.incarnation != incarnation.0 || node.status != Status::Up {
                return;
            }
            node.status = Status::Stopped;
            node.env = None;
            node.crew.clone()
        };
        self.inner
            .recorder
            .record(Some(id), What::Stopped { report });
        self.inner.net.process_died(id);
        self.node_parts(id).disk.kill();
        if let Some(crew) = crew {
            crew.kill();
        }
    }

    pub fn ask_shutdown(&self, id: NodeId) {
        let shutdown = {
            let nodes = self.lock();
            let node = &nodes[id.0 as usize];
            if node.status != Status::Up {
                return;
            }
            node.shutdown.clone()
        };
        self.inner.recorder.record(Some(id), What::ShutdownAsked);
        shutdown.trigger();
    }

    pub fn die(&self, id: NodeId, how: Death, why: &'static str) {
        let incarnation = Incarnation(self.lock()[id.0 as usize].incarnation);
        self.die_if(id, incarnation, how, why);
    }

    fn die_if(&self, id: NodeId, incarnation: Incarnation, how: Death, why: &'static str) {
        let (crew, disk) = {
            let mut nodes = self.lock();
            let node = &mut nodes[id.0 as usize];
            if node.incarnation != incarnation.0 || node.status != Status::Up {
                return;
            }
            node.status = Status::Down;
            node.env = None;
            node.paused = false;
            (node.crew.clone(), node.parts.disk.clone())
        };
        self.inner
            .recorder
            .record(Some(id), What::Died { how: why });
        // First the world forgets the process, then its tasks go: what they do while they fall apart, such as
        // those of a paused node at once, is not heard any more.
        match how {
            Death::Process => {
                self.inner.net.process_died(id);
                disk.kill();
            }
            Death::Power => {
                self.inner.net.powered_off(id);
                disk.power_off();
            }
        }
        if let Some(crew) = crew {
            crew.kill();
        }
    }

    /// A node that is down will never come back: what it had is thrown away, its disk too. Whoever looks at it finds
    /// nothing.
    pub fn scrap(&self, id: NodeId) {
        let mut nodes = self.lock();
        let node = &mut nodes[id.0 as usize];
        if node.status == Status::Up {
            return;
        }
        node.crew = None;
        node.service = None;
        node.inspector = Inspector::default();
        node.parts.disk = SimDisk::new(0);
    }

    /// Kills the process, if it lives, and starts a new one at once.
    pub fn restart(&self, id: NodeId) {
        self.die(id, Death::Process, "restarted");
        self.start(id);
    }

    pub fn pause(&self, id: NodeId) {
        let mut nodes = self.lock();
        let node = &mut nodes[id.0 as usize];
        if node.status == Status::Up && !node.paused {
            node.paused = true;
            node.crew.iter().for_each(|crew| crew.pause());
        }
    }

    pub fn resume(&self, id: NodeId) {
        let mut nodes = self.lock();
        let node = &mut nodes[id.0 as usize];
        if std::mem::take(&mut node.paused) {
            node.crew.iter().for_each(|crew| crew.resume());
        }
    }

    /// Makes up to `count` live tasks of a kind panic where they stand; returns how many it struck.
    pub fn panic_tasks(&self, id: NodeId, kind: &str, count: usize, rng: &mut SimRng) -> usize {
        let inspector = self.lock()[id.0 as usize].inspector.clone();
        let Some(supervisor) = inspector.with(|shown| shown.supervisor.clone()) else {
            return 0;
        };
        let mut alive: Vec<_> = supervisor.status().tasks;
        alive.retain(|task| task.kind == kind && task.state == "alive");
        let mut struck = 0;
        while struck < count && !alive.is_empty() {
            let chosen = seed::pick(rng, 0, alive.len() as u64 - 1) as usize;
            struck += usize::from(supervisor.kill(alive.swap_remove(chosen).id));
        }
        struck
    }

    // ------------------------------------------------------------------------------- looking

    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.lock()
            .iter()
            .position(|n| n.name == name)
            .map(|n| NodeId(n as u32))
    }

    pub fn status(&self, id: NodeId) -> Status {
        self.lock()[id.0 as usize].status
    }

    /// Asked to stop, and not done yet.
    pub fn is_stopping(&self, id: NodeId) -> bool {
        let nodes = self.lock();
        let node = &nodes[id.0 as usize];
        node.status == Status::Up && node.shutdown.is_triggered()
    }

    pub fn env(&self, id: NodeId) -> Option<Env> {
        self.lock()[id.0 as usize].env.clone()
    }

    /// Another process on a node that is up: the same host, but connections and randomness of its own.
    pub fn second_env(&self, id: NodeId) -> Option<Env> {
        let nodes = self.lock();
        let node = &nodes[id.0 as usize];
        let crew = node.crew.clone()?;
        let incarnation = Incarnation(node.incarnation);
        let entropy = seed::stream(
            self.inner.seed,
            &format!("entropy {} {} second", node.name, node.incarnation),
        );
        let runtime = SimRuntime::new(node.parts.clone(), incarnation, crew, entropy);
        Some(Env::new(runtime))
    }

    pub fn node_parts(&self, id: NodeId) -> NodeParts {
        self.lock()[id.0 as usize].parts.clone()
    }

    pub fn name(&self, id: NodeId) -> String {
        self.lock()[id.0 as usize].name.clone()
    }

    /// The service of a node; empty if it has none.
    pub fn service_of(&self, id: NodeId) -> &'static str {
        let nodes = self.lock();
        nodes[id.0 as usize]
            .service
            .as_ref()
            .map_or("", |s| s.name())
    }

    /// The settings of a node.
    pub fn config_of(&self, id: NodeId) -> toml::Table {
        self.lock()[id.0 as usize].config.clone()
    }

    pub fn node_ids(&self) -> Vec<NodeId> {
        (0..self.lock().len() as u32).map(NodeId).collect()
    }

    /// Nodes that run a service, in order, each with its port.
    pub fn service_nodes(&self) -> Vec<(NodeId, u16)> {
        let nodes = self.lock();
        nodes
            .iter()
            .enumerate()
            .filter_map(|(n, node)| Some((NodeId(n as u32), node.service.as_ref()?.port())))
            .collect()
    }

    pub fn view(&self) -> WorldView {
        let nodes = self.lock();
        let views = nodes.iter().enumerate().map(|(n, node)| {
            let (queues, tasks) = node.inspector.with(|shown| {
                let queues = shown.queues.iter().map(|q| q.stats()).collect();
                let tasks = shown
                    .supervisor
                    .as_ref()
                    .map_or_else(BTreeMap::new, TaskView::tasks);
                (queues, tasks)
            });
            NodeView {
                id: n as u32,
                name: node.name.clone(),
                service: node.service.as_ref().map_or("", |s| s.name()),
                up: node.status == Status::Up,
                incarnation: node.incarnation,
                queues,
                tasks,
                disk: node.parts.disk.clone(),
            }
        });
        WorldView {
            at: timer::elapsed(),
            nodes: views.collect(),
        }
    }

    /// Asks the oracles to look at the world, again and again, for as long as the run lasts.
    pub async fn keep_sampling(&self, every: Duration) {
        loop {
            timer::sleep(every).await;
            self.inner.recorder.sample(&self.view());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Node>> {
        self.inner.nodes.lock().unwrap()
    }
}

/// Takes the probes of every node.
fn observer(recorder: Recorder) -> Observer {
    Arc::new(move |node, event, id, detail| {
        if crate::conformance::is_spec(event) {
            return recorder.spec(node, event, id, detail);
        }
        let detail = detail.to_string();
        recorder.record(Some(node), What::Probe { event, id, detail });
    })
}

fn on_disk_crash(world: Weak<Inner>) -> OnDiskCrash {
    Arc::new(move |node, incarnation, how| {
        if let Some(inner) = world.upgrade() {
            let why = match how {
                Death::Power => "in a disk operation",
                Death::Process => "killed in a disk operation",
            };
            World { inner }.die_if(node, incarnation, how, why);
        }
    })
}
