//! The audit log in a small world: operations, drops, failing writes, checkpoints, and a crash at any point.
//!
//! It steps the shipped [`AuditLog`] and, after a crash, the shipped reading of the file. A write is in
//! flight until it is reported, one that failed lies there until it is cut off, and a crash keeps none, a part
//! or all of either. What was answered is the world's own account; what the log tells is read from the bytes
//! that are durable.
//!
//! A simulated run is followed by the same world ([`AuditWorld::following`]). It must not grow with the log, so
//! what a checkpoint covers is kept as what reading it comes to: reading is a fold over the records, and reading
//! on from there is the same as reading all of them. The world's own account, which only the properties need, is
//! left out then.

mod follow;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use self::told::Told;
use crate::audit::{
    checkpoint::Checkpoint,
    frames::Scanner,
    log::{Act, Admission, AuditLog, Head, Limits, Policy, Submission, Ticket},
    record::{Action as KeyUse, Event, OpId, Operation, Outcome, Seq},
    recovery::{Recovered, Recovery, Stored},
};
pub use follow::Item;

/// What to try.
#[derive(Clone, Debug)]
pub struct AuditWorld {
    pub policy: Policy,
    pub limits: Limits,
    pub operations: u8,
    /// Of the operations, those whose result is kept for a caller who asks again.
    pub kept: u8,
    pub crashes: u8,
    pub failures: u8,
    pub drops: u8,
    /// Operations whose holder goes away with the number.
    pub abandons: u8,
    pub checkpoints: u8,
    /// A run is followed: nothing is kept that grows with the log.
    pub follows: bool,
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
    /// Durable: what the records up to a checkpoint came to when they were read …
    base: Box<Recovery>,
    /// … and the file from there on.
    file: Vec<u8>,
    stored: Option<Head>,
    /// Under way.
    writing: Option<Vec<u8>>,
    publishing: Option<Head>,
    /// Failed: it may be there all the same until it is cut off, or replaced.
    remains: Option<Vec<u8>>,
    unsure: Vec<Head>,
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
    /// Of an intent, or of an operation whose result is kept.
    Outcome(Seq),
    /// Nothing of its own depends on it: a change of a key, a nonce mark.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spent {
    operations: u8,
    kept: u8,
    crashes: u8,
    failures: u8,
    drops: u8,
    abandons: u8,
    checkpoints: u8,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Begin,
    Submit(Seq),
    /// Its result is kept for a caller who asks again: the answer waits.
    SubmitKept(Seq),
    Drop(Seq),
    /// Whoever carried the number is gone.
    Abandon(Seq),
    /// So many of the queue, from its front.
    Append(usize),
    Appended,
    AppendFailed,
    Truncated,
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    Overdue,
    Close,
    /// Nobody who has a number comes back.
    AbandonAll,
    /// The process ends and another one starts. A checkpoint of this size is found, if not the stored one.
    Crash {
        kept: Kept,
        published: Option<u64>,
    },
}

/// How much of a write under way, or of one that failed, a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    Nothing,
    Half,
    All,
    /// So many whole records, and perhaps a part of the next.
    Records(u64),
}

/// The number of a use whose intent has none yet.
const NO_RECORD: Seq = Seq::MAX;

/// For small worlds: everything is due soon.
pub const TIGHT: Limits = Limits {
    reserve: 2,
    checkpoint_records: 1,
    checkpoint_interval_ms: 0,
    checkpoint_deadline_ms: 1,
    untold_max: 2,
};

