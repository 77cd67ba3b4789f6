//! What goes into a queue comes out, or is counted: accepted + refused = offered, and
//! accepted = delivered + dropped + waiting.

use super::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};

pub const KIND: OracleKind = OracleKind {
    name: "queue.conserves",
    law: "accepted + refused = offered; accepted = delivered + dropped + waiting",
    premise: EVERYWHERE,
    make: || Box::new(QueueConserves),
};

struct QueueConserves;

impl Oracle for QueueConserves {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn sample(&mut self, view: &WorldView) -> Verdict {
        for node in &view.nodes {
            for q in &node.queues {
                let at = format!("{} queue {}", node.name, q.name);
                if q.accepted + q.refused != q.offered {
                    let (a, r, o) = (q.accepted, q.refused, q.offered);
                    return Err(format!("{at}: {a} accepted + {r} refused, but {o} offered"));
                }
                if q.delivered + q.dropped + q.depth as u64 != q.accepted {
                    let (a, d, x, w) = (q.accepted, q.delivered, q.dropped, q.depth);
                    return Err(format!(
                        "{at}: {a} accepted, but {d} delivered + {x} dropped + {w} waiting"
                    ));
                }
            }
        }
        Ok(())
    }
}
