//! libp2p-kad over TCP, Noise and Yamux, every routing table filled at the start. A task for each node and connection.
//!
//! Defaults: k = 20, alpha = 3. Nothing happens on a timer, and connections are kept for an hour. Those between two nodes that
//! do not ask are closed at once: they come of the search for peers that begins by itself, and two ends of all connections
//! must fit into one process's files.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder,
    kad::{self, GetClosestPeersOk, KBucketKey, Mode, QueryId, QueryResult, store::MemoryStore},
    noise,
    swarm::SwarmEvent,
    tcp, yamux,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    ASKERS, NODES,
    drive::{Found, Network, nearest, node_of},
};

type Node = Swarm<kad::Behaviour<MemoryStore>>;

pub struct Kad {
    nodes: Vec<(mpsc::Sender<Ask>, PeerId)>,
    dialled: Arc<AtomicU64>,
}

struct Ask {
    target: [u8; 32],
    reply: oneshot::Sender<Found>,
}

impl Kad {
    pub async fn start() -> Kad {
        let mut swarms: Vec<Node> = (0..NODES).map(|_| swarm()).collect();
        let mut places: Vec<(PeerId, Multiaddr)> = Vec::new();
        for swarm in &mut swarms {
            let place = loop {
                if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                    break address;
                }
            };
            places.push((*swarm.local_peer_id(), place));
        }
        let dialled = Arc::new(AtomicU64::new(0));
        let askers: Arc<HashSet<PeerId>> =
            Arc::new((0..ASKERS).map(|asker| places[node_of(asker)].0).collect());
        let mut nodes = Vec::new();
        for mut swarm in swarms {
            let me = *swarm.local_peer_id();
            for (peer, place) in places.iter().filter(|(peer, _)| *peer != me) {
                swarm.behaviour_mut().add_address(peer, place.clone());
            }
            let (asks, asked) = mpsc::channel(16);
            tokio::spawn(run(swarm, asked, askers.clone(), dialled.clone()));
            nodes.push((asks, me));
        }
        Kad { nodes, dialled }
    }
}

fn swarm() -> Node {
    let mut swarm = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(
            tcp::Config::default().nodelay(true),
            noise::Config::new,
            yamux::Config::default,
        )
        .expect("a transport")
        .with_behaviour(|key| {
            let me = key.public().to_peer_id();
            let mut config = kad::Config::default();
            config.set_periodic_bootstrap_interval(None);
            config.set_replication_interval(None);
            config.set_publication_interval(None);
            config.set_provider_publication_interval(None);
            let mut behaviour = kad::Behaviour::with_config(me, MemoryStore::new(me), config);
            behaviour.set_mode(Some(Mode::Server));
            behaviour
        })
        .expect("a behaviour")
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(3600)))
        .build();
    let place = "/ip4/127.0.0.1/tcp/0".parse().expect("an address");
    swarm.listen_on(place).expect("a port");
    swarm
}

async fn run(
    mut swarm: Node,
    mut asked: mpsc::Receiver<Ask>,
    askers: Arc<HashSet<PeerId>>,
    dialled: Arc<AtomicU64>,
) {
    let asks = askers.contains(swarm.local_peer_id());
    let mut waiting: HashMap<QueryId, oneshot::Sender<Found>> = HashMap::new();
    loop {
        let event = tokio::select! {
            biased;
            ask = asked.recv() => {
                let Some(Ask { target, reply }) = ask else { return };
                let query = swarm.behaviour_mut().get_closest_peers(target.to_vec());
                waiting.insert(query, reply);
                continue;
            }
            event = swarm.select_next_some() => event,
        };
        match event {
            SwarmEvent::Dialing { .. } => {
                dialled.fetch_add(1, Relaxed);
            }
            SwarmEvent::ConnectionEstablished { peer_id, .. }
                if !asks && !askers.contains(&peer_id) =>
            {
                let _ = swarm.disconnect_peer_id(peer_id);
            }
            SwarmEvent::Behaviour(kad::Event::OutboundQueryProgressed {
                id,
                result: QueryResult::GetClosestPeers(Ok(GetClosestPeersOk { peers, .. })),
                stats,
                step,
            }) if step.last => {
                if let Some(reply) = waiting.remove(&id) {
                    let _ = reply.send(Found {
                        closest: peers.iter().map(|peer| peer.peer_id.to_bytes()).collect(),
                        requests: stats.num_requests(),
                    });
                }
            }
            _ => {}
        }
    }
}

impl Network for Kad {
    async fn lookup(&self, asker: usize, target: [u8; 32]) -> Option<Found> {
        let (reply, found) = oneshot::channel();
        let ask = Ask { target, reply };
        self.nodes[node_of(asker)].0.send(ask).await.ok()?;
        found.await.ok()
    }

    fn closest(&self, asker: usize, target: [u8; 32]) -> Vec<Vec<u8>> {
        let key = |of: Vec<u8>| KBucketKey::new(of).hashed_bytes().to_vec();
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(n, _)| *n != node_of(asker));
        let by_key: HashMap<Vec<u8>, Vec<u8>> = others
            .map(|(_, (_, peer))| (key(peer.to_bytes()), peer.to_bytes()))
            .collect();
        let nearest = nearest(by_key.keys().cloned(), &key(target.to_vec()));
        nearest.iter().map(|key| by_key[key].clone()).collect()
    }

    fn dialled(&self) -> u64 {
        self.dialled.load(Relaxed)
    }

    fn warm_lookups(&self) -> usize {
        60
    }
}
