//! The nodes of a world, each the whole service on a machine of its own, and what is true of them: who lives, who is
//! nearest to what.
//!
//! A fleet starts warm, as after a restart of all its machines: every node finds its key and its saved table on its
//! disk. Who joins later starts cold, from seeds.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ron_core::{config::ConfigErrors, readiness::Readiness, seam::BoxFuture};
use sim::{
    dht::{self, IDENTITY, PEER_PORT},
    disk::Death,
    disk::{Image, SimDisk},
    executor,
    net::{Link, NodeId},
    recorder::Recorder,
    seed::{self, SimRng, pick},
    service::{ProcessContext, SimService},
    timer,
    trace::StopReport,
    world::{Status, World},
};
use svc_dht::{
    config::Config,
    contact::Contact,
    dht::Dht,
    id::Id,
    identity::{Identity, NetworkId},
    refresher,
    routing::saved,
    topology,
};

use crate::tables::Everybody;

/// What a fleet is made from.
#[derive(Clone)]
pub struct Terms {
    pub seed: u64,
    /// Those that are there from the start.
    pub nodes: usize,
    pub link: Link,
    /// What all nodes are set to; seeds are added.
    pub config: Config,
    /// Nodes that others name as seeds; they never leave.
    pub seeds: usize,
}

/// Seeds that one node names.
const SEEDS_NAMED: usize = 3;

/// Cheap to clone.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    world: World,
    seed: u64,
    /// Read-only, and shared by all who name the same seeds.
    configs: Vec<Arc<Config>>,
    seeds: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: Vec<Arc<Member>>,
    /// Who has joined and was not told to go, by id.
    joined: BTreeMap<Id, usize>,
    /// The same, to draw from.
    order: Vec<usize>,
}

/// One node, as its world starts it.
struct Member {
    contact: Contact,
    secret: [u8; 32],
    config: Arc<Config>,
    /// Until it lies on its disk.
    saved: Mutex<Option<Vec<u8>>>,
    seat: Arc<Mutex<Option<Seat>>>,
}

/// What a running process shows of itself.
#[derive(Clone)]
pub struct Seat {
    pub dht: Dht,
    pub readiness: Readiness,
}

/// How a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    Drains,
    /// The process dies, its machine resets its connections.
    Crashes,
    /// Nobody hears of it again, and nobody is told.
    FallsSilent,
}

