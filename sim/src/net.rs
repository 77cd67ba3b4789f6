//! The simulated network: hosts, links and what can go wrong between them.
//!
//! It behaves like TCP between machines, not like channels in a process: bytes take time, a full
//! window pushes back, a dead process resets its connections but a dead machine says nothing, a
//! partition delays bytes until it heals, and a connect to a silent host hangs.

mod listener;
mod stream;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeBounds,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ron_core::seam::{Conn, Listener};

use crate::{
    detail::Message,
    felt::Felt,
    seed::{self, SimRng},
    timer,
};
use listener::{Backlog, SimListener};
pub use stream::SimStream;
use stream::Wire;

/// A node's place in the world, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Every node lives in a /24 of its own unless its scenario says otherwise.
    pub fn default_ip(self) -> IpAddr {
        let n = self.0 + 1;
        IpAddr::V4(Ipv4Addr::new(10, (n >> 8) as u8, n as u8, 1))
    }
}

/// Which process of a node: it grows at every start, and what belongs to an older one is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    Up(Incarnation),
    /// The machine answers, nobody listens: connects are refused.
    ProcessDown,
    /// The machine is silent: connects hang.
    PoweredOff,
}

/// How one direction between two nodes behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub latency: (Duration, Duration),
    /// How latency lies between the two: evenly, or by an exponential curve of this rate, near the shorter
    /// one as a rule and cut at the longer.
    pub latency_curve: Option<f64>,
    /// How many times longer than that it takes.
    pub latency_factor: u32,
    /// Lost segments in 10,000: each costs a retransmission.
    pub loss_per_10_000: u32,
    /// 0 means unlimited.
    pub bytes_per_s: u64,
    pub blocked: bool,
    /// New connections over it hang, old ones work.
    pub connects_hang: bool,
    /// Segments in 10,000 that come twice. The receiver throws the copy away; it costs the rate of a slow link.
    pub duplicate_per_10_000: u32,
    /// Segments in 10,000 that come late by up to `reorder_by`: a stream is ordered, so what was sent after
    /// one waits for it.
    pub reorder_per_10_000: u32,
    pub reorder_by: Duration,
}

impl Link {
    fn draw_latency(&self, rng: &mut SimRng) -> Duration {
        let drawn = match self.latency_curve {
            None => seed::pick_duration(rng, self.latency),
            Some(rate) => seed::pick_on_curve(rng, self.latency, rate),
        };
        if self.latency_factor == 1 {
            return drawn;
        }
        drawn * self.latency_factor
    }
}

impl Default for Link {
    fn default() -> Self {
        Link {
            latency: (Duration::from_micros(50), Duration::from_micros(800)),
            latency_curve: None,
            latency_factor: 1,
            loss_per_10_000: 0,
            bytes_per_s: 0,
            blocked: false,
            connects_hang: false,
            duplicate_per_10_000: 0,
            reorder_per_10_000: 0,
            reorder_by: Duration::ZERO,
        }
    }
}

/// First and greatest retransmission time of a lost segment or an unanswered SYN.
const RETRANSMIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// So often in a row a segment is lost at most, so that a link which loses everything ends too.
const MOST_LOSSES: u32 = 15;
/// Connections that wait to be accepted; more are not answered.
const BACKLOG: usize = 1024;
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    tap: OnceLock<Tap>,
}

/// Sees every message as it is sent.
type Tap = Box<dyn Fn(Message) + Send + Sync>;

struct State {
    rng: SimRng,
    default_link: Link,
    links: BTreeMap<(NodeId, NodeId), Link>,
    hosts: BTreeMap<IpAddr, NodeId>,
    /// By node number.
    nodes: Vec<Arc<Host>>,
    names: BTreeMap<String, Vec<IpAddr>>,
    listeners: BTreeMap<SocketAddr, Arc<Mutex<Backlog>>>,
    /// Open connections by node and number: each stands under both of its nodes, in the order they were made.
    wires: BTreeMap<(NodeId, u64), Weak<Wire>>,
    next_port: u16,
    /// Connections ever made; each has its number from here.
    connects: u64,
}

struct Host {
    node: NodeId,
    ip: IpAddr,
    /// A [`HostState`]; every read and write of a stream looks at it.
    state: AtomicU64,
    /// By how many nanoseconds what its processes send is late.
    late_ns: AtomicU64,
    felt: Arc<Felt>,
}

impl Host {
    fn state(&self) -> HostState {
        match self.state.load(Relaxed) {
            0 => HostState::ProcessDown,
            1 => HostState::PoweredOff,
            up => HostState::Up(Incarnation((up - 2) as u32)),
        }
    }

