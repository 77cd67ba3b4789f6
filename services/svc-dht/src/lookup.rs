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
mod crowd;
mod found;
mod sight;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ron_core::Rng;

use crate::{
    hedge::HedgeBudget,
    id::{Distance, Id},
};

use candidates::{Asked, Candidate, Candidates, State};
use crowd::Crowd;
use explanation::{End, Explanation, Step, offset};
use found::Found;
use sight::Sight;

pub use terms::{
    Answer, Counts, Failure, Finished, Goal, LookupError, LookupRules, Loser, NAMED, Next, Outcome,
    Probe, ProbeId, Seed,
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
    /// An answer confirmed the k closest, and none has added to them since.
    settled: bool,
    /// The longest chain of answers so far, each to a probe begun after the one before.
    rounds: u8,
    /// The longest that an answer took.
    slowest: Duration,
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

/// An answer that names a quarter of the k closest knows the neighbourhood.
const CONFIRMS: usize = 4;
/// Contacts read from one answer: what the wire allows.
const NAMED_MAX: usize = 64;

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
            settled: false,
            rounds: 0,
            slowest: Duration::ZERO,
            ended: None,
            counts: Counts::default(),
        }
    }

    pub fn target(&self) -> &Id {
        &self.target
    }

    /// Whether the k closest are known, so that what is left of them may be asked at once.
    pub fn is_closing_in(&self) -> bool {
        self.closes_in(&Sight::of(&self.candidates, &self.rules))
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
        if self.ended.is_none() && self.found.is_enough(self.goal) {
            self.ended = Some(Why::Enough);
        }
        if self.ended.is_none() && now >= self.deadline {
            self.ended = Some(Why::Deadline);
        }
        if self.ended.is_some() {
            return Next::Done;
        }
        let sight = Sight::of(&self.candidates, &self.rules);
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
            if sight.fresh < self.width(&sight) {
                hedges.earn();
                return Next::Probe(self.ask(at, false, now, delay));
            }
            return Next::Wait(self.wake_at(None));
        }
        if self.closes_in(&sight)
            && sight.fresh < self.width(&sight)
            && sight.pending
            && let Some(at) = sight.spare
            && self.steps.len() < self.rules.max_requests
            && sight.in_time < self.wanted(&sight)
        {
            hedges.earn();
            return Next::Probe(self.ask(at, false, now, delay));
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
        let Some((candidate, step)) = self.probe_mut(probe) else {
            return;
        };
        if candidate.state == State::Answered {
            return;
        }
        let took = candidate
            .asked()
            .map(|asked| now.saturating_duration_since(asked.since));
        let late = candidate.asked().is_none_or(|asked| asked.overdue);
        candidate.state = State::Answered;
        candidate.suspect = false;
        let depth = candidate.depth;
        let subnet = candidate.contact.addr.subnet();
        step.end = if late {
            End::AnsweredLate
        } else {
            End::Answered
        };
        let round = step.round.saturating_add(1);
        self.close(probe, now);
        self.rounds = self.rounds.max(round);
        self.slowest = self.slowest.max(took.unwrap_or_default());
        self.counts.answers += 1;
        self.counts.late += u16::from(late);
        self.consider(&answer, depth.saturating_add(1));
        let from = self.rules.diverse.then_some(subnet);
        self.found.keep(self.goal, answer.records, depth, from);
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
        if candidate.asked().is_none_or(|asked| asked.probe != probe) {
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
        let mut crowd = Crowd::new(self.rules.per_subnet);
        let counts = |c: &&Candidate| {
            let counts = c.state == State::Answered && !crowd.is_full(&c.contact.addr);
            if counts {
                crowd.count(&c.contact.addr);
            }
            counts
        };
        let closest: Vec<_> = self.candidates.iter().filter(counts).take(k).collect();
        let deepest = closest.iter().map(|c| c.depth).max().unwrap_or(0);
        let closest: Vec<_> = closest.into_iter().map(|c| c.contact).collect();
        let has_found = !self.found.is_empty();
        let explanation = Explanation {
            target: self.target,
            steps: self.steps.into(),
            took_ms: offset(now.saturating_duration_since(self.started)),
        };
        Finished {
            depth: if has_found { self.found.depth } else { deepest },
            outcome: found::outcome(
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

    /// The k closest are known: what is left of them is asked at once.
    fn closes_in(&self, sight: &Sight) -> bool {
        sight.lead_answered || self.settled
    }

    /// How many plain probes may be under way. A few that hold a value are enough, so a search for one stays narrow.
    fn width(&self, sight: &Sight) -> usize {
        match (self.closes_in(sight), self.goal) {
            (false, _) => self.rules.alpha,
            (true, Goal::Value { quorum }) => self.rules.alpha.saturating_add(quorum),
            (true, _) => usize::MAX,
        }
    }

    /// How many must have answered or be under way, if as many stay silent as did so far.
    fn wanted(&self, sight: &Sight) -> usize {
        let k = self.rules.k;
        let silent = usize::from(self.counts.overdue.saturating_sub(self.counts.late));
        let heard = usize::from(self.counts.answers);
        let missing = k.saturating_sub(sight.answered);
        let expected = (missing * silent).div_ceil(heard + self.rules.alpha);
        // Of several replacements the slowest counts, so one more for every two.
        k + (expected + missing.min(silent) / 2).min(k / 2)
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
            let until = since + self.patience();
            // If hardly anybody answers in time it is our own link that is slow, and those few are not the closest.
            if sight.answered * 2 < self.rules.k.min(sight.answered + sight.overdue) {
                return Next::Wait(self.wake_at(None));
            }
            if now < until {
                return Next::Wait(self.wake_at(Some(until)));
            }
        }
        if let Some(since) = sight.overdue_since {
            let until = since + (self.slowest * 5 / 4).min(self.patience());
            if now < until {
                return Next::Wait(self.wake_at(Some(until)));
            }
        }
        self.ended = Some(why);
        Next::Done
    }

    /// The longest that an overdue probe is awaited, from its start, when enough have answered.
    fn patience(&self) -> Duration {
        self.rules.hedge_after * 2
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

    /// Takes up who was named. Somebody new among the k closest unsettles them; an answer that names a quarter of
    /// them and nobody new settles them.
    fn consider(&mut self, answer: &Answer, depth: u8) {
        let end = self.front_end();
        let (mut confirmed, mut news) = (0, false);
        for contact in answer.closer.iter().take(NAMED_MAX) {
            let near = end.is_none_or(|end| self.target.distance(&contact.id) <= end);
            let new = self.candidates.insert(*contact, depth, false).is_some();
            news |= near && new;
            confirmed += usize::from(near && !new);
        }
        let known = self.rules.k.min(self.candidates.len());
        self.settled = !news && (self.settled || confirmed * CONFIRMS >= known);
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
            .nth(self.rules.k.saturating_sub(1))?;
        Some(self.target.distance(&last.contact.id))
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
