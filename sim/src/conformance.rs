//! Conformance: a model steps along with a run, and the first step that is none of its behaviours fails it.
//!
//! A service tells what it does as probes named `spec.MODEL.EVENT`. They are no part of the trace and are
//! built only where the law `model.MODEL` is watched. A [`Reading`] says what each event means to
//! the model: a step that it must allow, or something seen that its state must agree with. Always: each start
//! of a process is followed from the model's beginning, or, where the model itself tells of crashes, from where
//! the process before it ended; a run without a single event fails.

pub mod lifecycle;

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    marker::PhantomData,
};

use stateright::Model;

use crate::{
    oracle::{Oracle, Verdict, WorldView},
    services,
    trace::{Event, What},
};

/// The names of specification events begin with it.
const PREFIX: &str = "spec.";

pub fn is_spec(event: &str) -> bool {
    event.starts_with(PREFIX)
}

/// Whether a specification event is one of this model.
pub fn is_of(event: &str, model: &str) -> bool {
    of_model(event, model).is_some()
}

fn of_model<'a>(event: &'a str, model: &str) -> Option<&'a str> {
    let rest = event.strip_prefix(PREFIX)?;
    rest.strip_prefix(model)?.strip_prefix('.')
}

/// One specification event, without its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecEvent<'a> {
    pub name: &'a str,
    pub id: u64,
    pub detail: &'a str,
}

impl fmt::Display for SpecEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.id, self.detail)
    }
}

impl SpecEvent<'_> {
    /// The words of the detail, one after the other; says so when one is missing or cannot be read.
    pub fn words(&self) -> Words<'_> {
        Words(self.detail.split(' '))
    }
}

pub struct Words<'a>(std::str::Split<'a, char>);

impl Words<'_> {
    pub fn word<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.0.next().ok_or("a word is missing")?;
        word.parse()
            .map_err(|_| format!("{word:?} was not expected"))
    }
}

/// How the events of one process read as steps of a model.
pub trait Reading: Send + Sized {
    type Model: Model;
    /// Its events are `spec.MODEL.*`, its oracle is `model.MODEL`.
    const MODEL: &'static str;
    const ORACLE: &'static str;
    /// Every kind of step, so that a share can be told.
    const STEPS: &'static [&'static str];
    /// The model tells what a crash leaves: its state outlives the process.
    const SURVIVES: bool = false;

    /// Which of several things of its kind in one process the event is about; each has a state of its own.
    fn part(event: &SpecEvent<'_>) -> u64 {
        let _ = event;
        0
    }

    /// The first event of a process: the model, and where it begins. `None` for any other event.
    fn begin(event: &SpecEvent<'_>) -> Option<(Self, StateOf<Self>)>;

    fn model(&self) -> &Self::Model;

    /// What an event means where the model stands. An error is an event that no state like this explains.
    fn read(
        &mut self,
        state: &mut StateOf<Self>,
        event: &SpecEvent<'_>,
    ) -> Result<Meaning<ActionOf<Self>>, String>;

    /// Which of [`Reading::STEPS`] it was, told by the action and the event that stood for it.
    fn kind(action: &ActionOf<Self>, event: &SpecEvent<'_>) -> &'static str;

    /// Whether the model allows the step here. To be overridden where an action carries what the model draws
    /// from a few examples, such as a time.
    fn allows(&self, state: &StateOf<Self>, action: &ActionOf<Self>) -> bool;

    /// Takes a step that is allowed. To be overridden where a copy of the state costs too much.
    fn take(
        &mut self,
        state: &mut StateOf<Self>,
        action: &ActionOf<Self>,
        event: &SpecEvent<'_>,
    ) -> Result<(), String>
    where
        ActionOf<Self>: Debug + Clone,
    {
        let next = self.model().next_state(state, action.clone());
        let mut next = next.ok_or_else(|| format!("{action:?} leads nowhere"))?;
        self.stepped(state, &mut next, event)?;
        *state = next;
        Ok(())
    }

    /// The state in one line.
    fn describe(state: &StateOf<Self>) -> String
    where
        StateOf<Self>: Debug,
    {
        format!("{state:?}")
    }

    /// The step has been taken: what must be true now, or is still to be seen. It may step further where one
    /// event stands for several steps.
    fn stepped(
        &mut self,
        before: &StateOf<Self>,
        after: &mut StateOf<Self>,
        event: &SpecEvent<'_>,
    ) -> Result<(), String> {
        let _ = (before, after, event);
        Ok(())
    }
}

pub type StateOf<R> = <<R as Reading>::Model as Model>::State;
pub type ActionOf<R> = <<R as Reading>::Model as Model>::Action;

pub enum Meaning<A> {
    Step(A),
    /// Seen, and as the state has it.
    Agrees,
}

/// Whether a model offers an action in a state.
pub fn offers<M: Model<Action: PartialEq>>(
    model: &M,
    state: &M::State,
    action: &M::Action,
) -> bool {
    let mut actions = Vec::new();
    model.actions(state, &mut actions);
    actions.contains(action)
}

/// The oracle that steps a model along with every process of a run.
pub struct Conformance<R: Reading> {
    /// By node and part.
    processes: BTreeMap<(u32, u64), Process<R>>,
    steps: BTreeMap<&'static str, u64>,
    events: u64,
}

enum Process<R: Reading> {
    Follows(R, StateOf<R>),
    /// It has left the model once; all else follows from that.
    Strayed(PhantomData<R>),
}

impl<R: Reading> Conformance<R> {
    pub fn new() -> Self {
        Conformance {
            processes: BTreeMap::new(),
            steps: BTreeMap::new(),
            events: 0,
        }
    }

    /// Takes one event of a node's process.
    pub fn follow(&mut self, node: u32, event: &SpecEvent<'_>) -> Verdict
    where
        StateOf<R>: Debug,
        ActionOf<R>: Debug + Clone,
    {
        self.events += 1;
        let part = (node, R::part(event));
        if (!R::SURVIVES || !self.processes.contains_key(&part))
            && let Some((reading, state)) = R::begin(event)
        {
            self.processes
                .insert(part, Process::Follows(reading, state));
            return Ok(());
        }
        let Some(process) = self.processes.get_mut(&part) else {
            return Err(format!("event `{event}` before the process began"));
        };
        let Process::Follows(reading, state) = process else {
            return Ok(());
        };
        match advance(reading, state, event) {
            Ok(step) => {
                if let Some(step) = step {
                    *self.steps.entry(step).or_default() += 1;
                }
                Ok(())
            }
            Err(why) => {
                let state = R::describe(state);
                let why = format!("event `{event}`: {why}; the model stands at {state}");
                *process = Process::Strayed(PhantomData);
                Err(why)
            }
        }
    }

    /// How often each kind of step was taken.
    pub fn transitions_seen(&self) -> &BTreeMap<&'static str, u64> {
        &self.steps
    }
}

impl<R: Reading> Default for Conformance<R> {
    fn default() -> Self {
        Self::new()
    }
}

fn advance<R: Reading>(
    reading: &mut R,
    state: &mut StateOf<R>,
    event: &SpecEvent<'_>,
) -> Result<Option<&'static str>, String>
where
    ActionOf<R>: Debug + Clone,
{
    let Meaning::Step(action) = reading.read(state, event)? else {
        return Ok(None);
    };
    if !reading.allows(state, &action) {
        return Err(format!("{action:?} is no step of the model here"));
    }
    reading.take(state, &action, event)?;
    Ok(Some(R::kind(&action, event)))
}

impl<R: Reading> Oracle for Conformance<R>
where
    R: 'static,
    StateOf<R>: Debug + Send,
    ActionOf<R>: Debug + Clone,
{
    fn name(&self) -> &'static str {
        R::ORACLE
    }

    fn model(&self) -> Option<&'static str> {
        Some(R::MODEL)
    }

    fn event(&mut self, event: &Event) -> Verdict {
        if let (Some(node), What::Died { .. } | What::Started { .. }) = (event.node, &event.what)
            && !R::SURVIVES
        {
            self.processes.retain(|(on, _), _| *on != node);
        }
        Ok(())
    }

    fn spec(&mut self, event: &Event) -> Verdict {
        let (Some(node), What::Probe { event, id, detail }) = (event.node, &event.what) else {
            return Ok(());
        };
        match of_model(event, R::MODEL) {
            Some(name) => self.follow(
                node,
                &SpecEvent {
                    name,
                    id: *id,
                    detail,
                },
            ),
            None => Ok(()),
        }
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        match self.events {
            0 => Err(format!(
                "no event of model {} was seen: nothing was compared",
                R::MODEL
            )),
            _ => Ok(()),
        }
    }

    fn transitions(&self) -> Vec<(&'static str, u64)> {
        self.steps.iter().map(|(step, n)| (*step, *n)).collect()
    }
}