impl Model for AuditWorld {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let base = Box::new(Recovery::new(Stored::Absent));
        let log = self.recover(&base, &[], None).log;
        let mut world = World {
            log,
            base,
            file: Vec::new(),
            stored: None,
            writing: None,
            publishing: None,
            remains: None,
            unsure: Vec::new(),
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
        let mut offer = |action: Action, budget: bool| {
            if budget && self.may(world, &action) {
                actions.push(action);
            }
        };
        offer(
            Action::Begin,
            spent.operations < self.operations && !spent.closed,
        );
        for seq in &world.hands {
            offer(Action::Submit(*seq), true);
            offer(Action::SubmitKept(*seq), spent.kept < self.kept);
            offer(Action::Abandon(*seq), spent.abandons < self.abandons);
        }
        let shed = world.queue.iter().find(|s| s.event.may_be_shed());
        if let Some(seq) = shed.and_then(|s| s.seq) {
            offer(Action::Drop(seq), spent.drops < self.drops);
        }
        let kept = world.queue.iter().filter_map(|s| s.seq);
        for seq in kept.filter(|seq| world.is_kept_in_queue(*seq)) {
            offer(Action::Abandon(seq), spent.abandons < self.abandons);
        }
        let wants = !world.queue.is_empty() || world.log.wants_append();
        offer(Action::Append(world.queue.len()), wants);
        offer(Action::Appended, true);
        let fails = spent.failures < self.failures;
        offer(Action::AppendFailed, fails);
        offer(Action::Truncated, true);
        let due = world.log.checkpoint_due(0) && spent.checkpoints < self.checkpoints;
        offer(Action::Checkpoint, due);
        offer(Action::Checkpointed, true);
        offer(Action::CheckpointFailed, fails);
        offer(Action::Overdue, fails && world.log.is_ready());
        offer(Action::Close, !spent.closed);
        offer(Action::AbandonAll, spent.closed && !world.hands.is_empty());
        let heads = world.heads_unsure().map(|head| Some(head.size));
        let heads: Vec<_> = std::iter::once(None).chain(heads).collect();
        for kept in [Kept::Nothing, Kept::Half, Kept::All] {
            for published in &heads {
                let published = *published;
                let crash = Action::Crash { kept, published };
                offer(crash, spent.crashes < self.crashes);
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        self.step(&mut world, action)?;
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
    /// Whether this can happen at all, however much has happened.
    pub fn may(&self, world: &World, action: &Action) -> bool {
        let strict = self.policy == Policy::Strict;
        match action {
            Action::Begin | Action::Close => true,
            // Said by the appender itself, between two batches.
            Action::AbandonAll => world.writing.is_none() && world.remains.is_none(),
            Action::Submit(seq) => world.hands.contains(seq),
            // A full queue may refuse what it may not shed.
            Action::Abandon(seq) => world.hands.contains(seq) || world.is_kept_in_queue(*seq),
            Action::SubmitKept(seq) => !strict && world.hands.contains(seq),
            Action::Drop(seq) => {
                let is = |s: &Submission| s.seq == Some(*seq) && s.event.may_be_shed();
                world.queue.iter().any(is)
            }
            Action::Append(count) => {
                world.writing.is_none() && world.remains.is_none() && *count <= world.queue.len()
            }
            Action::Appended | Action::AppendFailed => world.writing.is_some(),
            Action::Truncated => world.remains.is_some(),
            Action::Checkpoint => world.publishing.is_none(),
            Action::Checkpointed | Action::CheckpointFailed | Action::Overdue => {
                world.publishing.is_some()
            }
            Action::Crash { kept, published } => {
                let lies = world.writing.is_some() || world.remains.is_some();
                let found = |size: &u64| world.heads_unsure().any(|head| head.size == *size);
                (lies || *kept == Kept::Nothing) && published.as_ref().is_none_or(found)
            }
        }
    }

    /// Takes a step in place; `None` if it leads nowhere.
    pub fn step(&self, world: &mut World, action: Action) -> Option<()> {
        match action {
            Action::Begin => self.begin(world),
            Action::Submit(seq) => self.submit(world, seq),
            Action::SubmitKept(seq) => self.submit_kept(world, seq),
            Action::Drop(seq) => {
                world.spend(|spent| &mut spent.drops);
                world.queue.retain(|s| s.seq != Some(seq));
                world.log.handle_dropped(seq);
            }
            Action::Abandon(seq) => {
                world.spend(|spent| &mut spent.abandons);
                world.hands.remove(&seq);
                world.queue.retain(|s| s.seq != Some(seq));
                world.log.handle_abandoned(seq);
            }
            Action::Append(count) => self.append(world, count),
            Action::Appended => {
                let bytes = world.writing.take()?;
                world.file.extend(bytes);
                if self.flaw != Some(Flaw::SkipsSync) {
                    self.acknowledge(world);
                }
                self.read(world);
            }
            Action::AppendFailed => {
                world.spend(|spent| &mut spent.failures);
                world.remains = world.writing.take();
                let acts = world.log.handle_append_failed();
                self.obey(world, acts);
            }
            Action::Truncated => {
                let bytes = world.remains.take()?;
                if self.flaw == Some(Flaw::KeepsFailedWrite) {
                    world.file.extend(&bytes[..bytes.len() / 2]);
                    self.read(world);
                }
                world.log.handle_truncated();
            }
            Action::Checkpoint => self.checkpoint(world)?,
            Action::Checkpointed => {
                world.stored = world.publishing.take();
                world.unsure.clear();
                world.log.handle_checkpointed(0);
                self.trim(world);
            }
            Action::CheckpointFailed => {
                world.spend(|spent| &mut spent.failures);
                world.unsure.extend(world.publishing.take());
                world.log.handle_checkpoint_failed();
            }
            Action::Overdue => {
                world.spend(|spent| &mut spent.failures);
                world.log.handle_time(self.limits.checkpoint_deadline_ms);
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
            Action::Crash { kept, published } => self.crash(world, kept, published),
        }
        Some(())
    }

    /// An operation comes: under `shed` it gets a number, under `strict` its intent is handed over.
    fn begin(&self, world: &mut World) {
        world.spend(|spent| &mut spent.operations);
        match world.log.admit(KeyUse::Sign) {
            Ok(Admission::Numbered(seq)) => {
                world.hands.insert(seq);
            }
            Ok(Admission::ByIntent) => {
                let seq = 0;
                let operation = operation(None);
                world.hand_over(Wait::Intent, None, Event::Intent { seq, operation });
                if self.flaw == Some(Flaw::UsesKeyBeforeIntent) {
                    world.used.insert(NO_RECORD);
                }
            }
            Ok(Admission::Unrecorded) | Err(_) => {}
        }
    }

    /// The key was used, and what came of it is handed over. Under `shed` the answer leaves with it.
    fn submit(&self, world: &mut World, seq: Seq) {
        world.hands.remove(&seq);
        let outcome = Outcome::Done;
        if self.policy == Policy::Strict {
            let event = Event::Outcome { seq, outcome };
            return world.hand_over(Wait::Outcome(seq), Some(seq), event);
        }
        if !self.follows {
            world.used.insert(seq);
            world.answered.insert(seq);
        }
        let operation = operation(None);
        let event = Event::Operation {
            seq,
            operation,
            outcome,
        };
        world.queue.push(submission(NOBODY, Some(seq), event));
    }

    fn submit_kept(&self, world: &mut World, seq: Seq) {
        world.spend(|spent| &mut spent.kept);
        world.hands.remove(&seq);
        if !self.follows {
            world.used.insert(seq);
        }
        let (id, request) = ([0; 32], [0; 32]);
        let event = Event::Operation {
            seq,
            operation: operation(Some(OpId { id, request })),
            outcome: Outcome::Done,
        };
        world.hand_over(Wait::Outcome(seq), Some(seq), event);
    }

    fn append(&self, world: &mut World, count: usize) {
        let batch: Vec<_> = world.queue.drain(..count).collect();
        let acts = world.log.begin_append(0, batch);
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
                Act::Proceed { ticket, seq, .. } => self.proceed(world, ticket, seq),
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

    /// An intent that is durable lets the key be used, an outcome that is durable the answer leave.
    fn proceed(&self, world: &mut World, ticket: Ticket, seq: Seq) {
        match world.waiting.remove(&ticket) {
            Some(Wait::Intent) => {
                world.hands.insert(seq);
                if !self.follows {
                    world.used.insert(seq);
                }
            }
            Some(Wait::Outcome(seq)) if !self.follows => {
                world.answered.insert(seq);
            }
            Some(Wait::Outcome(_) | Wait::Other) | None => {}
        }
    }

    fn checkpoint(&self, world: &mut World) -> Option<()> {
        world.spend(|spent| &mut spent.checkpoints);
        let Act::Publish { head, .. } = world.log.begin_checkpoint(0)? else {
            return None;
        };
        world.covered_less |= head.size < world.acknowledged;
        world.publishing = Some(head);
        Some(())
    }

    fn crash(&self, world: &mut World, kept: Kept, published: Option<u64>) {
        world.spend(|spent| &mut spent.crashes);
        let lies = world.writing.take().or(world.remains.take());
        let lies = lies.unwrap_or_default();
        let survives = match kept {
            Kept::Nothing => 0,
            Kept::Half => lies.len() / 2,
            Kept::All => lies.len(),
            Kept::Records(count) => world.length_of(&lies, count),
        };
        world.file.extend(&lies[..survives]);
        let found = world
            .heads_unsure()
            .find(|head| Some(head.size) == published);
        world.stored = found.copied().or(world.stored);
        world.publishing = None;
        world.unsure.clear();
        let recovered = self.recover(&world.base, &world.file, world.stored);
        if recovered.truncate.is_some() && self.flaw != Some(Flaw::KeepsTornTail) {
            let records = recovered.log.size() - world.base.records();
            let whole = world.length_of(&world.file, records);
            world.file.truncate(whole);
        }
        world.log = recovered.log;
        world.looked_tampered |= world.log.mismatch().is_some();
        world.hands.clear();
        world.queue.clear();
        world.waiting.clear();
        world.spent.closed = false;
        self.read(world);
        self.trim(world);
    }

    fn recover(&self, base: &Recovery, file: &[u8], stored: Option<Head>) -> Recovered {
        let stored = match stored {
            None => Stored::Absent,
            Some(Head { size, root }) => Stored::Verified(Checkpoint {
                origin: "model".into(),
                size,
                root,
            }),
        };
        let mut recovery = base.clone().under(stored);
        let mut scanner = Scanner::starting_at(base.records());
        scanner.feed(file, |framed| recovery.record(&framed));
        let scan = scanner.finish(|framed| recovery.record(&framed));
        recovery.finish(&scan, self.policy, self.limits, 0)
    }

    /// Reads the durable bytes again, for the properties.
    fn read(&self, world: &mut World) {
        if !self.follows {
            let missing = self.recover(&world.base, &world.file, world.stored).missing;
            world.told = Told::read(&world.file, missing);
        }
    }
}

impl World {
    fn is_kept_in_queue(&self, seq: Seq) -> bool {
        let is = |s: &Submission| s.seq == Some(seq) && !s.event.may_be_shed();
        self.queue.iter().any(is)
    }

    fn hand_over(&mut self, wait: Wait, seq: Option<Seq>, event: Event) {
        let ticket = self
            .waiting
            .keys()
            .next_back()
            .map_or(NOBODY + 1, |last| last + 1);
        self.waiting.insert(ticket, wait);
        self.queue.push(submission(ticket, seq, event));
    }

    /// Checkpoints that a start may find though nobody reported them.
    fn heads_unsure(&self) -> impl Iterator<Item = &Head> {
        self.unsure.iter().chain(&self.publishing)
    }

    fn spend(&mut self, what: impl FnOnce(&mut Spent) -> &mut u8) {
        let count = what(&mut self.spent);
        *count = count.saturating_add(1);
    }

    /// Were this the end: is every answered operation recorded, told as lost, or within a bound?
    fn gaps_admit_all_missing(&self) -> bool {
        self.told.admits(&self.answered)
    }
}

fn operation(op_id: Option<OpId>) -> Operation {
    Operation {
        action: KeyUse::Sign,
        tenant: String::new(),
        kid: String::new(),
        version: 1,
        alg: String::new(),
        actor: String::new(),
        digests: Vec::new(),
        op_id,
    }
}

/// The ticket of those who do not wait.
const NOBODY: Ticket = 0;

fn submission(ticket: Ticket, seq: Option<Seq>, event: Event) -> Submission {
    Submission {
        ticket,
        seq,
        event,
        attachment: Vec::new(),
    }
}
