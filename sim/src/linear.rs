//! Linearizability: whether what clients saw of an object is what some one-at-a-time order would show them.
//!
//! Clients note when they ask and what they hear; an outcome that is not known may have taken effect at any
//! later time, or never. Objects are judged one key at a time, because a history of many independent
//! objects is linearizable exactly if each object's is. The search remembers where it has been and gives up,
//! saying so, before it takes long.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Debug},
    hash::{DefaultHasher, Hash, Hasher},
};

pub use stateright::semantics::{
    SequentialSpec,
    register::{Register, RegisterOp, RegisterRet},
};

/// An object whose histories can be judged.
pub trait Object: SequentialSpec {
    /// Whether it can never again answer so, whatever is done to it. Saying no is always right; saying yes where
    /// it is true keeps the search from following a lost cause.
    fn never_again(&self, op: &Self::Op, ret: &Self::Ret) -> bool {
        let _ = (op, ret);
        false
    }
}

impl<T: Clone + Debug + PartialEq> Object for Register<T> {}

/// A version that only grows, such as the head of a key: rotating returns the next, reading the present one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionHead(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadOp {
    Rotate,
    Read,
}

/// The version that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadRet {
    Rotated(u64),
    Head(u64),
}

impl SequentialSpec for VersionHead {
    type Op = HeadOp;
    type Ret = HeadRet;

    fn invoke(&mut self, op: &HeadOp) -> HeadRet {
        match op {
            HeadOp::Rotate => {
                self.0 += 1;
                HeadRet::Rotated(self.0)
            }
            HeadOp::Read => HeadRet::Head(self.0),
        }
    }
}

impl Object for VersionHead {
    fn never_again(&self, _: &HeadOp, ret: &HeadRet) -> bool {
        match ret {
            HeadRet::Rotated(version) => *version <= self.0,
            HeadRet::Head(version) => *version < self.0,
        }
    }
}

/// An operation of a history, to say later what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(usize);

/// What clients asked of one object and heard, in the order of time.
pub struct History<S: SequentialSpec> {
    operations: Vec<Operation<S::Op, S::Ret>>,
    moment: u64,
}

#[derive(Clone, Debug)]
struct Operation<Op, Ret> {
    client: u64,
    op: Op,
    invoked: u64,
    fate: Fate<Ret>,
}

#[derive(Clone, Debug)]
enum Fate<Ret> {
    /// No answer, so far or for ever.
    Open,
    Returned(u64, Ret),
    /// Certainly not done.
    Refused,
}

/// Why a history was not found to be linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No order explains it. The operation is the first that no order could place; `known` holds the states
    /// that the object may have been in before it.
    NotLinearizable {
        operation: String,
        known: Vec<String>,
    },
    /// The search was given up.
    Undecided { explored: usize },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotLinearizable { operation, known } => {
                let known = known.join(" or ");
                write!(f, "no order explains {operation} after {known}")
            }
            Fault::Undecided { explored } => {
                write!(f, "undecided after {explored} steps of the search")
            }
        }
    }
}

/// So many places of the search are visited at most: some tenths of a second.
const LIMIT: usize = 400_000;

impl<S: SequentialSpec> Default for History<S> {
    fn default() -> Self {
        History {
            operations: Vec::new(),
            moment: 0,
        }
    }
}

