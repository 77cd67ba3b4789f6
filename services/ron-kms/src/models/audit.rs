//! The audit log in a small world: operations, drops, failing writes, checkpoints, and a crash at any point.
//!
//! It steps the shipped [`AuditLog`] and, after a crash, the shipped reading of the file. A write is in
//! flight until it is reported, and a crash keeps none, half or all of it. What was answered is the world's
//! own account; what the log tells is read from the bytes that are durable.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use crate::audit::{
    checkpoint::Checkpoint,
    frames::{self, End},
    log::{Act, Admission, AuditLog, Head, Limits, Policy, Submission, Ticket},
    merkle::Frontier,
    record::{Action as KeyUse, Event, Operation, Outcome, Seq},
    recovery::{Recovered, Recovery, Stored},
    sequence::Missing,
};

/// What to try.
#[derive(Clone, Debug)]
pub struct AuditWorld {
    pub policy: Policy,
    pub operations: u8,
    pub crashes: u8,
    pub failures: u8,
    pub drops: u8,
    pub checkpoints: u8,
    /// `None` is the shipped code.
    pub flaw: Option<Flaw>,
}

/// A known mistake, put around the shipped code for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A write counts as durable before it is.
    SkipsSync,
    /// A key is used as soon as its intent is handed over.
    UsesKeyBeforeIntent,
    /// What is refused is answered all the same.
    AnswersRefused,
    /// What a crash tore stays in the file.
    KeepsTornTail,
    /// The end of a failed write stays in the file.
    KeepsFailedWrite,
}

/// The properties, by name.
pub const CONTIGUOUS: &str = "indexes are contiguous, and no durable record is ever lost";
pub const COVERS: &str = "a checkpoint covers all prior appends, and its root is theirs";
pub const INTENT: &str = "strict: no key is used without a durable intent";
pub const OUTCOME: &str = "strict: nothing is answered without a durable outcome";
pub const ADMITTED: &str = "shed: what was answered is recorded, or within what gaps admit";
pub const EXACT: &str = "a gap record tells of no operation that is recorded";
pub const ONCE: &str = "no number stands for two operations";
pub const SOUND: &str = "a crash never looks like tampering";
pub const CLOSES: &str = "the log can be closed, and then tells of everything";
pub const DRAINS: &str = "closing completes, whatever failed before";
pub const RESTARTS: &str = "a restart gap can be told";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    log: AuditLog,
    /// Durable.
    file: Vec<u8>,
    stored: Option<Head>,
    /// Under way.
    writing: Option<Vec<u8>>,
    publishing: Option<Head>,
    /// What lives in memory: operations with a number, the queue, who waits.
    hands: BTreeSet<Seq>,
    queue: Vec<Submission>,
    waiting: BTreeMap<Ticket, Wait>,
    /// The world's own account.
    used: BTreeSet<Seq>,
    answered: BTreeSet<Seq>,
    acknowledged: u64,
    covered_less: bool,
    looked_tampered: bool,
    told: Told,
    spent: Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    Intent,
    Outcome(Seq),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    operations: u8,
    crashes: u8,
    failures: u8,
    drops: u8,
    checkpoints: u8,
    closed: bool,
}

/// What the durable bytes tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Told {
    records: u64,
    whole: bool,
    twice: bool,
    recorded: BTreeSet<Seq>,
    intents: BTreeSet<Seq>,
    outcomes: BTreeSet<Seq>,
    gaps: BTreeSet<Seq>,
    restarts: Vec<(Seq, Seq, u64)>,
    /// What the next start would tell, were this the end.
    missing: Option<(Seq, Seq, u64)>,
    closed: bool,
    /// Root at each size.
    roots: Vec<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Begin,
    Submit(Seq),
    Drop,
    Append,
    Appended,
    AppendFailed,
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    Close,
    /// Nobody who has a number comes back.
    AbandonAll,
    Crash {
        kept: Kept,
        published: bool,
    },
}

/// How much of a write under way a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    Nothing,
    Half,
    All,
}

/// The number of a use whose intent has none yet.
const NO_RECORD: Seq = Seq::MAX;

const LIMITS: Limits = Limits {
    reserve: 2,
    checkpoint_records: 1,
    checkpoint_interval_ms: 0,
    checkpoint_deadline_ms: 1,
};

