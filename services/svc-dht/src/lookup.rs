//! A lookup as a pure machine: who to ask next, what the answers mean, when it is over.
//!
//! It is driven by one task: `poll` until it says `Wait` or `Done`, send each probe it names, feed what comes back to
//! `handle_answer` and `handle_failure`, and poll again; at `Done` call `finish` and cancel the losers it lists. `now` and
//! the generator are arguments.
//!
//! Always: at most alpha plain probes are under way and in time while it searches, and at most beta hedges at any time;
//! nobody is asked more often than `tries`, nor while a request to it is under way; never ourselves; `Wait` names a
//! moment in the future; the result is sorted, distinct and answered; it ends by its deadline.

pub mod explanation;
pub mod terms;

mod candidates;

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use ron_core::Rng;

use crate::{
    contact::Contact,
    hedge::HedgeBudget,
    id::{Distance, Id},
    record::Record,
};

use candidates::{Asked, Candidate, Candidates, State};
use explanation::{End, Explanation, Step, offset};

pub use terms::{
    Answer, Counts, Failure, Finished, Goal, LookupError, LookupRules, Loser, Next, Outcome, Probe,
    ProbeId, Seed,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    rules: Arc<LookupRules>,
    goal: Goal,
    target: Id,
    started: Instant,
    deadline: Instant,
    candidates: Candidates,
    /// One per probe, by its number, and who was asked.
    steps: Vec<Step>,
    asked: Vec<Id>,
    found: Found,
    /// Answers in a row from among the k closest that named nobody new among the k closest.
    settled: u8,
    /// The longest chain of answers so far, each to a probe begun after the one before.
    rounds: u8,
    ended: Option<Why>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    Enough,
    Converged,
    Deadline,
    HopBudget,
    TooManyRequests,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    value: Option<Box<Record>>,
    holders: usize,
    providers: BTreeMap<[u8; 32], Record>,
    depth: u8,
}

/// The candidates at a glance. The *front* is the k closest that answered or may still answer in time.
#[derive(Default)]
struct Sight {
    front: usize,
    answered: usize,
    /// Of the front: somebody to wait for.
    pending: bool,
    /// The closest alpha of the front have all answered.
    lead_answered: bool,
    /// The closest of the front that was not asked.
    next: Option<usize>,
    /// The closest suspect, for when nobody else is left.
    suspect: Option<usize>,
    /// Plain probes under way and in time, in the front or not.
    fresh: usize,
    /// Hedges under way.
    hedges: usize,
    /// An overdue probe that nothing was started for.
    unhedged: Option<usize>,
    /// Overdue ones nearer than the end of the front, by when the youngest began.
    overdue_since: Option<Instant>,
    /// Somebody in the front is beyond the hop budget.
    beyond: bool,
}

/// With this many answers in a row that changed nothing, the neighbourhood is known.
const SETTLED: u8 = 2;
/// Contacts read from one answer: what the wire allows.
const NAMED_MAX: usize = 64;
/// Providers kept, whatever was wanted.
const PROVIDERS_MAX: usize = 1024;

impl Lookup {
    pub fn new(
        rules: Arc<LookupRules>,
        goal: Goal,
        target: Id,
        me: Id,
        seeds: impl IntoIterator<Item = Seed>,
        now: Instant,
        deadline: Instant,
    ) -> Lookup {
        let mut candidates = Candidates::new(target, me, rules.max_requests);
        for seed in seeds {
            candidates.insert(seed.contact, 0, seed.suspect);
        }
        Lookup {
            rules,
            goal,
            target,
            started: now,
            deadline,
            candidates,
            steps: Vec::new(),
            asked: Vec::new(),
            found: Found::default(),
            settled: 0,
            rounds: 0,
            ended: None,
            counts: Counts::default(),
        }
    }

