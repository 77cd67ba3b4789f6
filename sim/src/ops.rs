//! Operations: what clients ask of a world, drawn beforehand as data, so that a failing run can be shrunk to
//! the few requests it needs and replayed from a file.
//!
//! Always: a client has one operation under way at a time and sends the next at its planned moment; one whose
//! moment passed by much while the client still waited is not sent at all, as a person would give it up.

use std::{collections::BTreeMap, time::Duration};

use ron_core::seam::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    calls, catalogue,
    plan::matches,
    scenario::Scenario,
    seed, timer,
    workload::{self, Clients, Drawn, Work},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Op {
    pub at_us: u64,
    /// Unique over all workloads of the scenario.
    pub client: u32,
    /// The node it is sent to.
    pub on: String,
    /// What is asked for: a call that a service registered.
    pub call: String,
    /// Which thing it is about; unique among the operations that make one.
    pub key: u64,
    /// A size, a choice, a deadline: what the call makes of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub arg: u64,
    /// How long its client waits for the answer.
    pub timeout_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// No seed has more operations than this: they are held in memory.
pub const MOST: f64 = 1e6;

/// A workload's operations while they are drawn.
pub struct Draft<'a> {
    pub drawn: &'a Drawn,
    /// Names of the nodes it may be sent to, in order; never empty.
    pub targets: &'a [String],
    pub rng: &'a mut seed::SimRng,
    first_client: u32,
    pub ops: Vec<Op>,
}

impl Draft<'_> {
    /// Adds an operation of the workload's `client`th client; the key is given out later.
    pub fn add(&mut self, at: Duration, client: u32, target: usize, call: &str, arg: u64) {
        self.ops.push(Op {
            at_us: at.as_micros() as u64,
            client: self.first_client + client,
            on: self.targets[target % self.targets.len()].clone(),
            call: call.to_owned(),
            key: 0,
            arg,
            timeout_ms: self.drawn.timeout.as_millis() as u64,
        });
    }

    /// The moments of a client that acts at the workload's rate, each gap drawn from half to one and a half
    /// of the mean.
    pub fn moments(&mut self) -> Vec<Duration> {
        let pace = Duration::from_secs_f64(1.0 / self.drawn.rate_per_s);
        let mut rng = seed::stream(seed::pick(self.rng, 0, u64::MAX), "client");
        let end = self.drawn.at + self.drawn.for_;
        let mut at = self.drawn.at;
        std::iter::from_fn(|| {
            at += seed::pick_duration(&mut rng, (pace / 2, pace * 3 / 2));
            (at < end).then_some(at)
        })
        .collect()
    }
}

/// All operations of a seed, in order of time.
pub fn draw(scenario: &Scenario, seed: u64) -> Vec<Op> {
    let nodes = catalogue::node_names(scenario);
    let mut all = Vec::new();
    let mut first_client = 0;
    for (index, spec) in scenario.workload.iter().enumerate() {
        let kind = workload::find(&spec.kind).expect("validated");
        let Work::Operations(draw) = kind.work else {
            continue;
        };
        let mut rng = workload::stream(seed, index, spec);
        let drawn = Drawn::from(spec, &mut rng);
        let on = spec.on.as_deref().unwrap_or("*");
        let targets: Vec<String> = nodes.iter().filter(|n| matches(on, n)).cloned().collect();
        let mut draft = Draft {
            drawn: &drawn,
            targets: &targets,
            rng: &mut rng,
            first_client,
            ops: Vec::new(),
        };
        draw(&mut draft);
        let mut ops = draft.ops;
        ops.sort_by_key(|op| (op.at_us, op.client));
        if let Some(most) = drawn.requests {
            ops.truncate(most as usize);
        }
        first_client = ops
            .iter()
            .map(|op| op.client + 1)
            .max()
            .unwrap_or(0)
            .max(first_client);
        all.extend(ops);
    }
    all.sort_by_key(|op| (op.at_us, op.client));
    for (n, op) in all.iter_mut().enumerate() {
        op.key = n as u64 + 1;
    }
    all
}

/// An operation that is late by more than this because its client was busy is not sent.
const LATE: Duration = Duration::from_secs(2);

/// Carries out the operations, counted from now; returns when the last client is done.
pub async fn carry_out(clients: Clients, ops: Vec<Op>) {
    let begin = timer::now();
    let mut by_client: BTreeMap<u32, Vec<Op>> = BTreeMap::new();
    for op in ops {
        by_client.entry(op.client).or_default().push(op);
    }
    let running: Vec<_> = by_client
        .into_values()
        .map(|ops| {
            let clients = clients.clone();
            crate::executor::spawn(async move {
                for op in ops {
                    let at = begin + Duration::from_micros(op.at_us);
                    if timer::now() > at + LATE {
                        continue;
                    }
                    timer::sleep_until(at).await;
                    call(&clients, op).await;
                }
            })
        })
        .collect();
    for client in running {
        let _ = client.await;
    }
}

fn call(clients: &Clients, op: Op) -> BoxFuture<'static, ()> {
    let call = calls::find(&op.call).expect("validated");
    (call.run)(clients.clone(), op)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &str) -> Scenario {
        Scenario::load(&crate::scenario::root(), name).expect("it is there")
    }

    #[test]
    fn operations_are_in_order_of_time_each_with_its_own_key() {
        let scenario = scenario("queue-saturation");
        for seed in 1..20 {
            let ops = draw(&scenario, seed);
            assert!(ops.len() > 40);
            assert!(ops.is_sorted_by_key(|op| op.at_us));
            let keys: std::collections::BTreeSet<_> = ops.iter().map(|op| op.key).collect();
            assert_eq!(keys.len(), ops.len());
            assert_eq!(ops, draw(&scenario, seed));
        }
        assert_ne!(draw(&scenario, 1), draw(&scenario, 2));
    }

    #[test]
    fn two_workloads_share_no_client() {
        let ops = draw(&scenario("queue-saturation"), 1);
        let burst_at = ops
            .iter()
            .map(|op| op.at_us)
            .find(|at| ops.iter().filter(|op| op.at_us == *at).count() > 20)
            .expect("the burst");
        let (burst, paced): (Vec<_>, Vec<_>) = ops.iter().partition(|op| op.at_us == burst_at);
        let of_burst: std::collections::BTreeSet<_> = burst.iter().map(|op| op.client).collect();
        assert_eq!(
            of_burst.len(),
            burst.len(),
            "a burst is one request of each client"
        );
        assert!(paced.iter().all(|op| !of_burst.contains(&op.client)));
    }

    #[test]
    fn a_limit_on_requests_cuts_the_latest() {
        let scenario = scenario("partition-heal");
        for seed in 1..20 {
            let count = draw(&scenario, seed).len();
            assert!((1..=140).contains(&count), "{count}");
        }
    }

    #[test]
    fn an_operation_reads_back_as_it_was_written() {
        let op = draw(&scenario("torn-write"), 1).remove(0);
        let text = toml::to_string(&op).expect("an operation is data");
        assert!(!text.contains("arg"), "{text}");
        assert_eq!(toml::from_str::<Op>(&text), Ok(op));
    }
}
