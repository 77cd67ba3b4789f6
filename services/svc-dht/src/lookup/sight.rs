//! The candidates at one glance: what the next decision depends on, in one pass over them.

use std::time::Instant;

use super::{
    candidates::{Candidates, State},
    crowd::Crowd,
    terms::LookupRules,
};

/// The candidates at a glance. The *front* is the k closest that answered or may still answer in time.
#[derive(Default)]
pub(super) struct Sight {
    pub front: usize,
    pub answered: usize,
    /// Of the front: somebody to wait for.
    pub pending: bool,
    /// The closest alpha of the front have all answered.
    pub lead_answered: bool,
    /// The closest of the front that was not asked.
    pub next: Option<usize>,
    /// The closest beyond the front that was not asked.
    pub spare: Option<usize>,
    /// Everybody that answered or may still answer in time, in the front or not.
    pub in_time: usize,
    /// The closest suspect, for when nobody else is left.
    pub suspect: Option<usize>,
    /// Plain probes under way and in time, in the front or not.
    pub fresh: usize,
    /// Hedges under way.
    pub hedges: usize,
    /// An overdue probe that nothing was started for.
    pub unhedged: Option<usize>,
    /// Overdue ones nearer than the end of the front.
    pub overdue: usize,
    /// When the youngest of those began.
    pub overdue_since: Option<Instant>,
    /// Somebody in the front is beyond the hop budget.
    pub beyond: bool,
}

impl Sight {
    pub fn of(candidates: &Candidates, rules: &LookupRules) -> Sight {
        let mut sight = Sight::default();
        let (mut lead, mut lead_answered) = (0, 0);
        let mut crowd = Crowd::new(rules.per_subnet);
        for (at, candidate) in candidates.iter().enumerate() {
            if let Some(asked) = candidate.asked() {
                sight.hedges += usize::from(asked.hedge);
                sight.fresh += usize::from(!asked.overdue && !asked.hedge);
                if asked.overdue && !asked.hedged {
                    sight.unhedged.get_or_insert(at);
                }
            }
            if sight.front >= rules.k {
                match &candidate.state {
                    State::Answered => sight.in_time += 1,
                    State::Asked(asked) if !asked.overdue => sight.in_time += 1,
                    State::New if !candidate.suspect && candidate.depth <= rules.hop_budget => {
                        sight.spare.get_or_insert(at);
                    }
                    _ => {}
                }
                continue;
            }
            if crowd.is_full(&candidate.contact.addr) {
                continue;
            }
            match &candidate.state {
                State::Failed => continue,
                State::Asked(asked) if asked.overdue => {
                    sight.overdue += 1;
                    sight.overdue_since = sight.overdue_since.max(Some(asked.since));
                    continue;
                }
                State::New if candidate.depth > rules.hop_budget => {
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
                State::Answered => {
                    sight.answered += 1;
                    crowd.count(&candidate.contact.addr);
                }
            }
            sight.front += 1;
            sight.in_time += 1;
            if lead < rules.alpha && !matches!(candidate.state, State::Backoff { .. }) {
                lead += 1;
                lead_answered += usize::from(candidate.state == State::Answered);
            }
        }
        sight.lead_answered = lead > 0 && lead_answered == lead;
        sight
    }
}
