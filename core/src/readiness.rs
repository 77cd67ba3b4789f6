//! Whether this process wants work: named gates, each held by the part that knows.
//!
//! Ready is the conjunction of all gates, and a closed gate says why, so `/readyz` can. A process can also be ready
//! and *degraded*: it does its work, but some named condition holds that its operator should know. Always: a gate
//! starts closed and a condition absent; a process without any gate is not ready; a condition never takes readiness
//! away; each change is published once, in order.

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
    /// The conditions that hold, by name. They do not take readiness away.
    pub degraded: Vec<Degraded>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub gate: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Degraded {
    pub condition: String,
    pub reason: String,
}

impl Readiness {
    pub fn new(env: Env, bus: Bus) -> Self {
        Readiness {
            shared: Arc::new(Shared {
                env,
                bus,
                state: Mutex::default(),
            }),
        }
    }

    /// The gate of that name, closed with the reason "starting" if it is new. Asking again gives
    /// another handle to the same gate and changes nothing.
    pub fn gate(&self, name: impl Into<Cow<'static, str>>) -> Gate {
        let name = name.into();
        self.shared.change(|state| {
            if state.gates.place(&name).is_err() {
                state.gates.set(name.clone(), Some("starting".into()));
            }
        });
        Gate {
            name,
            shared: self.shared.clone(),
        }
    }

    /// The condition of that name; absent until it is set.
    pub fn condition(&self, name: impl Into<Cow<'static, str>>) -> Condition {
        Condition {
            name: name.into(),
            shared: self.shared.clone(),
        }
    }

    pub fn status(&self) -> ReadinessStatus {
        status(&self.shared.lock())
    }

    pub fn is_ready(&self) -> bool {
        let Named(gates) = &self.shared.lock().gates;
        !gates.is_empty() && gates.iter().all(|(_, closed)| closed.is_none())
    }

    pub fn is_degraded(&self) -> bool {
        let Named(conditions) = &self.shared.lock().conditions;
        conditions.iter().any(|(_, holds)| holds.is_some())
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

    fn set(&self, closed: Option<Reason>) {
        self.shared.change(|state| {
            state.gates.set(self.name.clone(), closed);
        });
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.name).finish()
    }
}

/// Something the operator should know while the process is at work. Setting it again replaces the reason; dropping the
/// handle leaves it as it is.
#[derive(Clone)]
pub struct Condition {
    name: Cow<'static, str>,
    shared: Arc<Shared>,
}

impl Condition {
    pub fn set(&self, reason: impl Into<Cow<'static, str>>) {
        let reason = Some(reason.into());
        self.shared
            .change(|state| state.conditions.set(self.name.clone(), reason));
    }

    pub fn clear(&self) {
        self.shared
            .change(|state| state.conditions.set(self.name.clone(), None));
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.name).finish()
    }
}

type Reason = Cow<'static, str>;

#[derive(Default)]
struct State {
    /// With a reason while closed.
    gates: Named,
    /// With a reason while they hold.
    conditions: Named,
}

/// By name. A list, since they are few.
#[derive(Default)]
struct Named(Vec<(Cow<'static, str>, Option<Reason>)>);

impl Named {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    fn set(&mut self, name: Cow<'static, str>, reason: Option<Reason>) {
        match self.place(&name) {
            Ok(at) => self.0[at].1 = reason,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name, reason));
            }
        }
    }

    fn told<T>(&self, tell: impl Fn(String, String) -> T) -> Vec<T> {
        let named = self
            .0
            .iter()
            .filter_map(|(name, reason)| Some((name, reason.as_ref()?)));
        named
            .map(|(name, reason)| tell(name.to_string(), reason.to_string()))
            .collect()
    }
}

struct Shared {
    env: Env,
    bus: Bus,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes under the lock, so that the order of news is the order of changes.
    fn change(&self, edit: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = status(&state);
        edit(&mut state);
        let after = status(&state);
        if before == after {
            return;
        }
        let ready = after.ready;
        if before.ready && !ready {
            crate::sometimes!("readiness.lost");
        }
        let missing: Vec<_> = after.missing.into_iter().map(|m| m.gate).collect();
        let degraded: Vec<_> = after.degraded.into_iter().map(|d| d.condition).collect();
        let mut listed = missing.join(",");
        if !degraded.is_empty() {
            listed = format!("{listed} degraded={}", degraded.join(","));
        }
        self.bus.publish(KernelEvent::ReadinessChanged {
            ready,
            missing,
            degraded,
        });
        drop(state);
        let detail = format_args!("ready={ready} missing={listed}");
        self.env.probe("readiness", u64::from(ready), detail);
    }
}

fn status(state: &State) -> ReadinessStatus {
    let mut missing = state.gates.told(|gate, reason| Missing { gate, reason });
    if state.gates.0.is_empty() {
        missing.push(Missing {
            gate: "any".into(),
            reason: "no gate is declared".into(),
        });
    }
    let tell = |condition, reason| Degraded { condition, reason };
    ReadinessStatus {
        ready: missing.is_empty(),
        missing,
        degraded: state.conditions.told(tell),
    }
}