impl Model for AuditWorld {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let file = frames::encode_header([0; 16]);
        let log = self.recover(&file, None).log;
        let mut world = World {
            log,
            file,
            stored: None,
            writing: None,
            publishing: None,
            hands: BTreeSet::new(),
            queue: Vec::new(),
            waiting: BTreeMap::new(),
            used: BTreeSet::new(),
            answered: BTreeSet::new(),
            acknowledged: 0,
            covered_less: false,
            looked_tampered: false,
            told: Told::default(),
            spent: Spent::default(),
        };
        self.read(&mut world);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let spent = world.spent;
        if spent.operations < self.operations && !spent.closed {
            actions.push(Action::Begin);
        }
        actions.extend(world.hands.iter().map(|seq| Action::Submit(*seq)));
        if spent.drops < self.drops && world.queue.first().is_some_and(|s| s.event.may_be_shed()) {
            actions.push(Action::Drop);
        }
        match world.writing {
            Some(_) => {
                actions.push(Action::Appended);
                if spent.failures < self.failures {
                    actions.push(Action::AppendFailed);
                }
            }
            None if !world.queue.is_empty() || world.log.wants_append() => {
                actions.push(Action::Append);
            }
            None => {}
        }
        if world.publishing.is_some() {
            actions.push(Action::Checkpointed);
            if spent.failures < self.failures {
                actions.push(Action::CheckpointFailed);
            }
        } else if spent.checkpoints < self.checkpoints && world.log.checkpoint_due(0) {
            actions.push(Action::Checkpoint);
        }
        match spent.closed {
            false => actions.push(Action::Close),
            true if !world.hands.is_empty() => actions.push(Action::AbandonAll),
            true => {}
        }
        if spent.crashes < self.crashes {
            for kept in [Kept::Nothing, Kept::Half, Kept::All] {
                let none = world.writing.is_none() && kept != Kept::Nothing;
                for published in [false, true] {
                    if !none && (!published || world.publishing.is_some()) {
                        actions.push(Action::Crash { kept, published });
                    }
                }
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Begin => self.begin(&mut world),
            Action::Submit(seq) => self.submit(&mut world, seq),
            Action::Drop => {
                world.spent.drops += 1;
                let dropped = world.queue.remove(0);
                world.log.handle_dropped(dropped.seq?);
            }
            Action::Append => self.append(&mut world),
            Action::Appended => {
                let bytes = world.writing.take()?;
                world.file.extend(bytes);
                if self.flaw != Some(Flaw::SkipsSync) {
                    self.acknowledge(&mut world);
                }
            }
            Action::AppendFailed => {
                world.spent.failures += 1;
                let bytes = world.writing.take()?;
                if self.flaw == Some(Flaw::KeepsFailedWrite) {
                    world.file.extend(&bytes[..bytes.len() / 2]);
                }
                let acts = world.log.handle_append_failed();
                self.obey(&mut world, acts);
                world.log.handle_truncated();
            }
            Action::Checkpoint => self.checkpoint(&mut world)?,
            Action::Checkpointed => {
                world.stored = world.publishing.take();
                world.log.handle_checkpointed(0);
            }
            Action::CheckpointFailed => {
                world.spent.failures += 1;
                world.publishing = None;
                world.log.handle_checkpoint_failed();
            }
            Action::Close => {
                world.spent.closed = true;
                world.log.close();
            }
            Action::AbandonAll => {
                world.hands.clear();
                world.queue.clear();
                world.waiting.clear();
                world.log.handle_all_abandoned();
            }
            Action::Crash { kept, published } => self.crash(&mut world, kept, published),
        }
        if world.file != before.file {
            self.read(&mut world);
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(CONTIGUOUS, |_, world: &World| {
                world.told.whole && world.told.records >= world.acknowledged
            }),
            Property::always(COVERS, |_, world: &World| {
                let told = &world.told.roots;
                let root = |head: &Head| told.get(head.size as usize) == Some(&head.root);
                !world.covered_less && world.stored.as_ref().is_none_or(root)
            }),
            Property::always(INTENT, |model: &Self, world: &World| {
                model.policy == Policy::Shed || world.used.is_subset(&world.told.intents)
            }),
            Property::always(OUTCOME, |model: &Self, world: &World| {
                model.policy == Policy::Shed || world.answered.is_subset(&world.told.outcomes)
            }),
            Property::always(ADMITTED, |model: &Self, world: &World| {
                model.policy == Policy::Strict || world.gaps_admit_all_missing()
            }),
            Property::always(EXACT, |_, world: &World| {
                world.told.gaps.is_disjoint(&world.told.recorded)
            }),
            Property::always(ONCE, |_, world: &World| !world.told.twice),
            Property::always(SOUND, |_, world: &World| !world.looked_tampered),
            Property::sometimes(CLOSES, |_, world: &World| {
                world.told.closed && !world.answered.is_empty() && world.spent.crashes > 0
            }),
            Property::eventually(DRAINS, |_, world: &World| world.log.is_closed()),
            Property::sometimes(RESTARTS, |model: &Self, world: &World| {
                model.policy == Policy::Strict || !world.told.restarts.is_empty()
            }),
        ]
    }
}

