//! From settings to a gate with all that keeps it working: its readiness, the refresher of its keys, the operator's token.
//!
//! Always: settings that do not work are an error, never an open door; a gate that wants tokens is closed, and the
//! service not ready, until there are keys.

use std::{sync::Arc, time::Duration};

use super::{AuthConfig, Gate, JwksPolicy, KeySet, KeySource, Mode, operator, refresh_loop};
use crate::{
    config::Broken,
    readiness::Readiness,
    supervisor::{PhaseId, Supervisor, TaskSpec},
    telemetry::{Kernel, Telemetry},
    topology::{TaskDecl, Topology},
};

pub struct Authenticator {
    pub gate: Arc<Gate>,
    kernel: Kernel,
    refresh: Option<(KeySource, JwksPolicy)>,
    operator_file: Option<String>,
}

const REFRESHER: TaskDecl = TaskDecl {
    name: "auth_refresher",
    kind: "auth_refresher",
    count: "1 if `auth.mode` is `passport`",
    does: "keeps the token issuer's keys fresh",
    on_failure: "restarted with backoff; the keys at hand stay in use until they are too old",
};

const OPERATOR: TaskDecl = TaskDecl {
    name: "operator_token",
    kind: "operator_token",
    count: "1 if operators' actions are on",
    does: "writes the operator's token of this start, and removes it at the stop",
    on_failure: "restarted with backoff and a new token",
};

/// The tasks that [`Authenticator::start`] may start.
pub fn declare(topology: &mut Topology) {
    topology.task(REFRESHER);
    topology.task(OPERATOR);
}

impl Authenticator {
    /// Fails closed: settings that do not describe a working gate are told, key by key.
    pub fn open(
        config: &AuthConfig,
        telemetry: &Telemetry,
        readiness: &Readiness,
    ) -> Result<Authenticator, Vec<Broken>> {
        let gate = Gate::new(config.to_mode()?, telemetry);
        let refresh = match gate.mode() {
            Mode::None | Mode::Ingress(_) => None,
            Mode::Passport(_) => {
                gate.tell(readiness.gate("auth_keys"));
                let passport = &config.passport;
                let source = passport.key_source().map_err(|broken| vec![broken])?;
                let policy = JwksPolicy {
                    timeout: Duration::from_millis(passport.refresh_timeout_ms),
                    fresh_for: Duration::from_secs(passport.refresh_secs),
                    max_stale: Duration::from_secs(passport.max_stale_secs),
                    ..JwksPolicy::default()
                };
                Some((source, policy))
            }
        };
        Ok(Authenticator {
            gate,
            kernel: telemetry.kernel().clone(),
            refresh,
            operator_file: None,
        })
    }

    /// These keys and no others (tests and simulations): nobody is asked.
    pub fn with_keys(mut self, keys: KeySet) -> Self {
        self.gate.set_keys(keys);
        self.refresh = None;
        self
    }

    /// There are operators' actions: their token is written, unless the settings name no file for it.
    pub fn with_operators(mut self, config: &AuthConfig) -> Self {
        let file = Some(config.operator_token_file.clone());
        self.operator_file = file.filter(|name| !name.is_empty());
        self
    }

    /// Its tasks, which are told to stop in `phase`.
    pub fn start(self, supervisor: &mut Supervisor, phase: PhaseId) {
        let spec = |decl: TaskDecl| TaskSpec::new(decl.name, decl.kind, phase);
        if let Some((source, policy)) = self.refresh {
            let (gate, kernel) = (self.gate.clone(), self.kernel);
            supervisor.task(spec(REFRESHER), move |context| {
                let (gate, source, kernel) = (gate.clone(), source.clone(), kernel.clone());
                refresh_loop(context.env, gate, source, policy, kernel, async move {
                    context.stop.wait().await;
                })
            });
        }
        if let Some(path) = self.operator_file {
            supervisor.task(spec(OPERATOR), move |context| {
                operator::keep(context.env, self.gate.clone(), path.clone(), context.stop)
            });
        }
    }
}
