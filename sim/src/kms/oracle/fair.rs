//! A tenant that asks for ten times its share does not make the others wait.

use crate::{
    oracle::{EVERYWHERE, Oracle, OracleKind, Verdict, WorldView},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.tenant_fair",
    law: "the 95th percentile of tenant t9's signs during the flood is at most twice that before it",
    premise: EVERYWHERE,
    make: || Box::new(Fair::default()),
};

/// Fewer answers say nothing about a percentile.
const ENOUGH: usize = 40;
/// Scenarios with this law begin their flood here.
const FLOOD_FROM_S: f64 = 7.0;

#[derive(Default)]
struct Fair {
    before: Vec<u64>,
    during: Vec<u64>,
}

impl Oracle for Fair {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let What::Probe {
            event: "client.sign_us",
            id: took,
            detail,
        } = &event.what
            && detail == "t9"
        {
            match event.at.as_secs_f64() < FLOOD_FROM_S {
                true => self.before.push(*took),
                false => self.during.push(*took),
            }
        }
        Ok(())
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        Ok(())
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        if self.before.len() < ENOUGH || self.during.len() < ENOUGH {
            return Ok(());
        }
        let (before, during) = (p95(&mut self.before), p95(&mut self.during));
        match during <= 2 * before {
            true => Ok(()),
            false => Err(format!(
                "p95 went from {before} us to {during} us under another tenant's flood"
            )),
        }
    }
}

fn p95(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() * 95 / 100]
}
