//! What a drill was told to be safe is found by every later process of its node.

use std::collections::BTreeMap;

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "kernel.drilled_is_durable",
    law: "a value written by the kernel's means is found after any death",
    premise: EVERYWHERE,
    make: || Box::new(DrilledIsDurable::default()),
};

/// The last value told as written, by node and file.
#[derive(Default)]
struct DrilledIsDurable(BTreeMap<(u32, String), u64>);

impl Oracle for DrilledIsDurable {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let (Some(node), What::Probe { event, id, detail }) = (event.node, &event.what) else {
            return Ok(());
        };
        let file = (node, detail.clone());
        match *event {
            "drill.wrote" => _ = self.0.insert(file, *id),
            "drill.found" => {
                let written = self.0.get(&file).copied().unwrap_or(0);
                if *id < written {
                    return Err(format!(
                        "{detail}: value {written} was written, value {id} is found"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
