//! Takes down what happens and asks every oracle about it, the moment it happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ron_core::points;

use crate::{
    conformance,
    detail::{Detail, Message},
    net::NodeId,
    oracle::{Oracle, Violation, WorldView},
    say, timer,
    trace::{Event, Outcome, Trace, What},
};

#[derive(Clone)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

struct State {
    trace: Trace,
    node_names: Vec<String>,
    oracles: Vec<Box<dyn Oracle>>,
    violation: Option<Violation>,
    /// Names of everything that was ever seen: probes, faults, kinds of outcome.
    marks: BTreeMap<String, u64>,
    seen_probes: BTreeSet<&'static str>,
    requests: u64,
    /// By what is asked for.
    by_op: BTreeMap<&'static str, u64>,
    /// Prints what matters as it happens.
    echo: bool,
    /// Kept only for a run that is to be explained.
    detail: Option<Box<Detail>>,
}

impl Recorder {
    pub fn new(oracles: Vec<Box<dyn Oracle>>, keep_lines: bool, echo: bool) -> Self {
        Recorder {
            state: Arc::new(Mutex::new(State {
                trace: Trace::new(keep_lines),
                node_names: Vec::new(),
                oracles,
                violation: None,
                marks: BTreeMap::new(),
                seen_probes: BTreeSet::new(),
                requests: 0,
                by_op: BTreeMap::new(),
                echo,
                detail: None,
            })),
        }
    }

    pub fn add_node(&self, name: &str) {
        let mut state = self.lock();
        state.node_names.push(name.to_owned());
        if let Some(detail) = &mut state.detail {
            detail.nodes.push(name.to_owned());
        }
    }

    /// From now on everything that a picture needs is kept; to be called before the first node is added.
    pub fn keep_detail(&self) {
        self.lock().detail = Some(Box::default());
    }

    /// A message is on its way.
    pub fn message(&self, message: Message) {
        if let Some(detail) = &mut self.lock().detail {
            detail.messages.push(message);
        }
    }

    /// Where a request goes, as `host:port`.
    pub fn aim(&self, request: u64, to: &str) {
        if let Some(detail) = &mut self.lock().detail {
            detail.aim(request, to);
        }
    }

    pub fn node_name(&self, node: NodeId) -> String {
        self.lock().node_names[node.0 as usize].clone()
    }

    pub fn record(&self, node: Option<NodeId>, what: What) {
        let at = timer::elapsed();
        let mut guard = self.lock();
        let state = &mut *guard;
        let event = Event {
            at,
            node: node.map(|n| n.0),
            what,
        };
        let name = node.map_or("world", |n| state.node_names[n.0 as usize].as_str());
        state.trace.push(&event, name);
        if state.echo && event.what.matters() {
            say!("{:>9.3}s {:<8} {}", at.as_secs_f64(), name, event.what);
        }
        state.mark(&event.what);
        for oracle in &mut state.oracles {
            if let Err(why) = points::apart(|| oracle.event(&event)) {
                let oracle = oracle.name();
                state.violation.get_or_insert(Violation { at, oracle, why });
            }
        }
        if let Some(detail) = &mut state.detail {
            detail.events.push(event);
        }
    }

    /// A specification event, for whoever follows its model; it is no part of the trace. Where nobody does
    /// it costs next to nothing.
    pub fn spec(&self, node: NodeId, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let follows = |oracle: &dyn Oracle| {
            oracle
                .model()
                .is_some_and(|model| conformance::is_of(event, model))
        };
        if !state.oracles.iter().any(|o| follows(o.as_ref())) {
            return;
        }
        let at = timer::elapsed();
        let detail = detail.to_string();
        let event = Event {
            at,
            node: Some(node.0),
            what: What::Probe { event, id, detail },
        };
        for oracle in &mut state.oracles {
            if let Err(why) = points::apart(|| oracle.spec(&event)) {
                let oracle = oracle.name();
                state.violation.get_or_insert(Violation { at, oracle, why });
            }
        }
    }

