//! One run: seed → options → plan → world → trace and verdict.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    catalogue::{self, CLIENT_NODE},
    faults,
    net::{Link, NodeId},
    oracle::{self, LIVE_AGAIN, Violation},
    plan::{self, Planned},
    recorder::{Record, Recorder},
    scenario::Scenario,
    seed, timer,
    trace::{Outcome, What},
    workload::{self, Clients},
    world::{Status, World},
};

/// How a run is watched; nothing here changes what happens in it, except a planted bug.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Prints options and what matters, as it happens.
    pub echo: bool,
    pub keep_lines: bool,
    pub plant: Option<String>,
    /// Keeps what a picture of the run needs.
    pub detail: bool,
}

#[derive(Clone, Debug)]
pub struct RunResult {
    pub scenario: String,
    pub seed: u64,
    pub options: Vec<String>,
    pub plan: Vec<Planned>,
    pub record: Record,
    /// How long the world took to be live again after everything healed.
    pub live_after: Option<Duration>,
    pub wall: Duration,
}

impl RunResult {
    pub fn violation(&self) -> Option<&Violation> {
        self.record.violation.as_ref()
    }
}

/// No run may last longer than this, in its own time.
const TIME_LIMIT: Duration = Duration::from_secs(3 * 3600);
const START_WITHIN: Duration = Duration::from_secs(10);
const STOP_WITHIN: Duration = Duration::from_secs(60);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Runs one seed with the plan it draws.
pub fn run(scenario: &Scenario, seed: u64, watch: &Watch) -> RunResult {
    let plan = plan::draw(scenario, seed, &catalogue::node_names(scenario));
    run_plan(scenario, seed, watch, plan)
}

/// Runs one seed with a plan of the caller's, on a thread of its own: hash keys and other thread-locals
/// are seeded once per thread.
pub fn run_plan(scenario: &Scenario, seed: u64, watch: &Watch, plan: Vec<Planned>) -> RunResult {
    // Locks taken out of order panic in simulations, whatever the build.
    ron_core::lock::enforce_order();
    let begin = Instant::now();
    let recorder: Arc<Mutex<Option<Recorder>>> = Arc::default();
    let (shared, inside, watching) = (recorder.clone(), scenario.clone(), watch.clone());
    let (running, ended) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(format!("{} {seed}", scenario.name))
        .spawn(move || {
            let _running: std::sync::mpsc::Sender<()> = running;
            let mut runtime =
                madsim::runtime::Runtime::with_seed_and_config(seed, madsim::Config::default());
            runtime.set_time_limit(TIME_LIMIT);
            // A panic of the world itself (a deadlock, a bug of the simulator) is a verdict too.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
                runtime.block_on(simulate(inside, seed, watching, plan, shared))
            }));
            outcome.map_err(|panic| panic_text(&*panic))
        });
    let thread = thread.expect("a thread can be started");
    tell_if_it_hangs(&ended, &scenario.name, seed);
    let outcome = thread.join();
    let outcome = outcome.unwrap_or_else(|panic| Err(panic_text(&*panic)));
    let mut result = outcome.unwrap_or_else(|why| broken(scenario, seed, &recorder, why));
    result.wall = begin.elapsed();
    result
}

/// Waits for the run. One that hangs or spins must still yield its seed.
fn tell_if_it_hangs(ended: &std::sync::mpsc::Receiver<()>, name: &str, seed: u64) {
    let mut waited = Duration::from_secs(60);
    // The other end is never used, only dropped when the run ends.
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(waited) {
        eprintln!("sim: still running after {waited:?}: sim run {name} --seed {seed}");
        waited *= 2;
    }
}