    /// Returns what it was.
    fn set_state(&self, to: HostState) -> HostState {
        let before = self.state();
        let code = match to {
            HostState::ProcessDown => 0,
            HostState::PoweredOff => 1,
            HostState::Up(incarnation) => u64::from(incarnation.0) + 2,
        };
        self.state.store(code, Relaxed);
        before
    }
}

impl Network {
    pub fn new(rng: SimRng, default_link: Link) -> Self {
        let state = State {
            rng,
            default_link,
            links: BTreeMap::new(),
            hosts: BTreeMap::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            listeners: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_port: FIRST_EPHEMERAL_PORT,
            connects: 0,
        };
        Network {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                tap: OnceLock::new(),
            }),
        }
    }

    pub fn add_host(&self, name: &str, node: NodeId, ip: IpAddr) {
        let mut state = self.lock();
        state.names.insert(name.to_owned(), vec![ip]);
        state.hosts.insert(ip, node);
        assert_eq!(
            state.nodes.len(),
            node.0 as usize,
            "nodes are added in order"
        );
        let host = Host {
            node,
            ip,
            state: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            felt: Arc::default(),
        };
        host.set_state(HostState::ProcessDown);
        state.nodes.push(Arc::new(host));
    }

    /// Where the faults that the host felt are noted.
    pub fn felt(&self, node: NodeId) -> Arc<Felt> {
        self.lock().host_of(node).felt.clone()
    }

    /// Shows every message from now on. Only the first tap counts.
    pub fn tap(&self, see: impl Fn(Message) + Send + Sync + 'static) {
        let _ = self.shared.tap.set(Box::new(see));
    }

    /// From now on the name has these addresses, in this order; whose they are, if anybody's, is not asked.
    pub fn set_name(&self, name: &str, addresses: Vec<IpAddr>) {
        self.lock().names.insert(name.to_owned(), addresses);
    }

    /// Nothing if there is no such host.
    pub fn resolve(&self, host: &str) -> Vec<IpAddr> {
        match host.parse() {
            Ok(literal) => vec![literal],
            Err(_) => self.lock().names.get(host).cloned().unwrap_or_default(),
        }
    }

    // ----------------------------------------------------------------- what happens to hosts

    pub fn host_up(&self, node: NodeId, incarnation: Incarnation) {
        let host = self.lock().host_of(node).clone();
        if host.set_state(HostState::Up(incarnation)) == HostState::PoweredOff {
            // The machine knows nothing of its old connections and resets whoever talks to it.
            self.each_wire_of(node, |wire, _| wire.reset_dead_ends());
        }
    }

    /// The process died. Its machine closes for it, so peers that can be reached see a reset.
    pub fn process_died(&self, node: NodeId) {
        self.take_down(node, HostState::ProcessDown);
    }

    /// The machine died. Nobody is told.
    pub fn powered_off(&self, node: NodeId) {
        self.take_down(node, HostState::PoweredOff);
    }

    fn take_down(&self, node: NodeId, to: HostState) {
        {
            let mut state = self.lock();
            state.host_of(node).set_state(to);
            let ip = state.ip_of(node);
            let its = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
            let its: Vec<SocketAddr> = state.listeners.range(its).map(|(addr, _)| *addr).collect();
            for addr in its {
                state.listeners.remove(&addr);
            }
        }
        self.each_wire_of(node, |wire, side| {
            wire.owner_died(side, to == HostState::ProcessDown)
        });
    }

    /// Its processes are slow: everything they send leaves so much later. Its machine answers connects as before.
    pub fn slow_down(&self, node: NodeId, by: Duration) {
        let host = self.lock().host_of(node).clone();
        host.late_ns.store(by.as_nanos() as u64, Relaxed);
    }

    // ----------------------------------------------------------------- what happens to links

    /// Changes both or one direction between two nodes.
    pub fn set_link(&self, from: NodeId, to: NodeId, change: impl FnOnce(&mut Link)) {
        let mut state = self.lock();
        let default = state.default_link;
        let link = state.links.entry((from, to)).or_insert(default);
        let was_blocked = link.blocked;
        change(link);
        let unblocked = was_blocked && !link.blocked;
        drop(state);
        if unblocked {
            self.each_wire_of(from, |wire, _| wire.release_stalled());
        }
    }

    /// All links are as on the first day.
    pub fn heal(&self) {
        self.lock().links.clear();
        for wire in self.wires(..) {
            wire.release_stalled();
        }
    }

    /// Open connections of a node are reset at both ends.
    pub fn reset_connections(&self, node: NodeId) -> usize {
        let mut hit = 0;
        self.each_wire_of(node, |wire, _| hit += usize::from(wire.reset_both()));
        hit
    }

    /// Open connections of a node go silent for ever: what is sent on them arrives nowhere.
    pub fn silence_connections(&self, node: NodeId) -> usize {
        let mut hit = 0;
        self.each_wire_of(node, |wire, _| hit += usize::from(wire.go_silent()));
        hit
    }

    /// Open wires, for inspection.
    pub fn open_wires(&self, node: NodeId) -> usize {
        let mut open = 0;
        self.each_wire_of(node, |wire, side| open += usize::from(wire.is_open(side)));
        open
    }

    pub fn connects(&self) -> u64 {
        self.lock().connects
    }

    fn each_wire_of(&self, node: NodeId, mut act: impl FnMut(&Wire, usize)) {
        for wire in self.wires((node, 0)..=(node, u64::MAX)) {
            for side in 0..2 {
                if wire.node(side) == node {
                    act(&wire, side);
                }
            }
        }
    }

    /// Live wires in the order of their nodes and then of their making, so that what is done to them all is
    /// repeatable.
    fn wires(&self, of: impl RangeBounds<(NodeId, u64)>) -> Vec<Arc<Wire>> {
        let state = self.lock();
        let wires = state.wires.range(of);
        wires.filter_map(|(_, wire)| wire.upgrade()).collect()
    }

    // ------------------------------------------------------------------ listening, connecting

    pub fn listen(
        &self,
        node: NodeId,
        incarnation: Incarnation,
        addr: SocketAddr,
    ) -> io::Result<Box<dyn Listener>> {
        let mut state = self.lock();
        state.check_alive(node, incarnation)?;
        let ip = if addr.ip().is_unspecified() || addr.ip().is_loopback() {
            state.ip_of(node)
        } else {
            addr.ip()
        };
        if state.hosts.get(&ip) != Some(&node) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut addr = SocketAddr::new(ip, addr.port());
        if addr.port() == 0 {
            addr.set_port(state.free_port());
            // Their numbers come round again.
            while state.listeners.contains_key(&addr) {
                addr.set_port(state.free_port());
            }
        }
        if state.listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let backlog = Arc::new(Mutex::new(Backlog::default()));
        state.listeners.insert(addr, backlog.clone());
        let net = self.clone();
        let listener = SimListener::new(net, addr, (node, incarnation), backlog);
        Ok(Box::new(listener))
    }

    pub async fn connect(
        &self,
        node: NodeId,
        incarnation: Incarnation,
        to: SocketAddr,
    ) -> io::Result<Conn> {
        let mut retry = RETRANSMIT.0 * 5;
        loop {
            let there = self.latency(node, to.ip());
            timer::sleep(there).await;
            match self.syn(node, incarnation, to)? {
                Syn::Silence => {
                    timer::sleep(retry).await;
                    retry = (retry * 2).min(RETRANSMIT.1);
                }
                Syn::Refused(back) => {
                    timer::sleep(back).await;
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Syn::Accepted(stream, back) => {
                    timer::sleep(back).await;
                    return Ok(Box::new(stream));
                }
            }
        }
    }

    /// What the SYN finds when it arrives.
    fn syn(&self, node: NodeId, incarnation: Incarnation, to: SocketAddr) -> io::Result<Syn> {
        let mut state = self.lock();
        state.check_alive(node, incarnation)?;
        let to = if to.ip().is_loopback() {
            SocketAddr::new(state.ip_of(node), to.port())
        } else {
            to
        };
        let Some(&peer) = state.hosts.get(&to.ip()) else {
            return Ok(Syn::Silence);
        };
        let up = state.host_of(peer).state();
        let (there, back) = (state.link(node, peer), state.link(peer, node));
        if there.blocked || back.blocked {
            state.feel(node, peer, "net.partition");
            return Ok(Syn::Silence);
        }
        if there.connects_hang {
            state.feel(node, peer, "net.connect_hang");
            return Ok(Syn::Silence);
        }
        if up == HostState::PoweredOff {
            return Ok(Syn::Silence);
        }
        let latency = back.draw_latency(&mut state.rng);
        let (HostState::Up(peer_incarnation), Some(backlog)) =
            (up, state.listeners.get(&to).cloned())
        else {
            return Ok(Syn::Refused(latency));
        };
        let mut backlog = backlog.lock().unwrap();
        if backlog.waiting.len() >= BACKLOG {
            return Ok(Syn::Silence);
        }
        let from = SocketAddr::new(state.ip_of(node), state.free_port());
        let wire = state.wire(self, (node, incarnation), (peer, peer_incarnation));
        backlog
            .waiting
            .push_back((SimStream::new(wire.clone(), 1), from));
        if let Some(acceptor) = backlog.acceptor.take() {
            acceptor.wake();
        }
        Ok(Syn::Accepted(SimStream::new(wire, 0), latency))
    }

    fn latency(&self, from: NodeId, to: IpAddr) -> Duration {
        let mut state = self.lock();
        let to = state.hosts.get(&to).copied().unwrap_or(from);
        let link = state.link(from, to);
        link.draw_latency(&mut state.rng)
    }

    /// What a segment of `len` bytes needs from one node to the other; `None` if the link is cut.
    fn transit(&self, from: NodeId, to: NodeId, len: usize) -> Option<Transit> {
        let mut state = self.lock();
        let link = state.link(from, to);
        if link.blocked {
            state.feel(from, to, "net.partition");
            return None;
        }
        let mut travel = link.draw_latency(&mut state.rng);
        if link.latency_factor > 1 {
            state.feel(from, to, "net.latency");
        }
        travel += Duration::from_nanos(state.host_of(from).late_ns.load(Relaxed));
        let mut retransmit = RETRANSMIT.0;
        for _ in 0..MOST_LOSSES {
            if !seed::chance(&mut state.rng, link.loss_per_10_000) {
                break;
            }
            state.feel(from, to, "net.loss");
            travel += retransmit;
            retransmit = (retransmit * 2).min(RETRANSMIT.1);
        }
        if seed::chance(&mut state.rng, link.reorder_per_10_000) {
            state.feel(from, to, "net.reorder");
            travel += seed::pick_duration(&mut state.rng, (Duration::ZERO, link.reorder_by));
        }
        let ns = (len as u64 * 1_000_000_000).checked_div(link.bytes_per_s);
        let mut departure_ns = ns.unwrap_or(0);
        if departure_ns > 0 {
            state.feel(from, to, "net.slow");
        }
        if seed::chance(&mut state.rng, link.duplicate_per_10_000) {
            state.feel(from, to, "net.duplicate");
            departure_ns *= 2;
        }
        Some(Transit {
            departure_ns,
            travel_ns: travel.as_nanos() as u64,
        })
    }

    /// After a heal the sender finds out only at its next retransmission.
    fn retransmission(&self) -> Duration {
        seed::pick_duration(&mut self.lock().rng, (Duration::ZERO, RETRANSMIT.0))
    }

    pub fn is_up(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.lock().host_of(node).state() == HostState::Up(incarnation)
    }

    fn forget(&self, wire: &Wire) {
        // A world that falls apart after a panic is not worth another one.
        if let Ok(mut state) = self.shared.state.lock() {
            for side in 0..2 {
                state.wires.remove(&(wire.node(side), wire.number()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }
}

/// How long a segment needs.
struct Transit {
    /// To leave, while nothing behind it can: the link's rate.
    departure_ns: u64,
    travel_ns: u64,
}

enum Syn {
    Silence,
    Refused(Duration),
    Accepted(SimStream, Duration),
}

impl State {
    fn host_of(&self, node: NodeId) -> &Arc<Host> {
        &self.nodes[node.0 as usize]
    }

    /// Both ends of a link feel what is wrong with it.
    fn feel(&self, a: NodeId, b: NodeId, kind: &str) {
        for node in [a, b] {
            self.nodes[node.0 as usize].felt.note(kind);
        }
    }

    fn ip_of(&self, node: NodeId) -> IpAddr {
        self.nodes[node.0 as usize].ip
    }

    fn link(&self, from: NodeId, to: NodeId) -> Link {
        if self.links.is_empty() {
            return self.default_link;
        }
        self.links
            .get(&(from, to))
            .copied()
            .unwrap_or(self.default_link)
    }

    fn check_alive(&self, node: NodeId, incarnation: Incarnation) -> io::Result<()> {
        if self.host_of(node).state() == HostState::Up(incarnation) {
            Ok(())
        } else {
            Err(stale())
        }
    }

    fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self
            .next_port
            .checked_add(1)
            .unwrap_or(FIRST_EPHEMERAL_PORT);
        port
    }

    fn wire(
        &mut self,
        net: &Network,
        client: (NodeId, Incarnation),
        server: (NodeId, Incarnation),
    ) -> Arc<Wire> {
        let number = self.connects;
        self.connects += 1;
        let ends = [client, server].map(|(node, life)| (self.host_of(node).clone(), life));
        let wire = Arc::new(Wire::new(net.clone(), number, ends));
        for (node, _) in [client, server] {
            self.wires.insert((node, number), Arc::downgrade(&wire));
        }
        wire
    }
}

/// What a handle gets whose process is gone.
pub fn stale() -> io::Error {
    io::Error::other("stale incarnation: the process that owned this handle is gone")
}
