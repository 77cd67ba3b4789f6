//! `/readyz` tells what is the matter, soon after it has become so and no longer than it is.

use std::{collections::BTreeMap, time::Duration};

use super::sets;
use crate::{
    oracle::{Oracle, OracleKind, Verdict},
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "kms.ready_tells",
    law: "a backend that is away or hangs closes `backend` and `attestation`, records without a checkpoint close `checkpoint_recent`, and each gate opens again when that is over",
    premise: |scenario| sets(scenario, "attest_interval_ms", None),
    make: || Box::new(ReadyTells::default()),
};

/// By then it is noticed: the longest interval of a scenario with this law, the limit of the check that follows it, a
/// poll.
const NOTICED: Duration = Duration::from_millis(1500);
/// A check that began in the last moment of the trouble, a pause, another one.
const FORGOTTEN: Duration = Duration::from_millis(2500);

const GATES: &[&str] = &["backend", "attestation", "checkpoint_recent"];

#[derive(Default)]
struct ReadyTells {
    nodes: BTreeMap<u32, Node>,
}

#[derive(Default)]
struct Node {
    /// The gates that the last poll found closed; `None` before the first.
    closed: Option<Vec<String>>,
    gates: BTreeMap<&'static str, Trouble>,
    /// Records in the log, and under a checkpoint.
    records: u64,
    covered: u64,
}

/// What a gate watches: since when it is in trouble, or since when not.
#[derive(Clone, Copy, Default)]
struct Trouble {
    since: Option<Duration>,
    over: Duration,
    /// Trouble with a time of its own ends by then.
    until: Option<Duration>,
}

impl Trouble {
    fn begins(&mut self, at: Duration, until: Option<Duration>) {
        self.since.get_or_insert(at);
        self.until = self.until.max(until);
    }

    fn ends(&mut self, at: Duration) {
        if self.since.take().is_some() {
            self.over = at;
        }
        self.until = None;
    }

    /// A backend that was away is back; calls that hang do so to their end.
    fn may_end(&mut self, at: Duration) {
        if let Some(until) = self.until {
            self.ends(at.max(until));
        }
    }

    fn settle(&mut self, now: Duration) {
        if let Some(until) = self.until.filter(|until| *until <= now) {
            self.ends(until);
        }
    }
}

impl Oracle for ReadyTells {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let (None, What::Phase { text }) = (event.node, &event.what) {
            if text == "all faults healed" {
                for node in self.nodes.values_mut() {
                    node.backend(|trouble| trouble.may_end(event.at));
                }
            }
            return Ok(());
        }
        let Some(id) = event.node else { return Ok(()) };
        let node = self.nodes.entry(id).or_default();
        node.gates.values_mut().for_each(|t| t.settle(event.at));
        match &event.what {
            What::Fault { text } => {
                if let Some(lasts) = backend_fault(text) {
                    let until = Some(event.at + lasts);
                    node.backend(|trouble| trouble.begins(event.at, until));
                }
            }
            // What was there before is not judged: it may be covered.
            What::Probe {
                event: "kms.opened",
                id,
                ..
            } => (node.records, node.covered) = (*id, *id),
            What::Probe {
                event: "kms.appended",
                id,
                ..
            } => node.grew(*id, event.at),
            What::Probe {
                event: "kms.checkpointed",
                id,
                ..
            } => node.checkpointed(*id, event.at),
            What::Ready { missing, .. } => {
                let gate = |told: &String| told.split(' ').next().unwrap_or_default().to_owned();
                node.closed = Some(missing.iter().map(gate).collect());
            }
            What::Probe {
                event: "ready.unknown",
                ..
            } => node.closed = None,
            What::Started { .. } | What::Died { .. } | What::ShutdownAsked => {
                node.begins_anew(event.at);
            }
            _ => {}
        }
        node.judge(event.at)
    }
}

impl Node {
    fn backend(&mut self, change: impl Fn(&mut Trouble)) {
        for gate in ["backend", "attestation"] {
            change(self.gates.entry(gate).or_default());
        }
    }

    /// A new process knows nothing yet; trouble with the backend goes on.
    fn begins_anew(&mut self, at: Duration) {
        self.closed = None;
        self.checkpoints().ends(at);
        for gate in GATES {
            let trouble = self.gates.entry(gate).or_default();
            trouble.since = trouble.since.map(|_| at);
            trouble.over = trouble.over.max(at);
        }
    }

    fn grew(&mut self, records: u64, at: Duration) {
        self.records = records;
        if self.records > self.covered {
            self.checkpoints().begins(at, None);
        }
    }

    fn checkpointed(&mut self, size: u64, at: Duration) {
        self.covered = size;
        self.checkpoints().ends(at);
        if self.records > self.covered {
            self.checkpoints().begins(at, None);
        }
    }

    fn checkpoints(&mut self) -> &mut Trouble {
        self.gates.entry("checkpoint_recent").or_default()
    }

    fn judge(&self, now: Duration) -> Verdict {
        let Some(closed) = &self.closed else {
            return Ok(());
        };
        for gate in GATES {
            let trouble = self.gates.get(gate).copied().unwrap_or_default();
            let is_closed = closed.iter().any(|told| told == gate);
            match trouble.since {
                Some(since) if !is_closed && now > since + NOTICED => {
                    let told = (now - since).as_millis();
                    return Err(format!("`{gate}` is still open after {told} ms of trouble"));
                }
                None if is_closed && now > trouble.over + FORGOTTEN => {
                    let told = (now - trouble.over).as_millis();
                    return Err(format!("`{gate}` is closed {told} ms after the trouble"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// How long a fault of the backend lasts, if it is one.
fn backend_fault(text: &str) -> Option<Duration> {
    let rest = text.strip_prefix("backend.")?;
    let rest = rest.strip_prefix("away ").or(rest.strip_prefix("hangs "))?;
    let ms = rest.strip_suffix(" ms")?.parse().ok()?;
    Some(Duration::from_millis(ms))
}