impl AuditWorld {
    /// An operation comes: under `shed` it gets a number, under `strict` its intent is handed over.
    fn begin(&self, world: &mut World) {
        world.spent.operations += 1;
        match world.log.admit(KeyUse::Sign) {
            Ok(Admission::Numbered(seq)) => {
                world.hands.insert(seq);
            }
            Ok(Admission::ByIntent) => {
                let seq = 0;
                let operation = operation();
                world.hand_over(Wait::Intent, None, Event::Intent { seq, operation });
                if self.flaw == Some(Flaw::UsesKeyBeforeIntent) {
                    world.used.insert(NO_RECORD);
                }
            }
            Ok(Admission::Unrecorded) | Err(_) => {}
        }
    }

    /// The key was used and the answer leaves; the record is handed over.
    fn submit(&self, world: &mut World, seq: Seq) {
        world.hands.remove(&seq);
        world.used.insert(seq);
        world.answered.insert(seq);
        let event = Event::Operation {
            seq,
            operation: operation(),
            outcome: Outcome::Done,
        };
        world.queue.push(submission(0, Some(seq), event));
    }

    fn append(&self, world: &mut World) {
        let queue = std::mem::take(&mut world.queue);
        let acts = world.log.begin_append(0, queue);
        self.obey(world, acts);
        if self.flaw == Some(Flaw::SkipsSync) {
            self.acknowledge(world);
        }
    }

    fn acknowledge(&self, world: &mut World) {
        let acts = world.log.handle_appended();
        world.acknowledged = world.log.size();
        self.obey(world, acts);
    }

    fn obey(&self, world: &mut World, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Write { bytes, .. } => world.writing = Some(bytes.to_vec()),
                Act::Proceed { ticket, seq, .. } => world.proceed(ticket, seq),
                Act::Refuse { ticket, .. } => {
                    if let Some(Wait::Outcome(seq)) = world.waiting.remove(&ticket) {
                        world.log.handle_abandoned(seq);
                        if self.flaw == Some(Flaw::AnswersRefused) {
                            world.answered.insert(seq);
                        }
                    }
                }
                Act::Truncate { .. } | Act::Publish { .. } | Act::Degraded | Act::Ready => {}
            }
        }
    }

    fn checkpoint(&self, world: &mut World) -> Option<()> {
        world.spent.checkpoints += 1;
        let Act::Publish { head, .. } = world.log.begin_checkpoint(0)? else {
            return None;
        };
        world.covered_less |= head.size < world.acknowledged;
        world.publishing = Some(head);
        Some(())
    }

    fn crash(&self, world: &mut World, kept: Kept, published: bool) {
        world.spent.crashes += 1;
        let writing = world.writing.take().unwrap_or_default();
        let survives = match kept {
            Kept::Nothing => 0,
            Kept::Half => writing.len() / 2,
            Kept::All => writing.len(),
        };
        world.file.extend(&writing[..survives]);
        let publishing = world.publishing.take();
        world.stored = publishing.filter(|_| published).or(world.stored);
        let recovered = self.recover(&world.file, world.stored);
        if let Some(len) = recovered.truncate
            && self.flaw != Some(Flaw::KeepsTornTail)
        {
            world.file.truncate(len as usize);
        }
        world.log = recovered.log;
        world.looked_tampered |= world.log.mismatch().is_some();
        world.hands.clear();
        world.queue.clear();
        world.waiting.clear();
        world.spent.closed = false;
    }

    fn recover(&self, file: &[u8], stored: Option<Head>) -> Recovered {
        let stored = match stored {
            None => Stored::Absent,
            Some(Head { size, root }) => Stored::Verified(Checkpoint {
                origin: "model".into(),
                size,
                root,
            }),
        };
        let mut recovery = Recovery::new(stored);
        match frames::scan(file, |framed| recovery.record(&framed)) {
            Ok((_, scan)) => recovery.finish(&scan, self.policy, LIMITS, 0),
            Err(error) => unreachable!("the header is never written over: {error}"),
        }
    }

    /// Reads the durable bytes again.
    fn read(&self, world: &mut World) {
        let mut told = Told::default();
        let mut frontier = Frontier::default();
        told.roots.push(frontier.root());
        let scan = frames::scan(&world.file, |framed| {
            frontier.push(crate::audit::merkle::leaf_hash(framed.leaf));
            told.roots.push(frontier.root());
            told.tell(&framed.record.event);
        });
        if let Ok((_, scan)) = scan {
            told.records = scan.records;
            // A torn end is seen only before the start has cut it off.
            told.whole = scan.end == End::Clean;
        }
        let missing = self.recover(&world.file, world.stored).missing;
        told.missing = missing.map(|m: Missing| (m.first, m.end, m.at_most));
        world.told = told;
    }
}

