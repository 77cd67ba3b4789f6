//! Runs one lookup: asks the machine what to do, sends what it says, and feeds back what comes.
//!
//! Always: requests that are still under way when it ends are dropped at once; no record is given to the
//! machine that was not verified; the lookup ends by its deadline.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::Either, stream::FuturesUnordered};
use ron_core::{
    Rng,
    seam::{BoxFuture, Pool},
};

use crate::{
    config::rules,
    contact::Contact,
    error::DhtError,
    events::Event,
    explained::Course,
    id::Id,
    link::error::RpcError,
    lookup::{
        Answer, Failure, Finished, Goal, Lookup, LookupError, Next, Outcome, Probe, ProbeId, Seed,
    },
    metrics::{Family, hops_word},
    node::Node,
    peers::Peers,
    record::{Record, RecordKind},
    routes::Route,
    routing::Liveness,
    wire::message::{Op, Refusal, RefusalCode, Request, Response},
    worker::{Ask, Found, limits},
};

/// Candidates from the local table: enough to get past a few dead ones.
const SEEDS_OVER_K: usize = 8;

/// What a lookup waits for.
enum Came {
    Answered {
        probe: ProbeId,
        to: Contact,
        took: Duration,
        answer: Result<Response, RpcError>,
    },
    Verified {
        probe: ProbeId,
        answer: Answer,
    },
}

/// Runs it and answers whoever asked; stops if they go away.
pub async fn run(node: &Node, peers: &Peers, ask: Ask) {
    let Ask {
        goal,
        target,
        deadline,
        explain,
        mut reply,
    } = ask;
    let number = node.lookups.fetch_add(1, Relaxed) + 1;
    node.env.probe(
        "dht.lookup_begun",
        number,
        format_args!("{} {target} {}", goal_name(goal), left_ms(node, deadline)),
    );
    let found = tokio::select! {
        biased;
        finished = drive(node, peers, number, goal, target, deadline) => conclude(node, number, goal, finished, explain),
        () = reply.closed() => {
            ron_core::sometimes!("dht.nobody_waits");
            node.env.probe("dht.lookup_canceled", number, format_args!(""));
            return;
        }
    };
    let _ = reply.send(found);
}