    pub fn target(&self) -> &Id {
        &self.target
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What to do now. `delay` tells after how long a request to this peer is overdue, if it was observed.
    pub fn poll(
        &mut self,
        now: Instant,
        hedges: &HedgeBudget,
        delay: impl Fn(&Id) -> Option<Duration>,
    ) -> Next {
        self.advance(now);
        if self.ended.is_none() && self.has_enough() {
            self.ended = Some(Why::Enough);
        }
        if self.ended.is_none() && now >= self.deadline {
            self.ended = Some(Why::Deadline);
        }
        if self.ended.is_some() {
            return Next::Done;
        }
        let sight = self.look();
        if let Some(at) = self.who_is_next(&sight) {
            if self.steps.len() >= self.rules.max_requests {
                return self.wait_or_end(now, &sight, Why::TooManyRequests);
            }
            if let Some(slow) = sight.unhedged
                && sight.hedges < self.rules.beta
                && hedges.try_take()
            {
                self.mark_hedged(slow);
                return Next::Probe(self.ask(at, true, now, delay));
            }
            if self.is_closing_in(&sight) || sight.fresh < self.rules.alpha {
                hedges.earn();
                return Next::Probe(self.ask(at, false, now, delay));
            }
            return Next::Wait(self.wake_at(None));
        }
        let why = if sight.beyond {
            Why::HopBudget
        } else {
            Why::Converged
        };
        self.wait_or_end(now, &sight, why)
    }

    /// A late answer counts like any other.
    pub fn handle_answer(&mut self, probe: ProbeId, answer: Answer, now: Instant) {
        let front = self.front_end();
        let Some((candidate, step)) = self.probe_mut(probe) else {
            return;
        };
        if candidate.state == State::Answered {
            return;
        }
        let late = candidate.asked().is_none_or(|asked| asked.overdue);
        candidate.state = State::Answered;
        candidate.suspect = false;
        let (depth, id) = (candidate.depth, candidate.contact.id);
        step.end = if late {
            End::AnsweredLate
        } else {
            End::Answered
        };
        let round = step.round.saturating_add(1);
        self.close(probe, now);
        self.rounds = self.rounds.max(round);
        self.counts.answers += 1;
        self.counts.late += u16::from(late);
        let near = front.is_none_or(|end| self.target.distance(&id) <= end);
        let news = self.consider(&answer, depth.saturating_add(1));
        if news {
            self.settled = 0;
        } else if near {
            self.settled = self.settled.saturating_add(1);
        }
        self.keep(answer.records, depth);
    }

    pub fn handle_failure(
        &mut self,
        probe: ProbeId,
        failure: Failure,
        now: Instant,
        rng: &mut Rng,
    ) {
        let (tries, backoff) = (self.rules.tries, self.rules.backoff);
        let Some((candidate, step)) = self.probe_mut(probe) else {
            return;
        };
        if !candidate.asked().is_some_and(|asked| asked.probe == probe) {
            return;
        }
        let again = match failure {
            Failure::Reset => Some(Duration::ZERO),
            Failure::Refused { retry_after } => retry_after,
            Failure::Timeout | Failure::Unreachable | Failure::Misbehaved => None,
        };
        candidate.state = match again {
            Some(at_least) if candidate.tries < tries => {
                let wait = backoff.delay(u32::from(candidate.tries) - 1, rng);
                let until = now + wait.max(at_least);
                State::Backoff { until }
            }
            _ => State::Failed,
        };
        step.end = match failure {
            Failure::Timeout => End::TimedOut,
            Failure::Unreachable => End::Unreachable,
            Failure::Reset => End::Reset,
            Failure::Refused { .. } => End::Refused,
            Failure::Misbehaved => End::Misbehaved,
        };
        self.close(probe, now);
        self.counts.failures += 1;
    }

    /// To be called at `Done`, or earlier to give up.
    pub fn finish(mut self, now: Instant) -> Finished {
        let why = self.ended.unwrap_or(Why::Deadline);
        let losers = self.cancel(now);
        let k = self.rules.k;
        let answered = |c: &&Candidate| c.state == State::Answered;
        let closest: Vec<_> = self.candidates.iter().filter(answered).take(k).collect();
        let deepest = closest.iter().map(|c| c.depth).max().unwrap_or(0);
        let closest: Vec<_> = closest.into_iter().map(|c| c.contact).collect();
        let has_found = self.found.value.is_some() || !self.found.providers.is_empty();
        let explanation = Explanation {
            target: self.target,
            steps: self.steps.into(),
            took_ms: offset(now.saturating_duration_since(self.started)),
        };
        Finished {
            depth: if has_found { self.found.depth } else { deepest },
            outcome: outcome(
                self.goal,
                why,
                self.found,
                &closest,
                explanation.steps.is_empty(),
            ),
            closest,
            complete: matches!(why, Why::Enough | Why::Converged),
            losers,
            counts: self.counts,
            rounds: self.rounds,
            explanation,
        }
    }

    /// What the time alone changes.
    fn advance(&mut self, now: Instant) {
        let mut timed_out = Vec::new();
        for candidate in self.candidates.iter_mut() {
            match &mut candidate.state {
                State::Asked(asked) if now >= asked.deadline => {
                    timed_out.push(asked.probe);
                    candidate.state = State::Failed;
                }
                State::Asked(asked) if !asked.overdue && now >= asked.overdue_at => {
                    asked.overdue = true;
                    self.counts.overdue += 1;
                }
                State::Backoff { until } if now >= *until => candidate.state = State::New,
                _ => {}
            }
        }
        for probe in timed_out {
            if let Some(step) = self.steps.get_mut(usize::from(probe.0)) {
                step.end = End::TimedOut;
            }
            self.close(probe, now);
            self.counts.failures += 1;
        }
    }

    fn look(&self) -> Sight {
        let mut sight = Sight::default();
        let (mut lead, mut lead_answered) = (0, 0);
        for (at, candidate) in self.candidates.iter().enumerate() {
            if let Some(asked) = candidate.asked() {
                sight.hedges += usize::from(asked.hedge);
                sight.fresh += usize::from(!asked.overdue && !asked.hedge);
                if asked.overdue && !asked.hedged {
                    sight.unhedged.get_or_insert(at);
                }
            }
            if sight.front >= self.rules.k {
                continue;
            }
            match &candidate.state {
                State::Failed => continue,
                State::Asked(asked) if asked.overdue => {
                    sight.overdue_since = sight.overdue_since.max(Some(asked.since));
                    continue;
                }
                State::New if candidate.depth > self.rules.hop_budget => {
                    sight.beyond = true;
                    continue;
                }
                State::New if candidate.suspect => {
                    sight.suspect.get_or_insert(at);
                    continue;
                }
                State::New => {
                    sight.next.get_or_insert(at);
                }
                State::Asked(_) | State::Backoff { .. } => sight.pending = true,
                State::Answered => sight.answered += 1,
            }
            sight.front += 1;
            if lead < self.rules.alpha && !matches!(candidate.state, State::Backoff { .. }) {
                lead += 1;
                lead_answered += usize::from(candidate.state == State::Answered);
            }
        }
        sight.lead_answered = lead > 0 && lead_answered == lead;
        sight
    }

    /// The k closest are known: what is left of them is asked at once.
    fn is_closing_in(&self, sight: &Sight) -> bool {
        sight.lead_answered || self.settled >= SETTLED
    }

    fn who_is_next(&self, sight: &Sight) -> Option<usize> {
        let lonely = !sight.pending && sight.front < self.rules.k;
        sight.next.or(sight.suspect.filter(|_| lonely))
    }

    /// Nobody is left to ask: whom to wait for?
    fn wait_or_end(&mut self, now: Instant, sight: &Sight, why: Why) -> Next {
        if sight.pending || sight.fresh > 0 && sight.next.is_some() {
            return Next::Wait(self.wake_at(None));
        }
        if sight.front < self.rules.k
            && let Some(since) = sight.overdue_since
        {
            let until = since + self.rules.patience;
            // Somebody slow is better than nobody at all.
            if sight.answered == 0 {
                return Next::Wait(self.wake_at(None));
            }
            if now < until {
                return Next::Wait(self.wake_at(Some(until)));
            }
        }
        self.ended = Some(why);
        Next::Done
    }

    /// The next moment at which time alone changes something.
    fn wake_at(&self, also: Option<Instant>) -> Instant {
        let moments = self.candidates.iter().filter_map(|c| match &c.state {
            State::Asked(asked) if asked.overdue => Some(asked.deadline),
            State::Asked(asked) => Some(asked.overdue_at.min(asked.deadline)),
            State::Backoff { until } => Some(*until),
            _ => None,
        });
        moments.chain(also).fold(self.deadline, Instant::min)
    }

    fn ask(
        &mut self,
        at: usize,
        hedge: bool,
        now: Instant,
        delay: impl Fn(&Id) -> Option<Duration>,
    ) -> Probe {
        let id = ProbeId(self.steps.len() as u16);
        let deadline = (now + self.rules.rpc_timeout).min(self.deadline);
        let start_ms = offset(now.saturating_duration_since(self.started));
        let longest = self.rules.hedge_after;
        let candidate = self
            .candidates
            .get_mut(at)
            .expect("the glance was of these candidates");
        let to = candidate.contact;
        let delay = delay(&to.id).unwrap_or(longest).min(longest);
        self.counts.retries += u16::from(candidate.tries > 0);
        candidate.tries += 1;
        candidate.state = State::Asked(Asked {
            probe: id,
            since: now,
            overdue_at: now + delay,
            deadline,
            hedge,
            overdue: false,
            hedged: false,
        });
        self.counts.requests += 1;
        self.counts.hedges += u16::from(hedge);
        self.asked.push(to.id);
        self.steps.push(Step {
            peer: to.id.short(),
            start_ms,
            end_ms: start_ms,
            depth: candidate.depth,
            round: self.rounds,
            hedge,
            end: End::UnderWay,
        });
        Probe {
            id,
            to,
            hedge,
            deadline,
        }
    }

    fn mark_hedged(&mut self, at: usize) {
        if let Some(Candidate {
            state: State::Asked(asked),
            ..
        }) = self.candidates.get_mut(at)
        {
            asked.hedged = true;
        }
    }

    /// Takes up who was named; true if somebody new is now among the k closest.
    fn consider(&mut self, answer: &Answer, depth: u8) -> bool {
        let end = self.front_end();
        let mut news = false;
        for contact in answer.closer.iter().take(NAMED_MAX) {
            let near = end.is_none_or(|end| self.target.distance(&contact.id) < end);
            news |= self.candidates.insert(*contact, depth, false).is_some() && near;
        }
        news
    }

    /// How far the last of the front is; none while it is not full.
    fn front_end(&self) -> Option<Distance> {
        let in_front = |c: &&Candidate| match &c.state {
            State::Failed => false,
            State::Asked(asked) => !asked.overdue,
            State::New => !c.suspect && c.depth <= self.rules.hop_budget,
            State::Backoff { .. } | State::Answered => true,
        };
        let last = self
            .candidates
            .iter()
            .filter(in_front)
            .nth(self.rules.k - 1)?;
        Some(self.target.distance(&last.contact.id))
    }

    fn keep(&mut self, records: Vec<Record>, depth: u8) {
        let found = &mut self.found;
        if records.is_empty() || self.goal == Goal::Closest {
            return;
        }
        found.depth = found.depth.max(depth);
        found.holders += 1;
        for record in records {
            match self.goal {
                Goal::Closest => {}
                Goal::Value { .. } => {
                    if found
                        .value
                        .as_ref()
                        .is_none_or(|held| held.seq < record.seq)
                    {
                        found.value = Some(Box::new(record));
                    }
                }
                Goal::Providers { .. } => {
                    let held = found.providers.get(&record.publisher);
                    let room = held.is_some() || found.providers.len() < PROVIDERS_MAX;
                    if room && held.is_none_or(|held| held.seq < record.seq) {
                        found.providers.insert(record.publisher, record);
                    }
                }
            }
        }
    }

    fn has_enough(&self) -> bool {
        match self.goal {
            Goal::Closest => false,
            Goal::Value { quorum } => self.found.value.is_some() && self.found.holders >= quorum,
            Goal::Providers { wanted } => {
                self.found.providers.len() >= wanted.clamp(1, PROVIDERS_MAX)
            }
        }
    }

    fn cancel(&mut self, now: Instant) -> Vec<Loser> {
        let under_way = |c: &Candidate| {
            c.asked().map(|asked| Loser {
                probe: asked.probe,
                to: c.contact,
                hedge: asked.hedge,
                overdue: asked.overdue || now >= asked.overdue_at,
            })
        };
        let losers: Vec<_> = self.candidates.iter().filter_map(under_way).collect();
        for loser in &losers {
            self.counts.hedges_canceled += u16::from(loser.hedge);
            self.steps[usize::from(loser.probe.0)].end = End::Canceled;
            self.close(loser.probe, now);
        }
        losers
    }

    fn close(&mut self, probe: ProbeId, now: Instant) {
        if let Some(step) = self.steps.get_mut(usize::from(probe.0)) {
            step.end_ms = offset(now.saturating_duration_since(self.started));
        }
    }

    fn probe_mut(&mut self, probe: ProbeId) -> Option<(&mut Candidate, &mut Step)> {
        let id = self.asked.get(usize::from(probe.0))?;
        let candidate = self.candidates.by_id_mut(id)?;
        Some((candidate, self.steps.get_mut(usize::from(probe.0))?))
    }
}

/// What was found, or why nothing can be said.
fn outcome(
    goal: Goal,
    why: Why,
    found: Found,
    closest: &[Contact],
    asked_nobody: bool,
) -> Result<Outcome, LookupError> {
    if let Some(record) = found.value {
        let holders = found.holders;
        return Ok(Outcome::Value { record, holders });
    }
    if !found.providers.is_empty() {
        return Ok(Outcome::Providers(found.providers.into_values().collect()));
    }
    match (why, goal) {
        (Why::Deadline, _) if closest.is_empty() => Err(LookupError::Deadline),
        _ if asked_nobody => Err(LookupError::NoPeers),
        _ if closest.is_empty() => Err(LookupError::Unreachable),
        (_, Goal::Closest) => Ok(Outcome::Closest),
        (Why::Converged | Why::Enough, _) => Ok(Outcome::NotFound),
        (Why::Deadline, _) => Err(LookupError::Deadline),
        (Why::HopBudget, _) => Err(LookupError::HopExceeded),
        (Why::TooManyRequests, _) => Err(LookupError::TooManyRequests),
    }
}

/// Equal states hash alike; a record is told by its publisher and sequence.
impl Hash for Found {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let told = |record: &Record| (record.publisher, record.seq);
        self.value.as_deref().map(told).hash(state);
        self.providers
            .values()
            .for_each(|record| told(record).hash(state));
        (self.holders, self.depth).hash(state);
    }
}
