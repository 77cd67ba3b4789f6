//! The words that a lookup and the task that runs it share: rules, questions, answers, results.

use std::time::{Duration, Instant};

use ron_core::backoff::Backoff;
use thiserror::Error;

use crate::{contact::Contact, record::Record};

use super::explanation::Explanation;

/// How many contacts an answer should name: so many that k of them live when a third of all nodes died a moment ago. With
/// k alone the neighbours of a target all name the same k, the dead among them, and nobody names who comes next.
pub const NAMED: usize = 32;

/// What every lookup of a node keeps to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookupRules {
    /// As many answer at the end.
    pub k: usize,
    /// Probes under way while searching.
    pub alpha: usize,
    /// Hedges at a time.
    pub beta: usize,
    /// Nobody farther than this many referrals from our table is asked.
    pub hop_budget: u8,
    pub rpc_timeout: Duration,
    /// A probe is overdue after this long, or sooner; at `rpc_timeout` or more none ever is.
    pub hedge_after: Duration,
    /// How often one peer is asked in all.
    pub tries: u8,
    pub backoff: Backoff,
    /// Holders of a value in one subnet count as one, so that who has many ids is no quorum.
    pub diverse: bool,
    /// Of those who answered, so many of one subnet count among the closest: whoever has more ids there is passed over,
    /// or it would hold all that is stored and name all that is found.
    pub per_subnet: usize,
    /// Requests of one lookup, so that no crowd of liars keeps it busy.
    pub max_requests: usize,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    Closest,
    /// Ends when this many hold a value.
    Value {
        quorum: usize,
    },
    /// Ends when this many providers are known.
    Providers {
        wanted: usize,
    },
}

/// A node of our own table to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    pub contact: Contact,
    pub rtt_ms: Option<u16>,
    /// Thought dead: asked when nobody else is left.
    pub suspect: bool,
}

/// The number of a probe, in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u16);

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    pub id: ProbeId,
    pub to: Contact,
    pub hedge: bool,
    /// Whatever is not answered by then has failed with [`Failure::Timeout`].
    pub deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Send this, and ask again at once what is next.
    Probe(Probe),
    /// Nothing to do before an answer, a failure or this moment, which lies in the future.
    Wait(Instant),
    Done,
}

/// What a peer answered. The caller has verified the records: those that are not valid are not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub closer: Vec<Contact>,
    pub records: Vec<Record>,
}

/// Why a probe brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nothing came by the probe's deadline.
    Timeout,
    /// No connection came about, or our breaker would not let one.
    Unreachable,
    /// The connection broke.
    Reset,
    /// The peer, or a limit of our own, said no; `retry_after` says when another try may help, if ever.
    Refused { retry_after: Option<Duration> },
    /// It broke the protocol, or was not who it should be.
    Misbehaved,
}

/// The end of a lookup and the story of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub outcome: Result<Outcome, LookupError>,
    /// The closest that answered, nearest first, at most k.
    pub closest: Vec<Contact>,
    /// False if it was cut short: by its deadline, the hop budget or the limit of requests.
    pub complete: bool,
    /// Requests that are still under way: to be cancelled now.
    pub losers: Vec<Loser>,
    pub counts: Counts,
    /// Referrals between our table and who answered it.
    pub depth: u8,
    /// Answers that were awaited one after the other.
    pub rounds: u8,
    pub explanation: Explanation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In [`Finished::closest`].
    Closest,
    /// The newest value seen, and how many answers held one.
    Value { record: Box<Record>, holders: usize },
    /// The newest record of each provider.
    Providers(Vec<Record>),
    /// Nobody that should know knows.
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum LookupError {
    #[error("no peer is known")]
    NoPeers,
    #[error("no peer answered")]
    Unreachable,
    #[error("the deadline passed")]
    Deadline,
    #[error("the closest known peers are beyond the hop budget")]
    HopExceeded,
    #[error("the limit of requests was reached")]
    TooManyRequests,
}

/// A probe that the end of the lookup left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loser {
    pub probe: ProbeId,
    pub to: Contact,
    pub hedge: bool,
    /// It was silent beyond its delay: the table should hear of that, since its timeout will never come.
    pub overdue: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// All, hedges and retries included.
    pub requests: u16,
    pub answers: u16,
    /// Answers after the probe was overdue.
    pub late: u16,
    pub overdue: u16,
    pub hedges: u16,
    /// Hedges that the end of the lookup cancelled.
    pub hedges_canceled: u16,
    pub retries: u16,
    pub failures: u16,
}

impl Default for LookupRules {
    fn default() -> Self {
        let ms = Duration::from_millis;
        LookupRules {
            k: 20,
            alpha: 3,
            beta: 2,
            hop_budget: 5,
            rpc_timeout: ms(1500),
            hedge_after: ms(250),
            tries: 3,
            backoff: Backoff::band(ms(50), ms(100), ms(2000)),
            diverse: false,
            per_subnet: usize::MAX,
            max_requests: 120,
        }
    }
}