async fn drive(
    node: &Node,
    peers: &Peers,
    number: u64,
    goal: Goal,
    target: Id,
    deadline: Instant,
) -> Finished {
    let env = &node.env;
    let request = question(goal, target);
    let rules = Arc::new(rules::lookup(&node.config()));
    let hedge_after = rules.hedge_after;
    let mut lookup = Lookup::new(
        rules,
        goal,
        target,
        node.id(),
        seeds(node, &target),
        env.now(),
        deadline,
    );
    let mut running = FuturesUnordered::new();
    let mut known: Option<Record> = None;
    let mut rng: Option<Rng> = None;
    let mut timer: Option<(Instant, BoxFuture<'static, ()>)> = None;
    loop {
        let until = loop {
            let delay = |id: &Id| node.peer_stats.lock().delay(id, hedge_after);
            match lookup.poll(env.now(), &node.hedges, delay) {
                Next::Probe(probe) => {
                    tell_probe(node, number, &probe);
                    running.push(Either::Left(ask_peer(node, peers, &request, probe)));
                }
                Next::Wait(until) => break until,
                Next::Done => {
                    let now = env.now();
                    let finished = lookup.finish(now);
                    drop(running);
                    return finished;
                }
            }
        };
        // One timer serves many waits: it may ring early, never late.
        if timer.as_ref().is_none_or(|(at, _)| *at > until) {
            timer = Some((until, env.sleep_until(until)));
        }
        let rings = async {
            match &mut timer {
                Some((_, ring)) => ring.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            Some(event) = running.next(), if !running.is_empty() => Some(event),
            () = rings => None,
        };
        match event {
            None => timer = None,
            Some(Came::Verified { probe, answer }) => {
                if known.is_none() {
                    known = answer.records.first().cloned();
                }
                lookup.handle_answer(probe, answer, env.now());
            }
            Some(Came::Answered {
                probe,
                to,
                took,
                answer,
            }) => {
                let spec = "spec.dht_lookup.answered";
                env.probe(spec, number, format_args!("{}", probe.0));
                match read(node, goal, &target, answer) {
                    Err(failure) => {
                        let rng = rng.get_or_insert_with(|| env.rng());
                        lookup.handle_failure(probe, failure, env.now(), rng);
                    }
                    Ok(answer) => {
                        node.peer_stats.lock().observe(&to.id, took);
                        node.seen(&to, Some(took));
                        let new = |r: &Record| known.as_ref() != Some(r);
                        if answer.records.iter().any(new) {
                            let verifying: BoxFuture<'static, Came> =
                                Box::pin(verify(node, probe, answer));
                            running.push(Either::Right(verifying));
                        } else {
                            lookup.handle_answer(probe, answer, env.now());
                        }
                    }
                }
            }
        }
    }
}

async fn ask_peer(node: &Node, peers: &Peers, request: &Request, probe: Probe) -> Came {
    let began = node.env.now();
    let answer = peers
        .request(probe.to, request, probe.hedge, probe.deadline)
        .await;
    Came::Answered {
        probe: probe.id,
        to: probe.to,
        took: node.env.now().saturating_duration_since(began),
        answer,
    }
}

/// On the CPU pool: what does not verify is left out.
fn verify(
    node: &Node,
    probe: ProbeId,
    answer: Answer,
) -> impl Future<Output = Came> + Send + 'static {
    let (limits, now) = (limits(node), node.env.wall_ms());
    let Answer { closer, records } = answer;
    let given = records.len();
    let checked = node.env.offload(Pool::CPU, move || {
        let valid = |r: &Record| r.check_shape(&limits, now).is_ok() && r.check_signature();
        records.into_iter().filter(valid).collect::<Vec<_>>()
    });
    let metrics = node.metrics.clone();
    async move {
        let records = checked.await.unwrap_or_default();
        metrics.count_many(
            Family::RecordsRejected,
            "in_answer",
            (given - records.len()) as u64,
        );
        Came::Verified {
            probe,
            answer: Answer { closer, records },
        }
    }
}

fn question(goal: Goal, target: Id) -> Request {
    match goal {
        Goal::Closest => Request::FindNode { target },
        Goal::Value { .. } => Request::FindValue { key: target },
        Goal::Providers { .. } => Request::GetProviders { key: target },
    }
}

fn op(goal: Goal) -> Op {
    match goal {
        Goal::Closest => Op::FindNode,
        Goal::Value { .. } => Op::FindValue,
        Goal::Providers { .. } => Op::GetProviders,
    }
}

fn goal_name(goal: Goal) -> &'static str {
    match goal {
        Goal::Closest => "closest",
        Goal::Value { .. } => "value",
        Goal::Providers { .. } => "providers",
    }
}

fn seeds(node: &Node, target: &Id) -> Vec<Seed> {
    let n = node.table.rules().k + SEEDS_OVER_K;
    let mut seeds = Vec::with_capacity(n);
    node.table
        .for_closest(target, n, Liveness::All, None, |entry| {
            seeds.push(Seed {
                contact: entry.contact,
                rtt_ms: entry.rtt_ms(),
                suspect: entry.is_dead(),
            });
        });
    seeds
}

/// What a response means for this goal; records of another key, kind or form are left out.
fn read(
    node: &Node,
    goal: Goal,
    target: &Id,
    response: Result<Response, RpcError>,
) -> Result<Answer, Failure> {
    let response = response.map_err(failure)?;
    let wanted = |kind| move |r: &Record| r.kind == kind && r.key == *target;
    let (mut closer, records) = match (goal, response) {
        (_, Response::Refused(refusal)) => return Err(refused(refusal)),
        (_, Response::Nodes { closer }) => (closer, Vec::new()),
        (Goal::Value { .. }, Response::Value { value, closer }) => {
            let value = value.map(|value| *value).filter(wanted(RecordKind::Value));
            (closer, value.into_iter().collect())
        }
        (
            Goal::Providers { .. },
            Response::Providers {
                mut providers,
                closer,
            },
        ) => {
            providers.retain(wanted(RecordKind::Provider));
            (closer, providers)
        }
        _ => return Err(Failure::Misbehaved),
    };
    closer.retain(|c| c.addr.is_usable() && c.id != node.id());
    Ok(Answer { closer, records })
}

fn failure(error: RpcError) -> Failure {
    match error {
        RpcError::Timeout(_) => Failure::Timeout,
        RpcError::Connect | RpcError::Canceled => Failure::Unreachable,
        RpcError::Reset => Failure::Reset,
        RpcError::Refused(refusal) => refused(refusal),
        RpcError::Handshake(_) | RpcError::Wire(_) => Failure::Misbehaved,
        RpcError::Busy => Failure::Refused {
            retry_after: Some(Duration::ZERO),
        },
    }
}

