//! One run: seed → options → plan → world → trace and verdict.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use crate::{
    catalogue::{self, CLIENT_NODE, READY},
    executor::{self, Simulation},
    faults,
    felt::Fate,
    net::{Link, NodeId},
    ops,
    oracle::{LIVE_AGAIN, NO_HANG, NO_PANIC, Violation},
    plan::{self, Plan},
    planted,
    recorder::{Record, Recorder},
    say,
    scenario::Scenario,
    seed,
    service::Question,
    services,
    steps::Steps,
    swarm, timer,
    trace::{Outcome, What},
    watcher::RunWatcher,
    workload::{self, Clients},
    world::{Status, World},
};

/// How a run is watched; nothing here changes what happens in it, except a planted bug.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Prints options and what matters, as it happens.
    pub echo: bool,
    pub keep_lines: bool,
    /// The planted bug that it has; see [`crate::mutants`].
    pub bug: Option<String>,
    /// A run whose tasks take no step for so long, in real time, is given up; a minute if not set.
    pub give_up_after: Option<Duration>,
    /// Keeps what a picture of the run needs.
    pub detail: bool,
}

#[derive(Clone, Debug)]
pub struct RunResult {
    pub scenario: String,
    pub seed: u64,
    pub options: Vec<String>,
    pub plan: Plan,
    pub record: Record,
    /// What became of each fault of the plan, once for each kind and service.
    pub fates: Vec<Fate>,
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
/// A world of fewer nodes than this is looked at so often.
const SAMPLED_OFTEN: u32 = 100;
/// What the last operation may take beyond its planned moment.
const OPERATIONS_WITHIN: Duration = Duration::from_secs(600);
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// Runs one seed with the plan it draws.
pub fn run(scenario: &Scenario, seed: u64, watch: &Watch) -> RunResult {
    on_its_thread(Run {
        scenario: scenario.clone(),
        seed,
        watch: watch.clone(),
        plan: Plan::draw(scenario, seed),
        drawn: true,
    })
}

/// Runs one seed with a plan of the caller's.
pub fn run_plan(scenario: &Scenario, seed: u64, watch: &Watch, plan: Plan) -> RunResult {
    on_its_thread(Run {
        scenario: scenario.clone(),
        seed,
        watch: watch.clone(),
        plan,
        drawn: false,
    })
}

/// What is to be run.
struct Run {
    scenario: Scenario,
    seed: u64,
    watch: Watch,
    plan: Plan,
    /// The plan is the seed's own.
    drawn: bool,
}

/// On a thread of its own: hash keys and other thread-locals are seeded once per thread.
fn on_its_thread(run: Run) -> RunResult {
    // Locks taken out of order panic in simulations, whatever the build.
    ron_core::lock::enforce_order();
    let begin = Instant::now();
    let recorder: Arc<Mutex<Option<Recorder>>> = Arc::default();
    let steps = Steps::default();
    let run = Arc::new(run);
    let (shared, counter, inside) = (recorder.clone(), steps.clone(), run.clone());
    let seed = run.seed;
    let (running, ended) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(format!("{} {seed}", run.scenario.name))
        .spawn(move || {
            let _running: std::sync::mpsc::Sender<()> = running;
            let simulation = Simulation::new(seed).limited(TIME_LIMIT);
            // A panic of the world itself (a deadlock, a bug of the simulator) is a verdict too.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
                simulation.block_on(simulate(&inside, shared, counter))
            }));
            outcome.map_err(|panic| panic_text(&*panic))
        });
    let thread = thread.expect("a thread can be started");
    let patience = run.watch.give_up_after.unwrap_or(GIVE_UP_AFTER);
    let outcome = match wait_for(&ended, &steps, patience) {
        Ok(()) => thread
            .join()
            .unwrap_or_else(|panic| Err(panic_text(&*panic)))
            .map_err(|why| (NO_PANIC, why)),
        // The thread cannot be stopped; whoever runs seeds still learns which one it was.
        Err(why) => Err((NO_HANG, why)),
    };
    let mut result = outcome.unwrap_or_else(|(oracle, why)| broken(&run, &recorder, oracle, why));
    result.wall = begin.elapsed();
    result
}

