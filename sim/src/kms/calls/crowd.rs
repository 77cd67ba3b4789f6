//! How many requests of one kind are under way, as their clients can know: of one tenant, or under one operation id.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use crate::trace::Outcome;

/// What has been under way for so long was let in: a refusal comes at once.
const LET_IN: Duration = Duration::from_millis(150);

#[derive(Default)]
pub struct Crowd(Mutex<State>);

#[derive(Default)]
struct State {
    /// Sent, and not known to have ended: what nobody knows the end of may go on for ever.
    open: u64,
    sent: u64,
    /// Those of them that take a place in the quota and whose client still waits: since when.
    waiting: BTreeMap<u64, Duration>,
    most_waiting: u64,
}

/// What was so when a request was sent.
#[derive(Clone, Copy)]
pub struct Entered {
    open: u64,
    number: u64,
}

impl Crowd {
    /// A request is sent.
    pub fn enter(&self, now: Duration, counts: bool) -> Entered {
        let mut state = self.0.lock().unwrap();
        state.open += 1;
        state.sent += 1;
        let number = state.sent;
        if counts {
            state.waiting.insert(number, now);
        }
        Entered {
            open: state.open,
            number,
        }
    }

    /// It has ended: how many there were at most at any moment in between, itself included.
    pub fn leave(&self, entered: Entered, outcome: &Outcome) -> u64 {
        let mut state = self.0.lock().unwrap();
        if *outcome != Outcome::Unknown {
            state.open -= 1;
        }
        state.waiting.remove(&entered.number);
        entered.open + (state.sent - entered.number)
    }

    /// How many have been let in and wait for their answers, if there were never so many before.
    pub fn new_most_waiting(&self, now: Duration) -> Option<u64> {
        let mut state = self.0.lock().unwrap();
        let let_in = |since: &&Duration| **since + LET_IN <= now;
        let waiting = state.waiting.values().filter(let_in).count() as u64;
        (waiting > state.most_waiting).then(|| {
            state.most_waiting = waiting;
            waiting
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    #[test]
    fn who_ended_counts_no_more_and_whose_end_is_unknown_counts_for_ever() {
        let crowd = Crowd::default();
        let first = crowd.enter(START, true);
        let second = crowd.enter(START, true);
        assert_eq!(crowd.leave(second, &Outcome::Unknown), 2);
        assert_eq!(crowd.leave(first, &Outcome::Answered(200)), 2);
        let third = crowd.enter(START, true);
        assert_eq!(crowd.leave(third, &Outcome::Answered(429)), 2);
    }

    #[test]
    fn only_those_who_wait_for_long_were_let_in_and_a_number_is_told_once() {
        let crowd = Crowd::default();
        let first = crowd.enter(START, true);
        crowd.enter(START, false);
        assert_eq!(crowd.new_most_waiting(START + LET_IN / 2), None);
        assert_eq!(crowd.new_most_waiting(START + LET_IN), Some(1));
        assert_eq!(crowd.new_most_waiting(START + LET_IN), None);
        crowd.enter(START + LET_IN, true);
        crowd.leave(first, &Outcome::Answered(200));
        assert_eq!(crowd.new_most_waiting(START + LET_IN * 2), None);
    }
}