    /// Shows every oracle the whole world, between events.
    pub fn sample(&self, view: &WorldView) {
        if let Some(detail) = &mut self.lock().detail {
            detail.sample(view);
        }
        self.ask(|oracle| oracle.sample(view));
    }

    /// The run is over: what is missing now stays missing. What is left of a shrunk plan may give a model nothing to
    /// compare; only a whole one must.
    pub fn finish(&self, view: &WorldView, whole: bool) {
        self.ask(|oracle| {
            let compared = oracle.model().is_none() || !oracle.transitions().is_empty();
            match whole || compared {
                true => oracle.finish(view),
                false => Ok(()),
            }
        });
    }

    fn ask(&self, mut question: impl FnMut(&mut dyn Oracle) -> Result<(), String>) {
        let at = timer::elapsed();
        let mut guard = self.lock();
        let state = &mut *guard;
        for oracle in &mut state.oracles {
            if let Err(why) = points::apart(|| question(oracle.as_mut())) {
                let oracle = oracle.name();
                state.violation.get_or_insert(Violation { at, oracle, why });
            }
        }
    }

    pub fn violate(&self, oracle: &'static str, why: String) {
        let at = timer::elapsed();
        self.lock()
            .violation
            .get_or_insert(Violation { at, oracle, why });
    }

    pub fn violated(&self) -> bool {
        self.lock().violation.is_some()
    }

    pub fn into_record(self, simulated: Duration) -> Record {
        Self::take_record(&mut self.lock(), simulated)
    }

    /// What was recorded so far, unless somebody is recording this very moment.
    pub fn try_into_record(self) -> Option<Record> {
        let mut state = self.state.try_lock().ok()?;
        Some(Self::take_record(&mut state, Duration::ZERO))
    }

    fn take_record(state: &mut State, simulated: Duration) -> Record {
        for oracle in &state.oracles {
            let Some(model) = oracle.model() else {
                continue;
            };
            for (step, count) in oracle.transitions() {
                let mark = conformance::mark(model, step);
                *state.marks.entry(mark).or_default() += count;
            }
        }
        Record {
            hash: state.trace.hash(),
            events: state.trace.events(),
            lines: state.trace.take_lines(),
            oracles: state.oracles.len(),
            violation: state.violation.take(),
            marks: std::mem::take(&mut state.marks),
            requests: state.requests,
            by_op: std::mem::take(&mut state.by_op),
            simulated,
            detail: state.detail.take(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn mark(&mut self, what: &What) {
        let name = match what {
            What::Request { op, .. } => {
                self.requests += 1;
                *self.by_op.entry(op).or_default() += 1;
                return;
            }
            // The hot case: count each name once, without building a string.
            What::Probe { event, .. } => {
                if self.seen_probes.insert(event) {
                    self.marks.insert((*event).to_owned(), 1);
                }
                return;
            }
            What::Outcome {
                outcome: Outcome::Answered(status),
                ..
            } => match status {
                200 => "http.200",
                429 => "http.429",
                503 => "http.503",
                504 => "http.504",
                500 => "http.500",
                _ => "http.other",
            },
            What::Outcome {
                outcome: Outcome::NotSent,
                ..
            } => "http.not_sent",
            What::Outcome {
                outcome: Outcome::Unknown,
                ..
            } => "http.unknown",
            What::Died { .. } => "node.died",
            What::Stopped { report } if report.aborted > 0 => "node.stopped_with_aborts",
            What::Stopped { .. } => "node.stopped",
            What::Ready { ready: false, .. } => "node.not_ready",
            What::Ready { ready: true, .. } => "node.ready",
            _ => return,
        };
        match self.marks.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.marks.insert(name.to_owned(), 1),
        }
    }
}

/// What is left of a run.
#[derive(Clone, Debug)]
pub struct Record {
    pub hash: String,
    pub events: u64,
    pub lines: Vec<String>,
    pub oracles: usize,
    pub violation: Option<Violation>,
    pub marks: BTreeMap<String, u64>,
    pub requests: u64,
    /// Requests by what they ask for.
    pub by_op: BTreeMap<&'static str, u64>,
    pub simulated: Duration,
    /// For a run that was watched closely.
    pub detail: Option<Box<Detail>>,
}
