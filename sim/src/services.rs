//! Every service that can live in a simulated world: the one place where a service registers.
//!
//! A service implements [`SimService`] (its node, and whatever it has of laws, workloads, calls, conditions, models and
//! points) and gets a line in [`all`]. Nothing else of the simulator names a service.

use std::sync::{Arc, LazyLock};

use crate::{
    calls::CallKind,
    conformance::{self, Followed},
    models::{self, ModelKind},
    oracle::{self, OracleKind},
    scenario::Scenario,
    service::{Condition, SimService},
    workload::{self, WorkloadKind},
};

/// The list.
pub fn all() -> &'static [Arc<dyn SimService>] {
    static ALL: LazyLock<Vec<Arc<dyn SimService>>> = LazyLock::new(|| {
        vec![
            Arc::new(crate::pool::PoolService),
            Arc::new(crate::flaky::Flaky),
            Arc::new(crate::kms::KmsService),
            Arc::new(crate::dht::DhtService),
            Arc::new(crate::dht::adversary::Adversary),
            Arc::new(crate::issuer::Issuer),
        ]
    });
    &ALL
}

pub fn find(name: &str) -> Option<Arc<dyn SimService>> {
    all().iter().find(|s| s.name() == name).cloned()
}

/// The services of a scenario, each once.
pub fn of(scenario: &Scenario) -> Vec<Arc<dyn SimService>> {
    let takes_part = |name: &str| scenario.node.iter().any(|node| node.service == name);
    let all = all().iter().filter(|s| takes_part(s.name()));
    all.cloned().collect()
}

/// Every law: the kernel's, then each service's.
pub fn laws() -> impl Iterator<Item = &'static OracleKind> {
    oracle::KERNEL
        .iter()
        .chain(all().iter().flat_map(|s| s.laws()))
}

/// The laws that hold in a scenario: the kernel's and those of its services, where their premise is met.
pub fn laws_of(scenario: &Scenario) -> Vec<&'static OracleKind> {
    let own = of(scenario);
    let own = own.iter().flat_map(|s| s.laws());
    let all = oracle::KERNEL.iter().chain(own);
    all.filter(|law| (law.premise)(scenario)).collect()
}

pub fn workloads() -> impl Iterator<Item = &'static WorkloadKind> {
    workload::ANY_SERVICE
        .iter()
        .chain(all().iter().flat_map(|s| s.workloads()))
}

pub fn calls() -> impl Iterator<Item = &'static CallKind> {
    all().iter().flat_map(|s| s.calls())
}

pub fn conditions() -> impl Iterator<Item = &'static Condition> {
    all().iter().flat_map(|s| s.conditions())
}

pub fn models() -> impl Iterator<Item = &'static ModelKind> {
    models::KERNEL
        .iter()
        .chain(all().iter().flat_map(|s| s.models()))
}

/// The models that runs are compared with step by step.
pub fn followed() -> impl Iterator<Item = &'static Followed> {
    conformance::KERNEL
        .iter()
        .chain(all().iter().flat_map(|s| s.followed()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_given_once_and_a_services_own_begin_with_it() {
        let mut seen = BTreeSet::new();
        let names = (laws().map(|law| law.name))
            .chain(models().map(|model| model.name))
            .chain(all().iter().map(|service| service.name()));
        for name in names {
            assert!(seen.insert(name), "{name} is registered twice");
        }
        for call in calls() {
            assert!(seen.insert(call.name), "{} is registered twice", call.name);
        }
        for kind in workloads() {
            let service = all().iter().any(|s| s.name() == kind.service);
            assert!(service || kind.service.is_empty(), "{}", kind.name);
        }
    }
}
