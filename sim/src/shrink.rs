//! Shrinking: from a plan that fails to one from which nothing can be left out.
//!
//! Delta debugging over faults, bent points and operations together, then over their values, under one
//! fingerprint: a smaller plan counts only if the same oracle says the same, but for numbers. The result is 1-minimal: without any one
//! of its parts the run passes, or fails otherwise; unless time ran out, which is said.

use std::time::{Duration, Instant};

use crate::{
    ops::Op,
    plan::{Fault, Plan, Planned},
    promise::LASTS_AT_LEAST_MS,
    run::{self, RunResult, Watch},
    scenario::Scenario,
    swarm::Bent,
};

/// What came of it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    pub plan: Plan,
    /// The run of that plan.
    pub run: RunResult,
    /// How many faults and operations there were.
    pub from: usize,
    pub from_ops: usize,
    pub runs: u64,
    pub took: Duration,
    /// For each fault that is left: does the run pass without it?
    pub needed: Vec<bool>,
    /// Nothing can be left out; false if time ran out first.
    pub minimal: bool,
}

/// One thing that can be left out.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Fault(Planned),
    Bent(Bent),
    Op(Op),
}

/// How long the search may take; what it has by then is the result.
const BUDGET: Duration = Duration::from_secs(50);

/// Shrinks the plan of a run that failed with this [fingerprint](crate::oracle::Violation::fingerprint).
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    plan: &Plan,
    fingerprint: &str,
    watch: &Watch,
) -> Shrunk {
    let begin = Instant::now();
    let mut runs = 0;
    let mut verdict = |parts: &[Part]| {
        runs += 1;
        let run = run::run_plan(scenario, seed, watch, assemble(plan, parts));
        run.violation().map(|violation| violation.fingerprint())
    };
    // Past its budget nothing fails any more, so the search ends with what it has.
    let in_time = || begin.elapsed() < BUDGET;
    let mut fails =
        |parts: &[Part]| in_time() && verdict(parts).is_some_and(|told| told == fingerprint);
    let mut smallest = minimal(&parts(plan), &mut fails);
    smaller_values(&mut smallest, &mut fails);
    // A smaller value may have made something else superfluous.
    smallest = minimal(&smallest, &mut fails);
    let minimal = in_time();
    let faults = |part: &&usize| matches!(smallest[**part], Part::Fault(_));
    let indices: Vec<usize> = (0..smallest.len()).collect();
    let needed = indices
        .iter()
        .filter(faults)
        .map(|n| verdict(&without(&smallest, *n)).is_none())
        .collect();
    let smallest = assemble(plan, &smallest);
    Shrunk {
        run: run::run_plan(scenario, seed, watch, smallest.clone()),
        plan: smallest,
        from: plan.faults.len(),
        from_ops: plan.ops.len(),
        runs,
        took: begin.elapsed(),
        needed,
        minimal,
    }
}

fn parts(plan: &Plan) -> Vec<Part> {
    let faults = plan.faults.iter().cloned().map(Part::Fault);
    let bent = plan.buggify.iter().cloned().map(Part::Bent);
    faults
        .chain(bent)
        .chain(plan.ops.iter().cloned().map(Part::Op))
        .collect()
}

/// A plan of these parts; sizes stay as they were drawn.
fn assemble(plan: &Plan, parts: &[Part]) -> Plan {
    let mut made = Plan {
        sizes: plan.sizes.clone(),
        ..Plan::default()
    };
    for part in parts.iter().cloned() {
        match part {
            Part::Fault(planned) => made.faults.push(planned),
            Part::Bent(bent) => made.buggify.push(bent),
            Part::Op(op) => made.ops.push(op),
        }
    }
    made
}

