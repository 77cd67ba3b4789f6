//! What happened, in order, as lines of text and one hash over them all.
//!
//! The line a person reads is the line that is hashed: two runs of one seed are the same run exactly if
//! their hashes are equal. Oracles see the typed event; nothing is parsed back.

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
    /// The names of the tasks that outlived it.
    pub alive: Vec<&'static str>,
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

/// The hash over all of them, in order. Lines are kept only where somebody wants to read them.
pub struct Trace {
    hasher: blake3::Hasher,
    /// Not hashed yet: many lines at a time cost a fraction of one by one.
    pending: String,
    events: u64,
    kept: Option<Vec<String>>,
}

/// So many bytes are hashed at once.
const BATCH: usize = 16 * 1024;

impl Trace {
    pub fn new(keep_lines: bool) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ron trace 2\n");
        Trace {
            hasher,
            pending: String::new(),
            events: 0,
            kept: keep_lines.then(Vec::new),
        }
    }

    pub fn push(&mut self, event: &Event, node_name: &str) {
        let begin = self.pending.len();
        push_seconds(&mut self.pending, event.at);
        self.pending.push(' ');
        self.pending.push_str(node_name);
        for _ in node_name.chars().count()..8 {
            self.pending.push(' ');
        }
        self.pending.push(' ');
        push_what(&mut self.pending, &event.what);
        self.events += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(self.pending[begin..].to_owned());
        }
        // What the line leaves out of the time; and where it ends, which a line break inside cannot fake.
        let below_us = event.at.subsec_nanos() % 1000;
        let len = self.pending.len() - begin;
        self.pending.push('\0');
        push_number(&mut self.pending, below_us.into());
        self.pending.push(' ');
        push_number(&mut self.pending, len as u64);
        self.pending.push('\n');
        if self.pending.len() >= BATCH {
            self.hash_pending();
        }
    }

    fn hash_pending(&mut self) {
        self.hasher.update(self.pending.as_bytes());
        self.pending.clear();
    }

    /// Of all events so far.
    pub fn hash(&mut self) -> String {
        self.hash_pending();
        self.hasher.finalize().to_hex().to_string()
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn take_lines(&mut self) -> Vec<String> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// As its `Display`; what happens at every request is written without the machinery of formatting.
fn push_what(line: &mut String, what: &What) {
    match what {
        What::Request { request, op, key } => {
            line.push_str("-> #");
            push_number(line, *request);
            line.push(' ');
            line.push_str(op);
            line.push(' ');
            push_number(line, *key);
        }
        What::Outcome {
            request,
            outcome: Outcome::Answered(status),
        } => {
            line.push_str("<- #");
            push_number(line, *request);
            line.push(' ');
            push_number(line, (*status).into());
        }
        What::Probe { event, id, detail } => {
            line.push_str(event);
            line.push(' ');
            push_number(line, *id);
            line.push(' ');
            line.push_str(detail);
        }
        other => _ = write!(line, "{other}"),
    }
}

fn push_number(line: &mut String, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    push_ascii(line, &digits[first..]);
}

fn push_ascii(line: &mut String, ascii: &[u8]) {
    line.push_str(std::str::from_utf8(ascii).unwrap_or_default());
}

/// As `{:>12.6}s` of the seconds, by integers: it is on the path of every event.
fn push_seconds(line: &mut String, at: Duration) {
    let us = at.as_micros() as u64;
    let mut digits = [b' '; 13];
    digits[12] = b's';
    let (mut whole, mut part) = (us / 1_000_000, us % 1_000_000);
    for digit in digits[6..12].iter_mut().rev() {
        *digit = b'0' + (part % 10) as u8;
        part /= 10;
    }
    digits[5] = b'.';
    for place in (0..5).rev() {
        digits[place] = b'0' + (whole % 10) as u8;
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    if whole > 0 {
        push_number(line, whole);
    }
    push_ascii(line, &digits);
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
                    report.alive.len(),
                    report.aborted
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
    fn what_is_written_by_hand_reads_as_it_is_displayed() {
        let outcome = Outcome::Answered(503);
        let all = [
            What::Request {
                request: 0,
                op: "pool.put",
                key: u64::MAX,
            },
            What::Outcome {
                request: 1_234_567_890,
                outcome,
            },
            What::Probe {
                event: "job.done",
                id: 7,
                detail: "as it is".to_owned(),
            },
            What::ShutdownAsked,
        ];
        for what in all {
            let mut line = String::new();
            push_what(&mut line, &what);
            assert_eq!(line, what.to_string());
        }
    }

    #[test]
    fn seconds_read_as_they_would_in_floating_point() {
        for us in [
            0,
            1,
            999_999,
            1_000_000,
            12_345_678,
            99_999_000_001,
            123_456_000_000,
        ] {
            let mut line = String::new();
            push_seconds(&mut line, Duration::from_micros(us));
            assert_eq!(line, format!("{:>12.6}s", us as f64 / 1e6));
        }
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
