//! How many requests of one tenant are under way, as its clients can know.

use std::sync::Mutex;

use crate::trace::Outcome;

#[derive(Default)]
pub struct Crowd(Mutex<Counts>);

#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Sent, and not known to have ended: what nobody knows the end of may go on for ever.
    open: u64,
    sent: u64,
}

impl Crowd {
    /// A request is sent.
    pub fn enter(&self) -> Counts {
        let mut counts = self.0.lock().unwrap();
        counts.open += 1;
        counts.sent += 1;
        *counts
    }

    /// It has ended: how many there were at most at any moment in between, itself included.
    pub fn leave(&self, entered: Counts, outcome: &Outcome) -> u64 {
        let mut counts = self.0.lock().unwrap();
        if *outcome != Outcome::Unknown {
            counts.open -= 1;
        }
        entered.open + (counts.sent - entered.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_counts_no_more_and_whose_end_is_unknown_counts_for_ever() {
        let crowd = Crowd::default();
        let first = crowd.enter();
        let second = crowd.enter();
        assert_eq!(crowd.leave(second, &Outcome::Unknown), 2);
        assert_eq!(crowd.leave(first, &Outcome::Answered(200)), 2);
        let third = crowd.enter();
        assert_eq!(crowd.leave(third, &Outcome::Answered(429)), 2);
    }
}