/// The items that are needed for `fails`: removing any single one of them makes it pass.
///
/// `fails` must hold for all of `items`; halves, then quarters and so on are left out, and in the end one
/// at a time until no single one can be.
pub fn minimal<T: Clone>(items: &[T], fails: &mut impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items.to_vec();
    if !kept.is_empty() && fails(&[]) {
        return Vec::new();
    }
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut removed = false;
        let mut at = 0;
        while at < kept.len() && kept.len() > 1 {
            let mut candidate = kept.clone();
            candidate.drain(at..(at + chunk).min(kept.len()));
            if !candidate.is_empty() && fails(&candidate) {
                kept = candidate;
                removed = true;
            } else {
                at += chunk;
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !removed {
            return kept;
        }
    }
}

/// Halves durations, counts and sizes for as long as the run still fails.
fn smaller_values(parts: &mut Vec<Part>, fails: &mut impl FnMut(&[Part]) -> bool) {
    for n in 0..parts.len() {
        while let Some(part) = halved(&parts[n]) {
            let mut candidate = parts.clone();
            candidate[n] = part;
            if !fails(&candidate) {
                break;
            }
            *parts = candidate;
        }
    }
}

fn halved(part: &Part) -> Option<Part> {
    let mut smaller = part.clone();
    match &mut smaller {
        Part::Fault(planned) => planned.fault = halved_fault(&planned.fault)?,
        Part::Op(op) => op.arg /= 2,
        Part::Bent(_) => return None,
    }
    (smaller != *part).then_some(smaller)
}

fn halved_fault(fault: &Fault) -> Option<Fault> {
    let mut smaller = fault.clone();
    let mut least = 0;
    let value = match &mut smaller {
        Fault::Kill { down_ms: ms }
        | Fault::PowerOff { down_ms: ms }
        | Fault::CrashAtDiskOp { down_ms: ms, .. }
        | Fault::KillAtDiskOp { down_ms: ms, .. }
        | Fault::KillAtStart { down_ms: ms, .. }
        | Fault::SyncKills { down_ms: ms }
        | Fault::Shutdown {
            restart_after_ms: ms,
            ..
        }
        | Fault::Pause { for_ms: ms }
        | Fault::Partition { for_ms: ms, .. }
        | Fault::Latency { for_ms: ms, .. }
        | Fault::SlowLink { for_ms: ms, .. }
        | Fault::ConnectHang { for_ms: ms }
        | Fault::DiskStall { for_ms: ms }
        | Fault::SyncLies { for_ms: ms }
        | Fault::DiskFull { for_ms: ms, .. }
        | Fault::BackendAway { for_ms: ms }
        | Fault::BackendHangs { for_ms: ms }
        | Fault::BackendSlow { for_ms: ms, .. }
        | Fault::Restore { after_ms: ms, .. }
        | Fault::SlowCpu { for_ms: ms, .. } => ms,
        Fault::Loss { for_ms: ms, .. }
        | Fault::Duplicate { for_ms: ms, .. }
        | Fault::Reorder { for_ms: ms, .. }
        | Fault::DiskErrors { for_ms: ms, .. }
        | Fault::SyncFails { for_ms: ms, .. } => {
            least = LASTS_AT_LEAST_MS;
            ms
        }
        Fault::ClockJump { .. }
        | Fault::ClockDrift { .. }
        | Fault::Panic { .. }
        | Fault::Restart
        | Fault::ResetConnections
        | Fault::HalfOpen
        | Fault::BitRot { .. } => return None,
    };
    if *value == 0 || *value / 2 < least {
        return None;
    }
    *value /= 2;
    Some(smaller)
}

fn without(parts: &[Part], n: usize) -> Vec<Part> {
    let mut rest = parts.to_vec();
    rest.remove(n);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_is_needed_and_in_order() {
        let items: Vec<u32> = (0..50).collect();
        for needed in [vec![7], vec![0, 49], vec![3, 4, 31], vec![]] {
            let mut runs = 0;
            let left = minimal(&items, &mut |tried: &[u32]| {
                runs += 1;
                needed.iter().all(|n| tried.contains(n))
            });
            assert_eq!(left, needed);
            assert!(runs < 120, "{runs} runs");
        }
    }

    #[test]
    fn the_result_is_minimal_even_where_faults_stand_in_for_each_other() {
        // Fails with any two of the first three: one of those pairs is left, never all three.
        let items: Vec<u32> = (0..20).collect();
        let mut fails = |tried: &[u32]| tried.iter().filter(|n| **n < 3).count() >= 2;
        let left = minimal(&items, &mut fails);
        assert_eq!(left.len(), 2);
        assert!(fails(&left));
    }

    fn part(fault: Fault) -> Part {
        Part::Fault(Planned {
            at_us: 1,
            on: "pool".to_owned(),
            fault,
        })
    }

    #[test]
    fn values_are_halved_down_to_where_it_still_fails() {
        let stall = |for_ms| part(Fault::DiskStall { for_ms });
        let mut parts = vec![stall(3000)];
        smaller_values(
            &mut parts,
            &mut |parts: &[Part]| matches!(&parts[0], Part::Fault(Planned { fault: Fault::DiskStall { for_ms }, .. }) if *for_ms >= 300),
        );
        assert_eq!(parts, [stall(375)]);
    }

    #[test]
    fn a_fault_of_chance_is_never_made_so_short_that_it_flaps() {
        let loss = |for_ms| {
            part(Fault::Loss {
                for_ms,
                per_10_000: 9,
            })
        };
        let mut parts = vec![loss(900)];
        smaller_values(&mut parts, &mut |_: &[Part]| true);
        assert_eq!(parts, [loss(112)]);
    }

    #[test]
    fn a_plan_is_the_sum_of_its_parts() {
        let root = crate::scenario::root();
        let scenario = Scenario::load(&root, "slow-disk").expect("it is there");
        for seed in 1..10 {
            let plan = Plan::draw(&scenario, seed);
            assert_eq!(assemble(&plan, &parts(&plan)), plan);
        }
    }
}