impl World {
    fn hand_over(&mut self, wait: Wait, seq: Option<Seq>, event: Event) {
        let ticket = self.waiting.keys().next_back().map_or(1, |last| last + 1);
        self.waiting.insert(ticket, wait);
        self.queue.push(submission(ticket, seq, event));
    }

    /// Strict: an intent that is durable lets the key be used, an outcome that is durable the answer leave.
    fn proceed(&mut self, ticket: Ticket, seq: Seq) {
        match self.waiting.remove(&ticket) {
            Some(Wait::Intent) => {
                self.used.insert(seq);
                let outcome = Outcome::Done;
                self.hand_over(
                    Wait::Outcome(seq),
                    Some(seq),
                    Event::Outcome { seq, outcome },
                );
            }
            Some(Wait::Outcome(seq)) => {
                self.answered.insert(seq);
            }
            None => {}
        }
    }

    /// Were this the end: is every answered operation recorded, told as lost, or within a bound?
    fn gaps_admit_all_missing(&self) -> bool {
        let told = &self.told;
        let mut missing = self.answered.clone();
        missing.retain(|seq| !told.recorded.contains(seq) && !told.gaps.contains(seq));
        for (first, end, at_most) in told.restarts.iter().chain(&told.missing) {
            let before = missing.len();
            missing.retain(|seq| !(first..end).contains(&seq));
            if (before - missing.len()) as u64 > *at_most {
                return false;
            }
        }
        missing.is_empty()
    }
}

impl Told {
    fn tell(&mut self, event: &Event) {
        match event {
            Event::Operation { seq, .. } => self.twice |= !self.recorded.insert(*seq),
            Event::Intent { seq, .. } => self.twice |= !self.intents.insert(*seq),
            Event::Outcome { seq, .. } => self.twice |= !self.outcomes.insert(*seq),
            Event::Gap { first, count, .. } => {
                for seq in *first..first + count {
                    self.twice |= !self.gaps.insert(seq);
                }
            }
            Event::RestartGap {
                first,
                end,
                at_most,
            } => self.restarts.push((*first, *end, *at_most)),
            _ => {}
        }
        self.closed = matches!(event, Event::Closed { .. });
    }
}

fn operation() -> Operation {
    Operation {
        action: KeyUse::Sign,
        tenant: "t".into(),
        kid: "k".into(),
        version: 1,
        alg: "ed25519".into(),
        actor: "a".into(),
        digests: Vec::new(),
        op_id: None,
    }
}

fn submission(ticket: Ticket, seq: Option<Seq>, event: Event) -> Submission {
    Submission {
        ticket,
        seq,
        event,
        attachment: Vec::new(),
    }
}
