//! What a picture of a run needs beyond its trace: typed events, messages with both ends, queue depths.
//!
//! A side channel: it is filled only when a run is to be explained, and nothing in it reaches the trace, so
//! a run watched closely has the same hash as one that is not.

use std::{collections::BTreeMap, time::Duration};

use crate::{oracle::WorldView, trace::Event};

#[derive(Clone, Debug, Default)]
pub struct Detail {
    pub nodes: Vec<String>,
    pub events: Vec<Event>,
    pub messages: Vec<Message>,
    /// Noted when a sample finds another depth than the one before.
    pub depths: Vec<Depth>,
    /// The node that a request went to, by its number.
    pub aims: BTreeMap<u64, u32>,
}

/// A segment on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    pub sent: Duration,
    /// `None`: held back by a partition.
    pub arrives: Option<Duration>,
    pub bytes: usize,
    /// `data`, `end` or `reset`.
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    pub at: Duration,
    pub node: u32,
    pub queue: &'static str,
    pub depth: usize,
    pub cap: usize,
}

impl Detail {
    /// Notes a request's target, given as `host:port`.
    pub fn aim(&mut self, request: u64, to: &str) {
        let host = to.split(':').next().unwrap_or(to);
        if let Some(node) = self.nodes.iter().position(|name| name == host) {
            self.aims.insert(request, node as u32);
        }
    }

    pub fn sample(&mut self, view: &WorldView) {
        for node in &view.nodes {
            for queue in &node.queues {
                let last = self
                    .depths
                    .iter()
                    .rfind(|d| d.node == node.id && d.queue == queue.name);
                if last.is_none_or(|last| last.depth != queue.depth) {
                    self.depths.push(Depth {
                        at: view.at,
                        node: node.id,
                        queue: queue.name,
                        depth: queue.depth,
                        cap: queue.cap,
                    });
                }
            }
        }
    }
}
