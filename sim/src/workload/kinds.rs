//! How a workload is drawn before a world begins: from its clients, its pace and its keys.

use super::{Work, WorkloadKind, poll_readiness};
use crate::{
    ops::Draft,
    seed::{self, SimRng},
};

/// What a workload of clients at their own pace may be told.
pub const PACED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
];

/// The same, and which keys.
pub const KEYED: &[&str] = &[
    "on",
    "clients",
    "rate_per_s",
    "at_s",
    "for_s",
    "requests",
    "timeout_ms",
    "slots",
];

/// Workloads that every service can bear.
pub const ANY_SERVICE: &[WorkloadKind] = &[WorkloadKind {
    name: "ready.poll",
    service: "",
    keys: &["on", "every_ms", "at_s", "for_s"],
    work: Work::Watch(|job| Box::pin(poll_readiness(job))),
}];

/// Every client acts at its own jittered pace, on one node after the other.
pub fn paced(draft: &mut Draft<'_>, mut what: impl FnMut(&mut SimRng) -> (&'static str, u64)) {
    for client in 0..draft.drawn.clients as u32 {
        for (turn, at) in draft.moments().into_iter().enumerate() {
            let (call, arg) = what(draft.rng);
            draft.add(at, client, client as usize + turn, call, arg);
        }
    }
}

/// Each operation draws one of the calls and one of the workload's keys.
pub fn with_keys(draft: &mut Draft<'_>, calls: &'static [&'static str]) {
    let slots = draft.drawn.slots;
    paced(draft, |rng| {
        let call = calls[seed::pick(rng, 0, calls.len() as u64 - 1) as usize];
        (call, slots.draw_count(rng))
    });
}

/// All requests at once: a queue that was never full proves nothing about being full.
pub fn burst(draft: &mut Draft<'_>, call: &str) {
    let at = draft.drawn.at;
    for client in 0..draft.drawn.requests.unwrap_or(100) as u32 {
        draft.add(at, client, client as usize, call, 0);
    }
}
