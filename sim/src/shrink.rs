//! Shrinking: from a plan that fails to one from which nothing can be left out.
//!
//! Delta debugging over the faults, then over their values, under one fingerprint: a smaller plan counts
//! only if the same oracle speaks. The result is 1-minimal: without any one of its faults the run passes,
//! or fails otherwise.

use std::time::Instant;

use crate::{
    plan::{Fault, Planned},
    run::{self, Watch},
    scenario::Scenario,
};

/// What came of it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    pub plan: Vec<Planned>,
    pub from: usize,
    pub runs: u64,
    pub took: std::time::Duration,
    /// For each fault that is left: does the run pass without it?
    pub needed: Vec<bool>,
}

/// Shrinks the plan of a run that `fingerprint` (an oracle) has spoken in.
pub fn shrink(
    scenario: &Scenario,
    seed: u64,
    plan: &[Planned],
    fingerprint: &str,
    watch: &Watch,
) -> Shrunk {
    let begin = Instant::now();
    let mut runs = 0;
    let mut fails = |plan: &[Planned]| {
        runs += 1;
        let run = run::run_plan(scenario, seed, watch, plan.to_vec());
        run.violation()
            .is_some_and(|violation| violation.oracle == fingerprint)
    };
    let mut smallest = minimal(plan, &mut fails);
    smaller_values(&mut smallest, &mut fails);
    let needed = (0..smallest.len())
        .map(|n| !fails(&without(&smallest, n)))
        .collect();
    Shrunk {
        plan: smallest,
        from: plan.len(),
        runs,
        took: begin.elapsed(),
        needed,
    }
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

/// Halves durations and counts for as long as the run still fails.
fn smaller_values(plan: &mut Vec<Planned>, fails: &mut impl FnMut(&[Planned]) -> bool) {
    for n in 0..plan.len() {
        while let Some(fault) = halved(&plan[n].fault) {
            let mut candidate = plan.clone();
            candidate[n].fault = fault;
            if !fails(&candidate) {
                break;
            }
            *plan = candidate;
        }
    }
}

fn halved(fault: &Fault) -> Option<Fault> {
    let mut smaller = fault.clone();
    let value = match &mut smaller {
        Fault::Kill { down_ms: ms }
        | Fault::PowerOff { down_ms: ms }
        | Fault::CrashAtDiskOp { down_ms: ms, .. }
        | Fault::Shutdown {
            restart_after_ms: ms,
            ..
        }
        | Fault::Pause { for_ms: ms }
        | Fault::Partition { for_ms: ms, .. }
        | Fault::Loss { for_ms: ms, .. }
        | Fault::Latency { for_ms: ms, .. }
        | Fault::SlowLink { for_ms: ms, .. }
        | Fault::ConnectHang { for_ms: ms }
        | Fault::DiskStall { for_ms: ms }
        | Fault::DiskErrors { for_ms: ms, .. }
        | Fault::SyncFails { for_ms: ms, .. }
        | Fault::SyncLies { for_ms: ms }
        | Fault::DiskFull { for_ms: ms, .. }
        | Fault::SlowCpu { for_ms: ms, .. } => ms,
        Fault::ClockJump { .. }
        | Fault::ClockDrift { .. }
        | Fault::Panic { .. }
        | Fault::ResetConnections
        | Fault::BitRot => return None,
    };
    *value /= 2;
    (smaller != *fault).then_some(smaller)
}

fn without(plan: &[Planned], n: usize) -> Vec<Planned> {
    let mut rest = plan.to_vec();
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

    #[test]
    fn values_are_halved_down_to_where_it_still_fails() {
        let stall = |for_ms| Planned {
            at_us: 1,
            on: "pool".to_owned(),
            fault: Fault::DiskStall { for_ms },
        };
        let mut plan = vec![stall(3000)];
        smaller_values(
            &mut plan,
            &mut |plan: &[Planned]| matches!(plan[0].fault, Fault::DiskStall { for_ms } if for_ms >= 300),
        );
        assert_eq!(plan, [stall(375)]);
    }
}
