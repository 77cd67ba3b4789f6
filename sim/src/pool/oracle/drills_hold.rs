//! Each part of the kernel does what its plain reference does; see [`crate::pool`]'s drills.

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView};
use crate::trace::{Event, What};

pub const KIND: OracleKind = OracleKind {
    name: "kernel.drills_hold",
    law: "each part of the kernel does what its plain reference does",
    premise: EVERYWHERE,
    make: || Box::new(DrillsHold::default()),
};

#[derive(Default)]
struct DrillsHold {
    began: bool,
    passed: u64,
}

impl Oracle for DrillsHold {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe { event, detail, .. } = &event.what else {
            return Ok(());
        };
        match *event {
            "drill.began" => self.began = true,
            "drill.passed" => self.passed += 1,
            "drill.broken" => return Err(detail.clone()),
            // No fault strikes them: what panicked is the part under drill.
            "task.failed" if detail.starts_with("drills") => {
                return Err(format!("{detail}: a part of the kernel panicked"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        if self.began && self.passed == 0 {
            return Err("drills began, and none was ever passed".to_owned());
        }
        Ok(())
    }
}
