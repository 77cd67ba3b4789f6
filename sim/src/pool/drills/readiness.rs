//! Readiness: the gates as a map, the status that follows from it, and one piece of news for each change of it.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use ron_core::{
    bus::{Bus, KernelEvent},
    readiness::{Gate, Missing, Readiness, ReadinessStatus},
};

use super::{Bench, Verdict, agree};

pub const GATES: [&str; 4] = ["store", "keys", "task:worker", "peers"];
pub const REASONS: [&str; 3] = ["stuck", "starting", "restarting"];

pub fn drill(bench: &mut Bench) -> Verdict {
    let bus = Bus::new();
    let mut news = bus.subscribe();
    let readiness = Readiness::new(bench.env.clone(), bus);
    let mut reference: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let mut handles: Vec<(&str, Gate)> = Vec::new();
    for _ in 0..30 {
        let before = status(&reference);
        match bench.pick(0, 6) {
            0..=1 => {
                let name = bench.one_of(&GATES);
                handles.push((name, readiness.gate(name)));
                reference.entry(name).or_insert(Some("starting"));
            }
            2..=3 if !handles.is_empty() => {
                let (name, gate) = &handles[bench.index(handles.len())];
                gate.open();
                reference.insert(name, None);
            }
            4..=5 if !handles.is_empty() => {
                let (name, gate) = &handles[bench.index(handles.len())];
                let reason = bench.one_of(&REASONS);
                gate.close(reason);
                reference.insert(name, Some(reason));
            }
            // A gate stays as it is when its handle goes.
            6 if !handles.is_empty() => drop(handles.remove(bench.index(handles.len()))),
            _ => {}
        }
        let after = status(&reference);
        agree("status", readiness.status(), after.clone())?;
        agree("is_ready", readiness.is_ready(), after.ready)?;
        let told = news.recv().now_or_never().flatten();
        let expected = (before != after).then(|| KernelEvent::ReadinessChanged {
            ready: after.ready,
            missing: after.missing.into_iter().map(|m| m.gate).collect(),
            degraded: after.degraded.into_iter().map(|d| d.condition).collect(),
        });
        agree("news of a change", told, expected)?;
        agree("more news", news.recv().now_or_never().flatten(), None)?;
    }
    Ok(())
}

pub fn status(gates: &BTreeMap<&str, Option<&str>>) -> ReadinessStatus {
    let missing = |gate: &str, reason: &str| Missing {
        gate: gate.to_owned(),
        reason: reason.to_owned(),
    };
    let closed = gates
        .iter()
        .filter_map(|(gate, closed)| Some((gate, (*closed)?)));
    let mut all: Vec<Missing> = closed.map(|(gate, why)| missing(gate, why)).collect();
    if gates.is_empty() {
        all.push(missing("any", "no gate is declared"));
    }
    ReadinessStatus {
        ready: all.is_empty(),
        missing: all,
        degraded: vec![],
    }
}