fn refused(refusal: Refusal) -> Failure {
    let again = matches!(refusal.code, RefusalCode::Busy | RefusalCode::NotReady);
    let after = Duration::from_millis(refusal.retry_after_ms.into());
    Failure::Refused {
        retry_after: again.then_some(after),
    }
}

fn tell_probe(node: &Node, number: u64, probe: &Probe) {
    node.env.probe(
        "spec.dht_lookup.asked",
        number,
        format_args!(
            "{} {} {}",
            probe.id.0,
            u8::from(probe.hedge),
            left_ms(node, probe.deadline)
        ),
    );
    if probe.hedge {
        ron_core::sometimes!("dht.hedged");
        node.metrics.inc(|hot| &hot.hedge_spawned);
        node.env
            .probe("dht.hedge", probe.to.id.short(), format_args!(""));
    }
}

fn conclude(
    node: &Node,
    number: u64,
    goal: Goal,
    finished: Finished,
    explain: bool,
) -> Result<Found, DhtError> {
    let counts = finished.counts;
    for loser in finished.losers.iter().filter(|loser| loser.overdue) {
        // Its timeout will never come: its bucket finds out whether it lives.
        if node.table.get(&loser.to.id).is_some_and(|e| !e.is_dead()) {
            node.routes.tell(&loser.to.id, Route::Doubt(loser.to));
        }
    }
    let metrics = &node.metrics;
    metrics.add(|hot| &hot.lookup_requests, counts.requests.into());
    metrics.add(|hot| &hot.lookup_rounds, finished.rounds.into());
    metrics.add(|hot| &hot.lookup_ms, finished.explanation.took_ms.into());
    metrics.add(|hot| &hot.hedge_canceled, counts.hedges_canceled.into());
    metrics.add(|hot| &hot.probe_canceled, finished.losers.len() as u64);
    if counts.retries > 0 {
        metrics.count_many(
            Family::BackoffRetries,
            op(goal).name(),
            counts.retries.into(),
        );
    }
    let word = outcome_word(&finished.outcome);
    metrics.count(Family::Lookups, word);
    metrics.count(Family::LookupHops, hops_word(finished.depth.into()));
    let took_ms = finished.explanation.took_ms;
    node.env.probe("dht.lookup_done", number, format_args!(
        "{} {} {word} hops={} rounds={} requests={} hedges={} hedges_canceled={} losers={} took_ms={took_ms} closest={}",
        goal_name(goal), finished.explanation.target, finished.depth, finished.rounds, counts.requests,
        counts.hedges, counts.hedges_canceled, finished.losers.len(), finished.closest.len(),
    ));
    node.events.tell(|| Event::LookupDone {
        lookup: number,
        target: finished.explanation.target.to_string(),
        outcome: word,
        hops: finished.depth.into(),
        requests: counts.requests.into(),
        took_ms: took_ms.into(),
    });
    if explain {
        node.courses.keep(Course {
            lookup: number,
            goal: goal_name(goal),
            outcome: word,
            hops: finished.depth,
            rounds: finished.rounds,
            counts,
            explanation: finished.explanation,
        });
    }
    let outcome = match finished.outcome {
        Ok(outcome) => outcome,
        // Alone in the world: nobody else can know.
        Err(LookupError::NoPeers) => match goal {
            Goal::Closest => Outcome::Closest,
            _ => Outcome::NotFound,
        },
        Err(LookupError::Unreachable | LookupError::Deadline) => {
            return Err(DhtError::Timeout("lookup"));
        }
        Err(LookupError::HopExceeded) => {
            return Err(DhtError::CutShort("the hop budget was spent"));
        }
        Err(LookupError::TooManyRequests) => return Err(DhtError::CutShort("too many were asked")),
    };
    Ok(Found {
        lookup: number,
        outcome,
        closest: finished.closest,
        hops: finished.depth,
    })
}

fn outcome_word(outcome: &Result<Outcome, LookupError>) -> &'static str {
    match outcome {
        Ok(Outcome::Closest) => "closest",
        Ok(Outcome::Value { .. } | Outcome::Providers(_)) => "found",
        Ok(Outcome::NotFound) => "not_found",
        Err(LookupError::NoPeers) => "no_peers",
        Err(LookupError::Unreachable) => "unreachable",
        Err(LookupError::Deadline) => "timeout",
        Err(LookupError::HopExceeded) => "hop_exceeded",
        Err(LookupError::TooManyRequests) => "too_many_requests",
    }
}

fn left_ms(node: &Node, deadline: Instant) -> u128 {
    deadline
        .saturating_duration_since(node.env.now())
        .as_millis()
}
