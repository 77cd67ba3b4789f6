//! mainline: its own local network for tests, every routing table filled by it. A thread for each node.
//!
//! It asks `get` and not `find_node`: the nodes of such a network have nobody to begin with, and such a node takes the target of
//! every `find_node` for the id of who asks. After a few hundred of them its tables are full of nodes that do not exist.

use std::fs;

use mainline::{Dht, Id, Testnet, async_dht::AsyncDht};

use crate::{
    NODES,
    drive::{Found, Network, nearest, node_of},
};

pub struct Mainline {
    nodes: Vec<(AsyncDht, Vec<u8>)>,
}

impl Mainline {
    pub fn start() -> Mainline {
        let network = Testnet::builder(NODES).build().expect("a network");
        let with_id = |node: Dht| {
            #[allow(deprecated, reason = "nobody else runs here yet")]
            let id = node.info().id().as_bytes().to_vec();
            (node.as_async(), id)
        };
        Mainline {
            nodes: network.nodes.into_iter().map(with_id).collect(),
        }
    }
}

impl Network for Mainline {
    async fn lookup(&self, asker: usize, target: [u8; 32]) -> Option<Found> {
        let target = Id::from_bytes(&target[..20]).ok()?;
        let found = self.nodes[node_of(asker)].0.get_closest_nodes(target).await;
        Some(Found {
            closest: found.iter().map(|n| n.id().as_bytes().to_vec()).collect(),
            requests: 0,
        })
    }

    fn closest(&self, asker: usize, target: [u8; 32]) -> Vec<Vec<u8>> {
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(n, _)| *n != node_of(asker));
        nearest(others.map(|(_, (_, id))| id.clone()), &target[..20])
    }

    fn datagrams(&self) -> Option<u64> {
        let text = fs::read_to_string("/proc/self/net/snmp").ok()?;
        let line = text
            .lines()
            .filter(|line| line.starts_with("Udp:"))
            .nth(1)?;
        line.split_whitespace().nth(4)?.parse().ok()
    }

    fn warm_lookups(&self) -> usize {
        10
    }
}