/// Waits for the run to end, for as long as it takes steps: the last resort against one that blocks.
fn wait_for(ended: &Receiver<()>, steps: &Steps, patience: Duration) -> Result<(), String> {
    let (mut taken, mut since) = (steps.taken(), Instant::now());
    // The other end is never used, only dropped when the run ends.
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(patience / 4) {
        let now = steps.taken();
        if now != taken {
            (taken, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            return Err(format!(
                "a task blocks its thread: no step for {patience:?} of real time"
            ));
        }
    }
    Ok(())
}

fn broken(
    run: &Run,
    recorder: &Mutex<Option<Recorder>>,
    oracle: &'static str,
    why: String,
) -> RunResult {
    // A run that hangs may hang in the middle of a record.
    let taken = recorder.try_lock().ok().and_then(|mut r| r.take());
    let record = taken.and_then(Recorder::try_into_record);
    let record = record.unwrap_or_else(|| Record {
        hash: String::new(),
        events: 0,
        lines: Vec::new(),
        oracles: 0,
        violation: None,
        marks: BTreeMap::new(),
        requests: 0,
        by_op: BTreeMap::new(),
        simulated: Duration::ZERO,
        detail: None,
    });
    let violation = Violation {
        at: Duration::ZERO,
        oracle,
        why,
    };
    RunResult {
        scenario: run.scenario.name.clone(),
        seed: run.seed,
        options: run.options(),
        plan: run.plan.clone(),
        record: Record {
            violation: record.violation.clone().or(Some(violation)),
            ..record
        },
        fates: Vec::new(),
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

async fn simulate(run: &Run, shared: Arc<Mutex<Option<Recorder>>>, steps: Steps) -> RunResult {
    let Run {
        scenario,
        seed,
        watch,
        plan,
        ..
    } = run;
    let seed = *seed;
    let oracles = scenario.laws().into_iter().map(|law| (law.make)());
    let recorder = Recorder::new(oracles.collect(), watch.keep_lines, watch.echo);
    if watch.detail {
        recorder.keep_detail();
    }
    *shared.lock().unwrap() = Some(recorder.clone());
    let options = run.options();
    if watch.echo {
        say!("options  {}", options.join("\n         "));
    }
    let points = RunWatcher::install(&recorder, seed, &plan.buggify);
    planted::plant(watch.bug.as_deref());
    let (world, client) = build(scenario, seed, &recorder, watch, plan, steps);
    set_clocks(scenario, seed, &world);
    let clients = Clients::new(&world, client);

    faults::before_start(&world, &plan.faults);
    for (node, _) in world.service_nodes() {
        world.start(node);
    }
    live_within(&world, &clients, &[READY], START_WITHIN, "at the start").await;
    let sampling = {
        let world = world.clone();
        // A look takes as long as there are nodes; in a large world it is taken less often.
        let every = SAMPLE_EVERY * (1 + world.node_ids().len() as u32 / SAMPLED_OFTEN);
        executor::spawn(async move { world.keep_sampling(every).await })
    };

    // Safety: the plan strikes while the clients act.
    act(scenario, seed, plan, &world, &clients).await;

    // Liveness: everything heals, and the world must come back.
    points.calm();
    faults::heal_all(&world);
    let hold: Vec<&str> = scenario
        .check
        .eventually
        .hold
        .iter()
        .map(String::as_str)
        .collect();
    let budget = Duration::from_secs_f64(scenario.check.eventually.within_s);
    // What the faults left half-open is the clients' trouble: each such connection costs a timeout, which would be
    // counted against the services.
    let checking = clients.with_new_connections();
    let live_after = live_within(&world, &checking, &hold, budget, "after everything healed").await;

    stop_all(&world).await;
    sampling.abort();
    recorder.finish(&world.view(), run.drawn);
    points.end();
    RunResult {
        scenario: scenario.name.clone(),
        seed,
        options,
        fates: fates(&world, plan),
        plan: plan.clone(),
        record: recorder.into_record(timer::elapsed()),
        live_after,
        wall: Duration::ZERO,
    }
}

/// Carries out the plan: its faults, its operations, and whoever watches.
async fn act(scenario: &Scenario, seed: u64, plan: &Plan, world: &World, clients: &Clients) {
    let faults = plan.faults.iter().map(plan::Planned::at).max();
    let last = plan.ops.iter().map(|op| op.at_us).max();
    let last = last.map(Duration::from_micros).max(faults);
    let striking = executor::spawn(faults::carry_out(world.clone(), plan.faults.clone()));
    let specs = scenario.workload.iter().enumerate();
    let watching: Vec<_> = specs
        .filter_map(|(index, spec)| workload::watcher(clients, spec, index, seed))
        .map(executor::spawn)
        .collect();
    let asking = executor::spawn(ops::carry_out(clients.clone(), plan.ops.clone()));
    let all = async {
        let _ = asking.await;
        for task in watching {
            let _ = task.await;
        }
        let _ = striking.await;
    };
    let limit = last.unwrap_or_default() + OPERATIONS_WITHIN;
    tokio::select! {
        biased;
        () = all => {}
        () = timer::sleep(limit) => {
            let why = format!("operations or faults were still under way after {limit:?}");
            world.recorder().violate(NO_HANG, why);
        }
    }
}

/// Every kind of fault that the plan struck, with the service it struck.
fn fates(world: &World, plan: &Plan) -> Vec<Fate> {
    let mut fates: Vec<Fate> = Vec::new();
    for planned in &plan.faults {
        let node = world.find(&planned.on).expect("validated");
        let (service, kind) = (world.service_of(node), planned.fault.kind());
        let felt = world.node_parts(node).felt.has(kind);
        let same = |fate: &&mut Fate| fate.service == service && fate.kind == kind;
        match fates.iter_mut().find(same) {
            Some(fate) => fate.felt |= felt,
            None => fates.push(Fate {
                service,
                kind,
                felt,
            }),
        }
    }
    fates
}

impl Run {
    /// Everything that the seed and the plan chose, a line each.
    fn options(&self) -> Vec<String> {
        let Run {
            scenario,
            seed,
            plan,
            ..
        } = self;
        let mut told = Vec::new();
        told.extend(swarm::describe(scenario, *seed).filter(|_| self.drawn));
        for (name, clock) in clocks(scenario, *seed) {
            if clock.drift_ppm != 0 {
                told.push(format!("drift {name} {:+} ppm", clock.drift_ppm));
            }
            if clock.offset_ms != 0 {
                told.push(format!("offset {name} {:+} ms", clock.offset_ms));
            }
        }
        let specs = scenario.workload.iter().enumerate();
        told.extend(specs.map(|(index, spec)| workload::describe(spec, index, *seed)));
        if !self.drawn {
            let count = plan.ops.len();
            told.push(format!("of which {count} operations are left in this plan"));
        }
        told.extend(plan.options());
        told
    }
}

fn build(
    scenario: &Scenario,
    seed: u64,
    recorder: &Recorder,
    watch: &Watch,
    plan: &Plan,
    steps: Steps,
) -> (World, NodeId) {
    let us = |value: f64| Duration::from_nanos((value * 1000.0) as u64);
    let latency = scenario.link.latency_us;
    let link = Link {
        latency: (us(latency.lo), us(latency.hi)),
        ..Link::default()
    };
    let world = World::counted(seed, link, recorder.clone(), steps);
    if watch.detail {
        let recorder = recorder.clone();
        world.net().tap(move |message| recorder.message(message));
    }
    for spec in &scenario.node {
        let service = services::find(&spec.service).expect("validated");
        let config = swarm::settled(&spec.config, plan.sizes.get(&spec.name));
        for n in 1..=spec.count {
            let name = if n == 1 {
                spec.name.clone()
            } else {
                format!("{}-{n}", spec.name)
            };
            world.add_node(&name, Some(service.clone()), config.clone());
        }
    }
    let client = world.add_node(CLIENT_NODE, None, toml::Table::new());
    world.start(client);
    (world, client)
}

/// How wrong a node's clock is from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrongBy {
    drift_ppm: i64,
    offset_ms: i64,
}

fn clocks(scenario: &Scenario, seed: u64) -> Vec<(String, WrongBy)> {
    let mut drawn = Vec::new();
    for name in catalogue::node_names(scenario) {
        let spec = (scenario.node.iter()).find(|spec| plan::matches(&spec.name, &name));
        let Some(spec) = spec else { continue };
        let stream = |what: &str| seed::stream(seed, &format!("{what} {name}"));
        let wrong = WrongBy {
            drift_ppm: spec.drift_ppm.draw_signed(&mut stream("drift")),
            offset_ms: spec.offset_ms.draw_signed(&mut stream("offset")),
        };
        drawn.push((name, wrong));
    }
    drawn
}

fn set_clocks(scenario: &Scenario, seed: u64, world: &World) {
    for (name, wrong) in clocks(scenario, seed) {
        let clock = world
            .node_parts(world.find(&name).expect("it was built"))
            .clock;
        clock.set_drift(wrong.drift_ppm);
        clock.jump_wall(wrong.offset_ms);
    }
}

/// Waits until every condition holds on every service node, all around without a miss; a miss beyond the budget is a
/// violation that says why. Whoever misses is asked again at once, and only then the others: a look at all of a large
/// world takes seconds, and must not be paid for each connection that a client finds dead.
async fn live_within(
    world: &World,
    clients: &Clients,
    hold: &[&str],
    budget: Duration,
    when: &str,
) -> Option<Duration> {
    let begin = timer::now();
    let nodes = world.service_nodes();
    let (mut at, mut in_a_row) = (0, 0);
    while in_a_row < nodes.len() {
        let Some(why) = missing(world, clients, hold, &nodes, at).await else {
            in_a_row += 1;
            at = (at + 1) % nodes.len();
            continue;
        };
        in_a_row = 0;
        if timer::now() - begin > budget {
            world
                .recorder()
                .violate(LIVE_AGAIN, format!("{when}, within {budget:?}: {why}"));
            return None;
        }
        timer::sleep(Duration::from_millis(20)).await;
    }
    let took = timer::now() - begin;
    let text = format!("live {when} in {:.3} s", took.as_secs_f64());
    world.recorder().record(None, What::Phase { text });
    Some(took)
}

/// The first condition that does not hold on the node at this place.
async fn missing(
    world: &World,
    clients: &Clients,
    hold: &[&str],
    nodes: &[(NodeId, u16)],
    at: usize,
) -> Option<String> {
    /// Of whoever asks for readiness.
    const PATIENCE: Duration = Duration::from_millis(500);
    let (node, port) = nodes[at];
    let (name, service) = (world.name(node), world.service_of(node));
    let conditions = services::find(service).map_or(&[][..], |s| s.conditions());
    for condition in hold {
        let (outcome, body) = if *condition == READY {
            let to = format!("{name}:{port}");
            clients.exchange(&to, "/readyz", "GET", PATIENCE).await
        } else {
            let own = conditions.iter().find(|known| known.name == *condition);
            let Some(own) = own else { continue };
            let alike = nodes
                .iter()
                .filter(|(n, _)| world.service_of(*n) == service);
            let before = nodes[..at].iter();
            let before = before.filter(|(n, _)| world.service_of(*n) == service);
            (own.check)(Question {
                clients: clients.clone(),
                on: name.clone(),
                share: (before.count(), alike.count()),
                patience: own.patience,
            })
            .await
        };
        if outcome != Outcome::Answered(200) {
            let body = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            return Some(format!("{name}.{condition}: {outcome:?} {body}"));
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
    fn a_scenarios_drift_and_offset_reach_the_clock_of_its_node() {
        let thread = std::thread::spawn(|| {
            Simulation::new(1).block_on(async {
                let mut scenario =
                    Scenario::load(&crate::scenario::root(), "clock-jump").expect("it is there");
                scenario.node[0].drift_ppm = crate::scenario::Span::fixed(123.0);
                scenario.node[0].offset_ms = crate::scenario::Span::fixed(-4567.0);
                let recorder = Recorder::new(Vec::new(), false, false);
                let run = Run {
                    plan: Plan::draw(&scenario, 1),
                    scenario,
                    seed: 1,
                    watch: Watch::default(),
                    drawn: true,
                };
                let (scenario, plan) = (&run.scenario, &run.plan);
                let steps = Steps::default();
                let (world, client) = build(scenario, 1, &recorder, &run.watch, plan, steps);
                set_clocks(scenario, 1, &world);
                let clock = |node| world.node_parts(node).clock;
                let node = world.find("pool").expect("the scenario's node");
                assert_eq!(clock(node).drift_ppm(), 123);
                assert_eq!(clock(node).wall_offset_ms(), -4567);
                assert_eq!(clock(client).drift_ppm(), 0);
                let told = run.options().join("\n");
                assert!(
                    told.contains("drift pool +123 ppm\noffset pool -4567 ms"),
                    "{told}"
                );
            });
        });
        thread.join().expect("the test's world");
    }
}
