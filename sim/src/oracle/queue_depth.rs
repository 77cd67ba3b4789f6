//! A queue never holds more than its declared capacity. The high-water mark is kept by the queue under
//! its lock, so a moment between two samples cannot hide.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};

pub const KIND: OracleKind = OracleKind {
    name: "queue.depth_within_cap",
    law: "depth <= declared capacity at all times",
    premise: EVERYWHERE,
    make: || Box::new(QueueDepth),
};

struct QueueDepth;

impl Oracle for QueueDepth {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in &view.nodes {
            for queue in &node.queues {
                let deepest = queue.high_water.max(queue.depth);
                if deepest > queue.cap {
                    let (name, queue, cap) = (&node.name, queue.name, queue.cap);
                    return Err(format!(
                        "{name} queue {queue} held {deepest} of at most {cap}"
                    ));
                }
            }
        }
        Ok(())
    }
}