// ------------------------------------------------------------------------------------- coverage

/// A model that runs are compared with, and its kinds of steps.
pub struct Followed {
    pub model: &'static str,
    pub steps: &'static [&'static str],
}

impl Followed {
    pub const fn by<R: Reading>() -> Followed {
        Followed {
            model: R::MODEL,
            steps: R::STEPS,
        }
    }
}

/// What every service is compared with.
pub const KERNEL: &[Followed] = &[Followed::by::<lifecycle::Follow>()];

/// The mark under which a run's record counts a step of a model.
pub fn mark(model: &str, step: &str) -> String {
    format!("model.{model}.{step}")
}

/// Which steps of a model some runs took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    pub model: &'static str,
    pub seen: BTreeMap<&'static str, u64>,
    pub unseen: Vec<&'static str>,
}

impl Coverage {
    pub fn total(&self) -> usize {
        self.seen.len() + self.unseen.len()
    }
}

/// The share of each model's steps among the marks of one run or of many.
pub fn transitions_seen(marks: &BTreeMap<String, u64>) -> Vec<Coverage> {
    let of = |followed: &Followed| {
        let mut coverage = Coverage {
            model: followed.model,
            seen: BTreeMap::new(),
            unseen: Vec::new(),
        };
        for step in followed.steps {
            match marks.get(&mark(followed.model, step)) {
                Some(count) if *count > 0 => _ = coverage.seen.insert(step, *count),
                _ => coverage.unseen.push(step),
            }
        }
        coverage
    };
    services::followed().map(of).collect()
}

/// A line for each model that a run was compared with: how many kinds of its steps were taken.
pub fn summary(laws: &[&str], marks: &BTreeMap<String, u64>) -> Vec<String> {
    let compared = |c: &Coverage| laws.iter().any(|o| *o == format!("model.{}", c.model));
    let line = |c: Coverage| {
        let (seen, total) = (c.seen.len(), c.total());
        let steps: u64 = c.seen.values().sum();
        format!(
            "model {} conformant over {steps} steps, {seen}/{total} kinds",
            c.model
        )
    };
    let all = transitions_seen(marks).into_iter();
    all.filter(compared).map(line).collect()
}

#[cfg(test)]
mod tests;
