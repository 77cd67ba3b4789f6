//! Every word a scenario may use, and the check that it uses no other.

use std::sync::Arc;

use crate::{
    flaky::Flaky,
    oracle::{self, ORACLES},
    plan::{self, FAULT_KINDS},
    pool::PoolService,
    scenario::{FaultSpec, Invalid, Scenario, Span, WorkloadSpec},
    service::SimService,
    workload::{self, WORKLOAD_KINDS},
};

/// What `eventually` may ask for.
pub const CONDITIONS: &[&str] = &["ready", "serves"];

pub fn services() -> Vec<Arc<dyn SimService>> {
    vec![Arc::new(PoolService), Arc::new(Flaky)]
}

pub fn service(name: &str) -> Option<Arc<dyn SimService>> {
    services()
        .into_iter()
        .find(|service| service.name() == name)
}

/// The names of a scenario's nodes, in order.
pub fn node_names(scenario: &Scenario) -> Vec<String> {
    let mut names = Vec::new();
    for node in &scenario.node {
        names.push(node.name.clone());
        names.extend((2..=node.count).map(|n| format!("{}-{n}", node.name)));
    }
    names
}

pub fn validate(scenario: &Scenario) -> Result<(), Invalid> {
    check_sizes(scenario)?;
    let nodes = node_names(scenario);
    for node in &scenario.node {
        let service = service(&node.service).ok_or_else(|| {
            let allowed = services()
                .iter()
                .map(|s| s.name())
                .collect::<Vec<_>>()
                .join(", ");
            invalid("node.service", &node.service, &allowed)
        })?;
        service.check_config(&node.config).map_err(|errors| {
            let first = &errors.0[0];
            Invalid {
                word: first.key.clone(),
                text: format!(
                    "node.config: {} = {}: {}",
                    first.key, first.value, first.reason
                ),
            }
        })?;
    }
    for name in &nodes {
        if nodes.iter().filter(|other| *other == name).count() > 1 || name == CLIENT_NODE {
            return Err(invalid("node.name", name, "a name that no other node has"));
        }
    }
    for spec in &scenario.workload {
        check_workload(spec, &nodes)?;
    }
    for spec in &scenario.fault {
        check_fault(spec, &nodes)?;
    }
    for name in &scenario.check.always {
        let allowed = || {
            ORACLES
                .iter()
                .map(|o| o.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        oracle::find(name).ok_or_else(|| invalid("check.always", name, &allowed()))?;
    }
    for name in &scenario.check.eventually.hold {
        if !CONDITIONS.contains(&name.as_str()) {
            return Err(invalid(
                "check.eventually.hold",
                name,
                &CONDITIONS.join(", "),
            ));
        }
    }
    Ok(())
}

/// Nothing in a scenario is so large that it would only eat memory, or so small that nothing happens.
fn check_sizes(scenario: &Scenario) -> Result<(), Invalid> {
    let within = |key: &str, value: f64, least: f64, most: f64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(Invalid {
            word: key.rsplit('.').next().unwrap_or_default().to_owned(),
            text: format!("{key}: {value} is not allowed; allowed: {least} to {most}"),
        })
    };
    let most = |span: Option<Span>| span.map_or(0.0, |span| span.hi);
    for node in &scenario.node {
        within("node.count", f64::from(node.count), 1.0, 1000.0)?;
    }
    for spec in &scenario.workload {
        within("workload.clients", most(spec.clients), 0.0, 100_000.0)?;
        within("workload.requests", most(spec.requests), 0.0, 1e9)?;
    }
    for spec in &scenario.fault {
        within("fault.times", most(spec.times), 0.0, 100_000.0)?;
    }
    within(
        "within_s",
        scenario.check.eventually.within_s,
        0.0,
        10_000.0,
    )?;
    within("seeds.test", scenario.seeds.test as f64, 1.0, 1e9)
}

/// Where clients live.
pub const CLIENT_NODE: &str = "client";

fn check_workload(spec: &WorkloadSpec, nodes: &[String]) -> Result<(), Invalid> {
    let kind = workload::find(&spec.kind).ok_or_else(|| {
        let allowed = WORKLOAD_KINDS
            .iter()
            .map(|k| k.name)
            .collect::<Vec<_>>()
            .join(", ");
        invalid("workload.kind", &spec.kind, &allowed)
    })?;
    if let Some(on) = &spec.on {
        check_node("workload.on", on, nodes)?;
    }
    let used = [
        ("on", spec.on.is_some()),
        ("clients", spec.clients.is_some()),
        ("rate_per_s", spec.rate_per_s.is_some()),
        ("for_s", spec.for_s.is_some()),
        ("requests", spec.requests.is_some()),
        ("timeout_ms", spec.timeout_ms.is_some()),
        ("every_ms", spec.every_ms.is_some()),
    ];
    check_keys("workload", kind.name, kind.keys, &used)
}

fn check_fault(spec: &FaultSpec, nodes: &[String]) -> Result<(), Invalid> {
    let kind = FAULT_KINDS
        .iter()
        .find(|k| k.name == spec.kind)
        .ok_or_else(|| {
            let allowed = FAULT_KINDS
                .iter()
                .map(|k| k.name)
                .collect::<Vec<_>>()
                .join(", ");
            invalid("fault.kind", &spec.kind, &allowed)
        })?;
    check_node("fault.on", &spec.on, nodes)?;
    let used = [
        ("for_ms", spec.for_ms.is_some()),
        ("by_ms", spec.by_ms.is_some()),
        ("ppm", spec.ppm.is_some()),
        ("nth", spec.nth.is_some()),
        ("count", spec.count.is_some()),
        ("task", spec.task.is_some()),
        ("per_10_000", spec.per_10_000.is_some()),
        ("factor", spec.factor.is_some()),
        ("bytes", spec.bytes.is_some()),
        ("one_way", spec.one_way),
    ];
    check_keys("fault", kind.name, kind.keys, &used)
}

fn check_node(key: &str, on: &str, nodes: &[String]) -> Result<(), Invalid> {
    if nodes.iter().any(|node| plan::matches(on, node)) {
        return Ok(());
    }
    Err(invalid(key, on, &nodes.join(", ")))
}

fn check_keys(
    table: &str,
    kind: &str,
    allowed: &[&str],
    used: &[(&str, bool)],
) -> Result<(), Invalid> {
    match used
        .iter()
        .find(|(key, is_used)| *is_used && !allowed.contains(key))
    {
        Some((key, _)) => {
            let allowed = if allowed.is_empty() {
                "none but at_s and times".to_owned()
            } else {
                allowed.join(", ")
            };
            Err(invalid(&format!("{table} {kind}"), key, &allowed))
        }
        None => Ok(()),
    }
}

fn invalid(key: &str, value: &str, allowed: &str) -> Invalid {
    let text = format!("{key}: {value:?} is not allowed; allowed: {allowed}");
    Invalid {
        word: value.to_owned(),
        text,
    }
}
