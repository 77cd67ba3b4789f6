//! Every word a scenario may use, and the check that it uses no other.

use std::collections::BTreeSet;

use ron_core::points::Points;

use crate::{
    ops,
    plan::{self, FAULT_KINDS},
    promise,
    scenario::{FaultSpec, Invalid, Scenario, Span, WorkloadSpec},
    service::SimService,
    services, swarm, workload,
};

/// Asked of every service by `/readyz`; the other conditions are the services' own.
pub const READY: &str = "ready";

/// The marks and buggify points of the kernel and of the services of a scenario.
pub fn points(scenario: &Scenario) -> Vec<Points> {
    let mut all = vec![ron_core::POINTS];
    all.extend(services::of(scenario).iter().map(|s| s.points()));
    all
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
        let service = services::find(&node.service).ok_or_else(|| {
            let allowed = join(services::all().iter().map(|s| s.name()));
            invalid("node.service", &node.service, &allowed)
        })?;
        check_config(&*service, &node.config)?;
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
    check_exceptions(scenario)?;
    let conditions = || {
        [READY]
            .into_iter()
            .chain(services::conditions().map(|c| c.name))
    };
    for name in &scenario.check.eventually.hold {
        if !conditions().any(|known| known == name) {
            let allowed = join(conditions().collect::<BTreeSet<_>>().into_iter());
            return Err(invalid("check.eventually.hold", name, &allowed));
        }
    }
    Ok(())
}

/// An exception names a law that would hold here, and why it does not.
fn check_exceptions(scenario: &Scenario) -> Result<(), Invalid> {
    let laws = services::laws_of(scenario);
    for (name, why) in &scenario.check.except {
        if !laws.iter().any(|law| law.name == name) {
            let allowed = join(laws.iter().map(|law| law.name));
            return Err(invalid("check.except", name, &allowed));
        }
        if why.trim().is_empty() {
            return Err(Invalid {
                word: name.clone(),
                text: format!(
                    "check.except: {name:?} is excepted without a reason; allowed: a law and why it does not hold here"
                ),
            });
        }
    }
    Ok(())
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A range is allowed if both of its ends are.
fn check_config(service: &dyn SimService, config: &toml::Table) -> Result<(), Invalid> {
    for config in [swarm::settled(config, None), swarm::at_most(config)] {
        service.check_config(&config).map_err(|errors| {
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
        within("workload.requests", most(spec.requests), 0.0, ops::MOST)?;
        within("workload.bytes", most(spec.bytes), 0.0, 1e8)?;
        let (clients, rate) = (spec.clients, spec.rate_per_s);
        let of = |span: Option<Span>, default: f64| span.map_or(default, |span| span.hi);
        let paced = of(clients, 1.0) * of(rate, 20.0) * of(spec.for_s, 5.0);
        if spec.every_ms.is_none() {
            within(
                "workload.rate_per_s: requests in all",
                paced,
                0.0,
                ops::MOST,
            )?;
        }
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
        let allowed = join(services::workloads().map(|k| k.name));
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
        ("bytes", spec.bytes.is_some()),
        ("within_ms", spec.within_ms.is_some()),
        ("slots", spec.slots.is_some()),
    ];
    check_keys("workload", kind.name, kind.keys, &used)
}

fn check_fault(spec: &FaultSpec, nodes: &[String]) -> Result<(), Invalid> {
    let kind = FAULT_KINDS
        .iter()
        .find(|k| k.name == spec.kind)
        .ok_or_else(|| {
            let allowed = join(FAULT_KINDS.iter().map(|k| k.name));
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
        ("path", spec.path.is_some()),
        ("one_way", spec.one_way),
    ];
    check_keys("fault", kind.name, kind.keys, &used)?;
    check_promise(spec)
}

fn check_promise(spec: &FaultSpec) -> Result<(), Invalid> {
    let refuse = |text| {
        Err(Invalid {
            word: spec.kind.clone(),
            text,
        })
    };
    if let Some(why) = promise::beyond(&spec.kind)
        && !spec.beyond_promise
    {
        let kind = &spec.kind;
        return refuse(format!(
            "fault.kind: {kind:?} is beyond what is promised ({why}); allowed: with beyond_promise = true"
        ));
    }
    let least = promise::LASTS_AT_LEAST_MS;
    let short = spec.for_ms.is_some_and(|span| span.lo < least as f64);
    if spec.per_10_000.is_some() && short {
        return refuse(format!(
            "fault.for_ms: a fault that strikes by chance would flap; allowed: from {least}"
        ));
    }
    Ok(())
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
