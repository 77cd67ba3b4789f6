//! News that a slow reader never saw are in the counter.

use crate::oracle::{EVERYWHERE, Oracle, OracleKind, Verdict};
use crate::{
    pool::FLOOD,
    trace::{Event, What},
};

pub const KIND: OracleKind = OracleKind {
    name: "bus.losses_counted",
    law: "published = received + counted as lost",
    premise: EVERYWHERE,
    make: || Box::new(BusLosses),
};

struct BusLosses;

impl Oracle for BusLosses {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let What::Probe {
            event: "bus.flooded",
            id: got,
            detail: lost,
        } = &event.what
        else {
            return Ok(());
        };
        let lost: u64 = lost.parse().unwrap_or(u64::MAX);
        if got.saturating_add(lost) == FLOOD {
            return Ok(());
        }
        Err(format!(
            "{FLOOD} events were published, {got} received, {lost} counted as lost"
        ))
    }
}
