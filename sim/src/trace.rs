//! What happened, in order, as lines of text chained by hash.
//!
//! The line a person reads is the line that is hashed: two runs of one seed are the same run exactly if
//! their last hashes are equal. Oracles see the typed event; nothing is parsed back.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

/// How a request ended, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(u16),
    /// Certainly not seen by the server.
    NotSent,
    /// May or may not have happened.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A client sends: `request` is unique in the run, `op` and `key` say what it asks for.
    Request {
        request: u64,
        op: &'static str,
        key: u64,
    },
    Outcome {
        request: u64,
        outcome: Outcome,
    },
    Fault {
        text: String,
    },
    Healed {
        text: String,
    },
    Started {
        incarnation: u32,
    },
    /// Killed or powered off: no goodbye.
    Died {
        how: &'static str,
    },
    /// The service ended by itself after an orderly shutdown.
    Stopped {
        report: StopReport,
    },
    ShutdownAsked,
    /// What a `/readyz` poll said, noted when it changes.
    Ready {
        ready: bool,
        missing: Vec<String>,
    },
    /// A `/readyz` poll that said "not ready" without saying why, or could not be read.
    ReadyUnexplained {
        body: String,
    },
    /// An event of the service itself.
    Probe {
        event: &'static str,
        id: u64,
        detail: String,
    },
    /// The run's own steps: phases, budgets.
    Phase {
        text: String,
    },
}

/// What an orderly stop reported about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    pub alive: u64,
    pub aborted: u64,
    /// Sum of the drain phases' deadlines.
    pub allowed: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Duration,
    /// Index into the world's node names; `None` is the world itself.
    pub node: Option<u32>,
    pub what: What,
}

/// The chain. Lines are kept only where somebody wants to read them.
pub struct Trace {
    chain: blake3::Hash,
    events: u64,
    line: String,
    kept: Option<Vec<String>>,
}

impl Trace {
    pub fn new(keep_lines: bool) -> Self {
        Trace {
            chain: blake3::hash(b"ron trace 1"),
            events: 0,
            line: String::new(),
            kept: keep_lines.then(Vec::new),
        }
    }

    pub fn push(&mut self, event: &Event, node_name: &str) {
        self.line.clear();
        let _ = write!(
            self.line,
            "{:>12.6}s {:<8} {}",
            event.at.as_secs_f64(),
            node_name,
            event.what
        );
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.chain.as_bytes());
        hasher.update(&event.at.as_nanos().to_le_bytes());
        hasher.update(self.line.as_bytes());
        self.chain = hasher.finalize();
        self.events += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(self.line.clone());
        }
    }

    pub fn hash(&self) -> String {
        self.chain.to_hex().to_string()
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn take_lines(&mut self) -> Vec<String> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl What {
    /// Events that an operator would want to see in a short account of the run.
    pub fn matters(&self) -> bool {
        !matches!(
            self,
            What::Request { .. } | What::Outcome { .. } | What::Probe { .. }
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Request { request, op, key } => write!(f, "-> #{request} {op} {key}"),
            What::Outcome {
                request,
                outcome: Outcome::Answered(status),
            } => {
                write!(f, "<- #{request} {status}")
            }
            What::Outcome { request, outcome } => write!(f, "<- #{request} {outcome:?}"),
            What::Fault { text } => write!(f, "fault {text}"),
            What::Healed { text } => write!(f, "healed {text}"),
            What::Started { incarnation } => write!(f, "started (incarnation {incarnation})"),
            What::Died { how } => write!(f, "died: {how}"),
            What::Stopped { report } => {
                write!(
                    f,
                    "stopped: {} alive, {} aborted",
                    report.alive, report.aborted
                )
            }
            What::ShutdownAsked => write!(f, "shutdown asked"),
            What::Ready { ready: true, .. } => write!(f, "ready"),
            What::Ready { missing, .. } => write!(f, "not ready: {}", missing.join(", ")),
            What::ReadyUnexplained { body } => write!(f, "not ready, no reason given: {body}"),
            What::Probe { event, id, detail } => write!(f, "{event} {id} {detail}"),
            What::Phase { text } => write!(f, "{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(events: &[(u64, &str)]) -> String {
        let mut trace = Trace::new(false);
        for (at, text) in events {
            let what = What::Phase {
                text: (*text).to_owned(),
            };
            trace.push(
                &Event {
                    at: Duration::from_nanos(*at),
                    node: None,
                    what,
                },
                "world",
            );
        }
        trace.hash()
    }

    #[test]
    fn the_hash_depends_on_every_event_its_time_and_their_order() {
        let base = hash_of(&[(1, "a"), (2, "b")]);
        assert_eq!(base, hash_of(&[(1, "a"), (2, "b")]));
        for other in [
            hash_of(&[(1, "b"), (2, "a")]),
            hash_of(&[(1, "a"), (3, "b")]),
            hash_of(&[(1, "a")]),
            hash_of(&[(1, "a"), (2, "b"), (3, "c")]),
        ] {
            assert_ne!(base, other);
        }
    }
}