impl<S> History<S>
where
    S: Object + Clone + Debug + Hash + PartialEq,
    S::Op: Clone + Debug + PartialEq,
    S::Ret: Clone + Debug + PartialEq,
{
    /// A client asks, now.
    pub fn invoke(&mut self, client: u64, op: S::Op) -> OpId {
        let invoked = self.tick();
        self.operations.push(Operation {
            client,
            op,
            invoked,
            fate: Fate::Open,
        });
        OpId(self.operations.len() - 1)
    }

    /// It hears an answer, now.
    pub fn returned(&mut self, id: OpId, ret: S::Ret) {
        let now = self.tick();
        self.operations[id.0].fate = Fate::Returned(now, ret);
    }

    /// It will never know: the operation may have happened, may happen later, or never.
    pub fn unknown(&mut self, id: OpId) {
        self.operations[id.0].fate = Fate::Open;
    }

    /// It knows that nothing happened: refused, or never sent.
    pub fn refused(&mut self, id: OpId) {
        self.operations[id.0].fate = Fate::Refused;
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether some order explains it, from the object as it was at first.
    pub fn check(&self, first: S) -> Result<(), Fault> {
        Search::new(self, LIMIT).run(first)
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

/// Histories of many objects, each judged on its own.
pub struct Histories<K, S: SequentialSpec> {
    by_key: BTreeMap<K, History<S>>,
}

impl<K, S: SequentialSpec> Default for Histories<K, S> {
    fn default() -> Self {
        Histories {
            by_key: BTreeMap::new(),
        }
    }
}

impl<K, S> Histories<K, S>
where
    K: Ord + Debug,
    S: Object + Clone + Debug + Hash + PartialEq,
    S::Op: Clone + Debug + PartialEq,
    S::Ret: Clone + Debug + PartialEq,
{
    pub fn of(&mut self, key: K) -> &mut History<S> {
        self.by_key.entry(key).or_default()
    }

    /// Like [`Histories::check`], but a search that was given up refutes nothing.
    pub fn refute(&self, first: impl Fn(&K) -> S) -> Result<(), String> {
        self.by_key
            .iter()
            .try_for_each(|(key, history)| match history.check(first(key)) {
                Ok(()) | Err(Fault::Undecided { .. }) => Ok(()),
                Err(fault) => Err(format!("{key:?}: {fault}")),
            })
    }

    /// The first key whose history no order explains, told in one line.
    pub fn check(&self, first: impl Fn(&K) -> S) -> Result<(), String> {
        self.by_key.iter().try_for_each(|(key, history)| {
            let verdict = history.check(first(key));
            verdict.map_err(|fault| format!("{key:?}: {fault}"))
        })
    }
}

// --------------------------------------------------------------------------------------- search

/// Depth first over the orders that real time allows; a place visited once is not visited again.
struct Search<'a, S: SequentialSpec> {
    /// Those with an answer, by the time they were asked.
    answered: Vec<Answered<'a, S>>,
    /// Those without.
    open: Vec<(u64, &'a S::Op)>,
    limit: usize,
}

struct Answered<'a, S: SequentialSpec> {
    of: &'a Operation<S::Op, S::Ret>,
    returned: u64,
    ret: &'a S::Ret,
}

/// Which operations have been put in order, and what the object is after them.
#[derive(Clone, PartialEq, Hash)]
struct Place<S> {
    object: S,
    /// All answered operations below are in order …
    below: usize,
    /// … and these above.
    above: Vec<usize>,
    /// Of the open ones, those that took effect.
    effective: Vec<usize>,
}

impl<'a, S> Search<'a, S>
where
    S: Object + Clone + Debug + Hash + PartialEq,
    S::Op: Clone + Debug + PartialEq,
    S::Ret: Clone + Debug + PartialEq,
{
    fn new(history: &'a History<S>, limit: usize) -> Self {
        let (mut answered, mut open) = (Vec::new(), Vec::new());
        for of in &history.operations {
            match &of.fate {
                Fate::Returned(at, ret) => answered.push(Answered {
                    of,
                    returned: *at,
                    ret,
                }),
                Fate::Open => open.push((of.invoked, &of.op)),
                Fate::Refused => {}
            }
        }
        Search {
            answered,
            open,
            limit,
        }
    }

    fn run(&self, first: S) -> Result<(), Fault> {
        let mut places = vec![Place {
            object: first,
            below: 0,
            above: Vec::new(),
            effective: Vec::new(),
        }];
        let mut seen: HashMap<u64, Vec<Place<S>>> = HashMap::new();
        let (mut explored, mut furthest) = (0, (0, Vec::new()));
        while let Some(place) = places.pop() {
            if place.below == self.answered.len() {
                return Ok(());
            }
            let mut hasher = DefaultHasher::new();
            place.hash(&mut hasher);
            let same = seen.entry(hasher.finish()).or_default();
            if same.contains(&place) {
                continue;
            }
            explored += 1;
            if explored > self.limit {
                return Err(Fault::Undecided { explored });
            }
            if place.below > furthest.0 {
                furthest = (place.below, Vec::new());
            }
            if place.below == furthest.0 && furthest.1.len() < 4 {
                let object = format!("{:?}", place.object);
                if !furthest.1.contains(&object) {
                    furthest.1.push(object);
                }
            }
            self.expand(&place, &mut places);
            same.push(place);
        }
        let (stuck, known) = furthest;
        let Answered { of, ret, .. } = &self.answered[stuck];
        let operation = format!("{:?} by client {}, answered {ret:?},", of.op, of.client);
        Err(Fault::NotLinearizable { operation, known })
    }

    /// Whatever may come next: asked for before any operation that is not yet in order was answered.
    fn expand(&self, place: &Place<S>, places: &mut Vec<Place<S>>) {
        let mut until = u64::MAX;
        let mut next = Vec::new();
        for n in place.below..self.answered.len() {
            let answered = &self.answered[n];
            if answered.of.invoked > until {
                break;
            }
            if !place.above.contains(&n) {
                until = until.min(answered.returned);
                next.push(n);
            }
        }
        let hopeless = |n: &usize| {
            let answered = &self.answered[*n];
            place.object.never_again(&answered.of.op, answered.ret)
        };
        if next.iter().any(hopeless) {
            return;
        }
        // One that may come now and changes nothing: whatever order explains the rest, it may as well come first.
        for n in &next {
            let answered = &self.answered[*n];
            let mut object = place.object.clone();
            if answered.of.invoked < until
                && object.is_valid_step(&answered.of.op, answered.ret)
                && object == place.object
            {
                places.push(place.with(*n, object));
                return;
            }
        }
        self.expand_open(place, until, places);
        // The first to be answered is tried first, so it is pushed last.
        next.sort_by_key(|n| std::cmp::Reverse(self.answered[*n].returned));
        for n in next {
            let answered = &self.answered[n];
            let mut object = place.object.clone();
            if answered.of.invoked < until && object.is_valid_step(&answered.of.op, answered.ret) {
                places.push(place.with(n, object));
            }
        }
    }

    fn expand_open(&self, place: &Place<S>, until: u64, places: &mut Vec<Place<S>>) {
        let mut tried: Vec<&S::Op> = Vec::new();
        for (n, (invoked, op)) in self.open.iter().enumerate() {
            if *invoked > until {
                break;
            }
            // Of several that ask for the same, the one asked first stands for all.
            if place.effective.contains(&n) || tried.contains(op) {
                continue;
            }
            tried.push(op);
            let mut object = place.object.clone();
            object.invoke(op);
            // One that changes nothing need not have happened.
            if object != place.object {
                let mut effective = place.effective.clone();
                effective.push(n);
                effective.sort_unstable();
                places.push(Place {
                    object,
                    effective,
                    ..place.clone()
                });
            }
        }
    }
}

impl<S: Clone> Place<S> {
    fn with(&self, n: usize, object: S) -> Place<S> {
        let mut next = Place {
            object,
            ..self.clone()
        };
        next.above.push(n);
        next.above.sort_unstable();
        while next.above.first() == Some(&next.below) {
            next.above.remove(0);
            next.below += 1;
        }
        next
    }
}

#[cfg(test)]
mod tests;