impl SimService for Member {
    fn name(&self) -> &'static str {
        topology::NAME
    }

    fn port(&self) -> u16 {
        dht::PORT
    }

    fn check_config(&self, _: &toml::Table) -> Result<(), ConfigErrors> {
        Ok(())
    }

    fn prepare(&self, disk: &SimDisk) {
        let put = |name, bytes: &[u8]| {
            let put = disk.preload(name, &Image::from(bytes));
            put.expect("the disk is empty");
        };
        put(IDENTITY, &self.secret);
        if let Some(saved) = locked(&self.saved).take() {
            put(refresher::FILE, &saved);
        }
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        let (config, seat) = (self.config.clone(), self.seat.clone());
        Box::pin(async move {
            let shown = seat.clone();
            let report = dht::run(process, config, move |service| {
                *locked(&shown) = Some(Seat {
                    dht: service.dht(),
                    readiness: service.readiness(),
                });
            });
            let report = report.await;
            *locked(&seat) = None;
            report
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// All nodes are made, with their disks; none is started.
    pub fn new(terms: &Terms) -> Fleet {
        let recorder = Recorder::new(Vec::new(), false, false);
        let world = World::new(terms.seed, terms.link, recorder);
        let seeds = terms.seeds.clamp(1, terms.nodes);
        let configs = (0..seeds).map(|first| {
            let mut config = terms.config.clone();
            let named = (first..first + SEEDS_NAMED.min(seeds)).map(|n| n % seeds);
            config.bootstrap.seeds = named.map(|n| format!("{}:{PEER_PORT}", name(n))).collect();
            Arc::new(config)
        });
        let fleet = Fleet(Arc::new(Inner {
            world,
            seed: terms.seed,
            configs: configs.collect(),
            seeds,
            state: Mutex::default(),
        }));
        let secrets: Vec<[u8; 32]> = (0..terms.nodes).map(|n| fleet.secret(n)).collect();
        let contacts: Vec<Contact> = secrets.iter().enumerate().map(contact).collect();
        let everybody = Everybody::new(contacts.clone());
        let network = NetworkId::of_name(&terms.config.network);
        let mut rng = fleet.stream("tables");
        for (secret, contact) in secrets.iter().zip(contacts) {
            let peers = everybody.table_of(&contact.id, terms.config.lookup.k, &mut rng);
            let saved = saved::encode(&network.0, &peers);
            fleet.add(*secret, contact, Some(saved));
        }
        fleet
    }

    /// Starts all nodes, evenly over `within`, and waits until each has found its network.
    pub async fn start(&self, within: Duration) {
        let count = self.count();
        for n in 0..count {
            self.0.world.start(NodeId(n as u32));
            timer::sleep(within / count as u32).await;
        }
        for n in 0..count {
            self.until_joined(n).await;
        }
    }

    /// A new node comes, cold; it counts once it is ready.
    pub async fn join(&self) {
        let n = self.count();
        let secret = self.secret(n);
        self.add(secret, contact((n, &secret)), None);
        self.0.world.start(NodeId(n as u32));
        self.until_joined(n).await;
    }

    /// Somebody goes who is no seed; from now on nobody counts on it.
    pub fn leave(&self, rng: &mut SimRng, how: Leaving) -> usize {
        let n = {
            let state = self.lock();
            loop {
                let at = pick(rng, 0, state.order.len() as u64 - 1) as usize;
                if state.order[at] >= self.0.seeds {
                    break state.order[at];
                }
            }
        };
        self.remove(n, how);
        n
    }

    /// Once it is down, nothing is left of who was told to go.
    pub async fn scrap(&self, n: usize) {
        let node = NodeId(n as u32);
        while self.0.world.status(node) == Status::Up {
            timer::sleep(Duration::from_secs(1)).await;
        }
        self.0.world.scrap(node);
    }

    pub fn remove(&self, n: usize, how: Leaving) {
        let member = {
            let mut state = self.lock();
            let member = state.members[n].clone();
            state.joined.remove(&member.contact.id);
            state.order.retain(|other| *other != n);
            member
        };
        let (world, node) = (&self.0.world, NodeId(n as u32));
        match how {
            Leaving::Drains => world.ask_shutdown(node),
            Leaving::Crashes => world.die(node, Death::Process, "it crashed"),
            Leaving::FallsSilent => world.die(node, Death::Power, "it fell silent"),
        }
        if how != Leaving::Drains {
            *locked(&member.seat) = None;
        }
    }

    // ------------------------------------------------------------------------------- looking

    pub fn world(&self) -> &World {
        &self.0.world
    }

    /// A generator of this fleet's seed.
    pub fn stream(&self, label: &str) -> SimRng {
        seed::stream(self.0.seed, label)
    }

    /// All that ever were.
    pub fn count(&self) -> usize {
        self.lock().members.len()
    }

    /// Who has joined and was not told to go.
    pub fn living(&self) -> Vec<usize> {
        self.lock().order.clone()
    }

    pub fn is_living(&self, id: &Id) -> bool {
        self.lock().joined.contains_key(id)
    }

    pub fn id(&self, n: usize) -> Id {
        self.lock().members[n].contact.id
    }

    pub fn seat(&self, n: usize) -> Option<Seat> {
        let member = self.lock().members[n].clone();
        locked(&member.seat).clone()
    }

    /// Anybody who has joined.
    pub fn anybody(&self, rng: &mut SimRng) -> usize {
        let state = self.lock();
        state.order[pick(rng, 0, state.order.len() as u64 - 1) as usize]
    }

    /// The living who are closest to the target, nearest first, without the asker.
    pub fn closest(&self, target: &Id, n: usize, asker: &Id) -> Vec<Id> {
        let state = self.lock();
        // Whoever shares more leading bits is closer than all who share fewer.
        let mut near: Vec<Id> = Vec::new();
        for bits in (0..=64).rev() {
            let (mut low, mut high) = (target.0, target.0);
            for bit in bits..256 {
                low[bit / 8] &= !(128 >> (bit % 8));
                high[bit / 8] |= 128 >> (bit % 8);
            }
            near = state
                .joined
                .range(Id(low)..=Id(high))
                .map(|(id, _)| *id)
                .collect();
            near.retain(|id| id != asker);
            if near.len() >= n {
                break;
            }
        }
        near.sort_by_key(|id| id.distance(target));
        near.truncate(n);
        near
    }

    // ------------------------------------------------------------------------------- helpers

    fn secret(&self, n: usize) -> [u8; 32] {
        let mut rng = self.stream(&format!("secret {n}"));
        let mut secret = [0; 32];
        for bytes in secret.chunks_mut(8) {
            bytes.copy_from_slice(&pick(&mut rng, 0, u64::MAX).to_be_bytes());
        }
        secret
    }

    fn add(&self, secret: [u8; 32], contact: Contact, saved: Option<Vec<u8>>) {
        let mut state = self.lock();
        let n = state.members.len();
        let configs = &self.0.configs;
        let member = Arc::new(Member {
            contact,
            secret,
            config: configs[n % configs.len()].clone(),
            saved: Mutex::new(saved),
            seat: Arc::default(),
        });
        state.members.push(member.clone());
        drop(state);
        self.0
            .world
            .add_node(&name(n), Some(member), toml::Table::new());
    }

    async fn until_joined(&self, n: usize) {
        /// Time between two looks.
        const LOOK: Duration = Duration::from_millis(250);
        loop {
            if self.seat(n).is_some_and(|seat| seat.readiness.is_ready()) {
                break;
            }
            timer::sleep(LOOK).await;
        }
        let mut state = self.lock();
        let id = state.members[n].contact.id;
        state.joined.insert(id, n);
        state.order.push(n);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }
}

fn name(n: usize) -> String {
    format!("n{n}")
}

fn contact((n, secret): (usize, &[u8; 32])) -> Contact {
    let ip = NodeId(n as u32).default_ip();
    Contact {
        id: Identity::from_seed(secret).id(),
        addr: SocketAddr::new(ip, PEER_PORT).into(),
    }
}

/// Does something `count` times, evenly spread over `within`, each beside the others; returns when all are done.
pub async fn spread<F: Future<Output = ()> + Send + 'static>(
    within: Duration,
    count: usize,
    mut act: impl FnMut(usize) -> F,
) {
    /// Time between two looks whether the last are done.
    const LOOK: Duration = Duration::from_millis(100);
    let began = timer::now();
    let running = Arc::new(());
    for n in 0..count {
        timer::sleep_until(began + within.mul_f64((n as f64 + 0.5) / count as f64)).await;
        let (act, held) = (act(n), running.clone());
        drop(executor::spawn(async move {
            act.await;
            drop(held);
        }));
    }
    timer::sleep_until(began + within).await;
    while Arc::strong_count(&running) > 1 {
        timer::sleep(LOOK).await;
    }
}
