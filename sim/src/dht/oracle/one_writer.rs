//! A bucket has one writer, and changes only while that one lives.

use std::collections::BTreeSet;

use super::{Changed, Running};
use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "dht.one_writer",
    law: "at most one writer of a bucket lives at a time, and a bucket changes only while its writer lives",
    premise: EVERYWHERE,
    make: || Box::new(OneWriter::default()),
};

#[derive(Default)]
struct OneWriter {
    running: Running,
    /// Node and bucket.
    writers: BTreeSet<(u32, u8)>,
}

impl Oracle for OneWriter {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let Some(node) = self.running.event(event) {
            self.writers.retain(|(on, _)| *on != node);
            return Ok(());
        }
        let (Some(node), What::Probe { event, id, detail }) = (event.node, &event.what) else {
            return Ok(());
        };
        match *event {
            "dht.writer_begun" => {
                let alone = self.writers.insert((node, *id as u8));
                let two = || format!("bucket {id} of node {node} has two writers");
                return alone.then_some(()).ok_or_else(two);
            }
            "dht.writer_ended" => {
                self.writers.remove(&(node, *id as u8));
            }
            "dht.bucket_added" | "dht.bucket_removed" | "dht.bucket_moved" => {
                let changed = Changed::parse(detail).ok_or_else(|| format!("{detail:?}"))?;
                if !self.writers.contains(&(node, changed.bucket)) {
                    let bucket = changed.bucket;
                    return Err(format!(
                        "bucket {bucket} of node {node} changed ({event}) while it had no writer"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
