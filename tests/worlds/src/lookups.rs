//! Lookups as a local caller makes them, and what came of them against what was true.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_core::api::ApiError;
use sim::{
    seed::{SimRng, pick},
    timer,
};
use svc_dht::{error::DhtError, id::Id};

use crate::{figures::Samples, fleet::Fleet};

/// What many lookups came to. Cheap to clone; clones count together.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<Counted>>);

#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub depth: Samples,
    pub requests: Samples,
    pub hedges: f64,
    pub took_ms: Samples,
    /// Of each lookup: which part of the closest living it found.
    pub recall: Samples,
    /// Errors by their code.
    pub failed: std::collections::BTreeMap<&'static str, usize>,
    /// The asker itself left while it was looking.
    pub asker_left: usize,
}

impl Tally {
    pub fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn done(&self) -> usize {
        self.counted().took_ms.len()
    }

    pub fn failures(&self) -> usize {
        self.counted().failed.values().sum()
    }
}

/// A place in the key space.
pub fn random_id(rng: &mut SimRng) -> Id {
    let mut id = [0; 32];
    for bytes in id.chunks_mut(8) {
        bytes.copy_from_slice(&pick(rng, 0, u64::MAX).to_be_bytes());
    }
    Id(id)
}

/// One node looks for whoever is closest, by the call that its local API makes.
pub async fn closest(fleet: &Fleet, asker: usize, target: Id, tally: &Tally) {
    let Some(seat) = fleet.seat(asker) else {
        tally.counted().asker_left += 1;
        return;
    };
    let (node, me) = (seat.dht.node().clone(), fleet.id(asker));
    let k = node.config().lookup.k;
    let truth = fleet.closest(&target, k, &me);
    let began = timer::now();
    let deadline = node.env.now() + node.config().lookup_deadline();
    let found = seat.dht.closest(target, deadline).await;
    let took = timer::now() - began;
    let mut counted = tally.counted();
    let found = match found {
        Ok(found) => found,
        Err(DhtError::Canceled | DhtError::NotReady("draining")) if !fleet.is_living(&me) => {
            counted.asker_left += 1;
            return;
        }
        Err(error) => {
            *counted.failed.entry(error.code()).or_default() += 1;
            return;
        }
    };
    counted.took_ms.add(took.as_secs_f64() * 1e3);
    counted.depth.add(found.hops.into());
    if let Some(course) = node.courses.get(found.lookup) {
        counted.requests.add(course.requests.into());
        counted.hedges += f64::from(course.hedges);
    }
    // Who left meanwhile could not be found.
    let wanted = truth.iter().filter(|id| fleet.is_living(id));
    let (mut there, mut all) = (0, 0);
    for id in wanted {
        all += 1;
        there += usize::from(found.closest.iter().any(|c| c.id == *id));
    }
    if all > 0 {
        counted.recall.add(f64::from(there as u32) / f64::from(all));
    }
}
