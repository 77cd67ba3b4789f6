//! Whether this process wants work: named gates, each held by the part that knows.
//!
//! Ready is the conjunction of all gates, and a closed gate says why, so `/readyz` can. Always: a gate
//! starts closed; a process without any gate is not ready; each change is published once, in order.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use crate::{
    Env,
    bus::{Bus, KernelEvent},
};

#[derive(Clone)]
pub struct Readiness {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadinessStatus {
    pub ready: bool,
    /// The closed gates, by name.
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub gate: String,
    pub reason: String,
}

impl Readiness {
    pub fn new(env: Env, bus: Bus) -> Self {
        Readiness {
            shared: Arc::new(Shared {
                env,
                bus,
                gates: Mutex::default(),
            }),
        }
    }

    /// The gate of that name, closed with the reason "starting" if it is new. Asking again gives
    /// another handle to the same gate and changes nothing.
    pub fn gate(&self, name: impl Into<Cow<'static, str>>) -> Gate {
        let name = name.into();
        self.shared.change(|gates| {
            if gates.place(&name).is_err() {
                gates.set(name.clone(), Some(Cow::Borrowed("starting")));
            }
        });
        Gate {
            name,
            shared: self.shared.clone(),
        }
    }

    pub fn status(&self) -> ReadinessStatus {
        status(&self.shared.lock())
    }

    pub fn is_ready(&self) -> bool {
        let gates = self.shared.lock();
        !gates.0.is_empty() && gates.0.iter().all(|(_, closed)| closed.is_none())
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.status()).finish()
    }
}

/// One condition of readiness. Opening an open gate, or closing a closed one for the same reason, does
/// nothing; dropping the handle leaves the gate as it is.
#[derive(Clone)]
pub struct Gate {
    name: Cow<'static, str>,
    shared: Arc<Shared>,
}

impl Gate {
    pub fn open(&self) {
        self.set(None);
    }

    pub fn close(&self, reason: impl Into<Cow<'static, str>>) {
        self.set(Some(reason.into()));
    }

    fn set(&self, closed: Closed) {
        self.shared.change(|gates| {
            gates.set(self.name.clone(), closed);
        });
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.name).finish()
    }
}

/// Why a gate is closed; `None` while it is open.
type Closed = Option<Cow<'static, str>>;

/// By name. A list, since they are few.
#[derive(Default)]
struct Gates(Vec<(Cow<'static, str>, Closed)>);

impl Gates {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    fn set(&mut self, name: Cow<'static, str>, closed: Closed) {
        match self.place(&name) {
            Ok(at) => self.0[at].1 = closed,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name, closed));
            }
        }
    }
}

struct Shared {
    env: Env,
    bus: Bus,
    gates: Mutex<Gates>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes under the lock, so that the order of news is the order of changes.
    fn change(&self, edit: impl FnOnce(&mut Gates)) {
        let mut gates = self.lock();
        let before = status(&gates);
        edit(&mut gates);
        let after = status(&gates);
        if before == after {
            return;
        }
        let ready = after.ready;
        if before.ready && !ready {
            crate::sometimes!("readiness.lost");
        }
        let missing: Vec<_> = after.missing.into_iter().map(|m| m.gate).collect();
        let listed = missing.join(",");
        self.bus
            .publish(KernelEvent::ReadinessChanged { ready, missing });
        drop(gates);
        let detail = format_args!("ready={ready} missing={listed}");
        self.env.probe("readiness", u64::from(ready), detail);
    }
}

fn status(gates: &Gates) -> ReadinessStatus {
    let mut missing: Vec<_> = gates
        .0
        .iter()
        .filter_map(|(gate, closed)| {
            closed.as_ref().map(|reason| Missing {
                gate: gate.to_string(),
                reason: reason.to_string(),
            })
        })
        .collect();
    if gates.0.is_empty() {
        missing.push(Missing {
            gate: "any".into(),
            reason: "no gate is declared".into(),
        });
    }
    ReadinessStatus {
        ready: missing.is_empty(),
        missing,
    }
}