fn broken(
    scenario: &Scenario,
    seed: u64,
    recorder: &Mutex<Option<Recorder>>,
    why: String,
) -> RunResult {
    let record = match recorder.lock().ok().and_then(|mut r| r.take()) {
        Some(recorder) => recorder.into_record(Duration::ZERO),
        None => Record {
            hash: String::new(),
            events: 0,
            lines: Vec::new(),
            oracles: 0,
            violation: None,
            marks: BTreeMap::new(),
            requests: 0,
            simulated: Duration::ZERO,
            detail: None,
        },
    };
    let violation = Violation {
        at: Duration::ZERO,
        oracle: "world.no_panic",
        why,
    };
    RunResult {
        scenario: scenario.name.clone(),
        seed,
        options: Vec::new(),
        plan: Vec::new(),
        record: Record {
            violation: record.violation.clone().or(Some(violation)),
            ..record
        },
        live_after: None,
        wall: Duration::ZERO,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "panicked".to_owned())
}

async fn simulate(
    scenario: Scenario,
    seed: u64,
    watch: Watch,
    plan: Vec<Planned>,
    shared: Arc<Mutex<Option<Recorder>>>,
) -> RunResult {
    let oracles = scenario
        .check
        .always
        .iter()
        .map(|name| (oracle::find(name).expect("validated").make)());
    let recorder = Recorder::new(oracles.collect(), watch.keep_lines, watch.echo);
    if watch.detail {
        recorder.keep_detail();
    }
    *shared.lock().unwrap() = Some(recorder.clone());
    let (world, client) = build(&scenario, seed, &recorder, &watch);
    let mut options = drifts(&scenario, seed, &world);
    let clients = Clients::new(
        &world,
        client,
        watch.plant.as_deref() == Some("client_forgets"),
    );
    let workloads: Vec<_> = scenario
        .workload
        .iter()
        .enumerate()
        .map(|(index, spec)| workload::start(&clients, spec, index, seed))
        .collect();
    options.extend(workloads.iter().map(|(text, _)| text.clone()));
    options.extend(
        plan.iter()
            .map(|p| format!("{} on {} at {:.3}s", p.fault, p.on, p.at().as_secs_f64())),
    );
    if watch.echo {
        println!("options  {}", options.join("\n         "));
    }

    for (node, _) in world.service_nodes() {
        world.start(node);
    }
    live_within(&world, &clients, &["ready"], START_WITHIN, "at the start").await;
    let sampling = {
        let world = world.clone();
        madsim::task::spawn(async move { world.keep_sampling(SAMPLE_EVERY).await })
    };

    // Safety: the plan strikes while the workload runs.
    let striking = madsim::task::spawn(faults::carry_out(world.clone(), plan.clone()));
    let running: Vec<_> = workloads
        .into_iter()
        .map(|(_, job)| madsim::task::spawn(job))
        .collect();
    for task in running {
        let _ = task.await;
    }
    let _ = striking.await;

    // Liveness: everything heals, and the world must come back.
    faults::heal_all(&world);
    let hold: Vec<&str> = scenario
        .check
        .eventually
        .hold
        .iter()
        .map(String::as_str)
        .collect();
    let budget = Duration::from_secs_f64(scenario.check.eventually.within_s);
    let live_after = live_within(&world, &clients, &hold, budget, "after everything healed").await;

    stop_all(&world).await;
    sampling.abort();
    recorder.finish(&world.view());
    RunResult {
        scenario: scenario.name.clone(),
        seed,
        options,
        plan,
        record: recorder.into_record(timer::elapsed()),
        live_after,
        wall: Duration::ZERO,
    }
}

fn build(scenario: &Scenario, seed: u64, recorder: &Recorder, watch: &Watch) -> (World, NodeId) {
    let us = |value: f64| Duration::from_nanos((value * 1000.0) as u64);
    let latency = scenario.link.latency_us;
    let link = Link {
        latency: (us(latency.lo), us(latency.hi)),
        ..Link::default()
    };
    let world = World::new(seed, link, recorder.clone(), watch.plant.clone());
    if watch.detail {
        let recorder = recorder.clone();
        world.net().tap(move |message| recorder.message(message));
    }
    for spec in &scenario.node {
        let service = catalogue::service(&spec.service).expect("validated");
        for n in 1..=spec.count {
            let name = if n == 1 {
                spec.name.clone()
            } else {
                format!("{}-{n}", spec.name)
            };
            world.add_node(&name, Some(service.clone()), spec.config.clone());
        }
    }
    let client = world.add_node(CLIENT_NODE, None, toml::Table::new());
    world.start(client);
    (world, client)
}

fn drifts(scenario: &Scenario, seed: u64, world: &World) -> Vec<String> {
    let mut told = Vec::new();
    for spec in &scenario.node {
        for node in world.node_ids() {
            let name = world.name(node);
            if !plan::matches(&spec.name, &name) {
                continue;
            }
            let ppm = spec
                .drift_ppm
                .draw_signed(&mut seed::stream(seed, &format!("drift {name}")));
            if ppm != 0 {
                world.node_parts(node).clock.set_drift(ppm);
                told.push(format!("drift {name} {ppm:+} ppm"));
            }
        }
    }
    told
}

/// Waits until every condition holds on every service node; a miss is a violation that says why.
async fn live_within(
    world: &World,
    clients: &Clients,
    hold: &[&str],
    budget: Duration,
    when: &str,
) -> Option<Duration> {
    let begin = timer::now();
    loop {
        let missing = first_missing(world, clients, hold).await;
        let took = timer::now() - begin;
        let Some(why) = missing else {
            let text = format!("live {when} in {:.3} s", took.as_secs_f64());
            world.recorder().record(None, What::Phase { text });
            return Some(took);
        };
        if took > budget {
            world
                .recorder()
                .violate(LIVE_AGAIN, format!("{when}, within {budget:?}: {why}"));
            return None;
        }
        timer::sleep(Duration::from_millis(20)).await;
    }
}

async fn first_missing(world: &World, clients: &Clients, hold: &[&str]) -> Option<String> {
    const PATIENCE: Duration = Duration::from_millis(500);
    for (node, port) in world.service_nodes() {
        let name = world.name(node);
        let to = format!("{name}:{port}");
        for condition in hold {
            let (outcome, body) = match *condition {
                "ready" => clients.exchange(&to, "/readyz", "GET", PATIENCE).await,
                "serves" => (clients.put(&to, PATIENCE).await, bytes::Bytes::new()),
                other => unreachable!("{other} was validated"),
            };
            if outcome != Outcome::Answered(200) {
                let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                return Some(format!("{name}.{condition}: {outcome:?} {body}"));
            }
        }
    }
    None
}

async fn stop_all(world: &World) {
    let nodes = world.service_nodes();
    for (node, _) in &nodes {
        world.ask_shutdown(*node);
    }
    let begin = timer::now();
    while nodes
        .iter()
        .any(|(node, _)| world.status(*node) == Status::Up)
    {
        if timer::now() - begin > STOP_WITHIN {
            return;
        }
        timer::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenarios_drift_reaches_the_clock_of_its_node() {
        let thread = std::thread::spawn(|| {
            let runtime =
                madsim::runtime::Runtime::with_seed_and_config(1, madsim::Config::default());
            runtime.block_on(async {
                let mut scenario =
                    Scenario::load(&crate::scenario::root(), "clock-jump").expect("it is there");
                scenario.node[0].drift_ppm = crate::scenario::Span::fixed(123.0);
                let recorder = Recorder::new(Vec::new(), false, false);
                let (world, client) = build(&scenario, 1, &recorder, &Watch::default());
                let told = drifts(&scenario, 1, &world);
                let node = world.find("pool").expect("the scenario's node");
                assert_eq!(world.node_parts(node).clock.drift_ppm(), 123);
                assert_eq!(world.node_parts(client).clock.drift_ppm(), 0);
                assert_eq!(told, ["drift pool +123 ppm"]);
            });
        });
        thread.join().expect("the test's world");
    }
}
