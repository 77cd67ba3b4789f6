//! What a request over a warm connection costs in CPU time, beside a bare loop that sends frames of the same size
//! over the same sockets; and whether a signature is worth a trip to the CPU pool.
//!
//! `cargo run --release -p svc-dht --example link_cost -- 2`, with the number of worker threads, 1 if there is none.
#![allow(
    clippy::disallowed_methods,
    reason = "it measures, so it looks at the machine itself"
)]

use std::{fs, sync::Arc, time::Duration};

use ron_core::{
    Env, Shutdown,
    seam::{Conn, Pool},
};
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    contact::Contact,
    id::Id,
    identity::{Identity, NetworkId},
    link::{
        answer::{Answer, PeerInfo, ReplyHandle},
        error::RpcError,
        rules::LinkRules,
    },
    listener,
    peers::Peers,
    wire::message::{RefusalCode, Request, Response},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ROUNDS: u64 = 20_000;
const RUNS: usize = 5;

fn main() {
    println!(
        "task of a connection: {} bytes",
        svc_dht::connection::TASK_BYTES
    );
    let workers = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let workers = workers.unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("a runtime");
    let options = TokioOptions {
        data: Data::Memory {
            limit_bytes: 1 << 20,
        },
        extra_ca_pem: None,
    };
    let seam = TokioRuntime::new(runtime.handle().clone(), &options).expect("a seam");
    let env = Env::new(seam);
    runtime.block_on(async {
        env.spawn("measure", measure(env.clone(), workers))
            .await
            .expect("it ends");
    });
}

async fn measure(env: Env, workers: usize) {
    let closer: Vec<Contact> = (0..20).map(contact).collect();
    let (asker, _) = node(&env, 1, Vec::new()).await;
    let (answerer, at) = node(&env, 2, closer).await;
    let find = Request::FindNode {
        target: Id([7; 32]),
    };
    ask(&env, &asker, at, &find).await;
    // The sizes on the wire, from the counters.
    let before = (asker.stats().bytes_out.get(), asker.stats().bytes_in.get());
    ask(&env, &asker, at, &find).await;
    let out = asker.stats().bytes_out.get() - before.0;
    let back = asker.stats().bytes_in.get() - before.1;

    let (mut link, mut bare, mut three, mut bare_three) = (vec![], vec![], vec![], vec![]);
    for _ in 0..RUNS {
        bare.push(bare_loop(&env, out as usize, back as usize, 1).await);
        link.push(warm(&env, &asker, at, &find, 1).await);
        bare_three.push(bare_loop(&env, out as usize, back as usize, 3).await);
        three.push(warm(&env, &asker, at, &find, 3).await);
    }
    println!("{workers} worker threads, {out} bytes out, {back} bytes back, CPU per request:");
    told("  one at a time", &mut link, &mut bare);
    told("  three at a time", &mut three, &mut bare_three);

    let identity = Arc::new(Identity::from_seed(&[1; 32]));
    let sign = move || identity.sign("ron svc-dht measured", &[b"what is signed"]);
    let (mut inline, mut offloaded) = (vec![], vec![]);
    for _ in 0..RUNS {
        let before = cpu_ns();
        for _ in 0..2000 {
            std::hint::black_box(sign());
        }
        inline.push((cpu_ns() - before) / 2000);
        let before = cpu_ns();
        for _ in 0..2000 {
            let sign = sign.clone();
            let signed = env.offload(Pool::CPU, move || {
                std::hint::black_box(sign());
            });
            signed.await.expect("it is done");
        }
        offloaded.push((cpu_ns() - before) / 2000);
    }
    let (inline, offloaded) = (median(&mut inline), median(&mut offloaded));
    println!("  a signature: {inline} ns of CPU here, {offloaded} ns by the CPU pool");
    let mut cold = vec![];
    for _ in 0..RUNS {
        cold.push(cold_dials(&env, at).await);
    }
    println!("  a cold dial, both ends: {} ns of CPU", median(&mut cold));
    asker.shutdown().await;
    answerer.shutdown().await;
}

fn told(what: &str, link: &mut [u64], bare: &mut [u64]) {
    let (link, bare) = (median(link), median(bare));
    let ratio = link as f64 / bare as f64;
    println!("{what}: {link} ns, bare loop {bare} ns, {ratio:.2} times");
}

fn median(of: &mut [u64]) -> u64 {
    of.sort_unstable();
    of[of.len() / 2]
}

async fn warm(env: &Env, asker: &Peers, at: Contact, request: &Request, callers: u64) -> u64 {
    let before = cpu_ns();
    let all = (0..callers).map(|_| {
        let (env, asker, request) = (env.clone(), asker.clone(), request.clone());
        env.clone().spawn("caller", async move {
            for _ in 0..ROUNDS / callers {
                ask(&env, &asker, at, &request).await;
            }
        })
    });
    // All at once, not one after the other.
    let all: Vec<_> = all.collect();
    for caller in all {
        caller.await.expect("it ends");
    }
    (cpu_ns() - before) / ROUNDS
}

async fn ask(env: &Env, asker: &Peers, at: Contact, request: &Request) {
    let deadline = env.now() + Duration::from_millis(1500);
    let answer = asker.request(at, request, false, deadline).await;
    assert!(matches!(answer, Ok(Response::Nodes { .. })), "{answer:?}");
}

async fn cold_dials(env: &Env, at: Contact) -> u64 {
    const DIALS: u64 = 200;
    let before = cpu_ns();
    for _ in 0..DIALS {
        let (peers, _) = node(env, 3, Vec::new()).await;
        let deadline = env.now() + Duration::from_secs(5);
        let answer = peers.request(at, &Request::Ping, false, deadline).await;
        assert_eq!(answer, Ok(Response::Pong));
        peers.shutdown().await;
    }
    (cpu_ns() - before) / DIALS
}

/// Frames of the same size, and nothing else: as many connections as there would be callers.
async fn bare_loop(env: &Env, out: usize, back: usize, callers: u64) -> u64 {
    let listener = env
        .listen("127.0.0.1:0".parse().expect("an address"))
        .await
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let mut pairs = Vec::new();
    for _ in 0..callers {
        let dial = env.connect(addr);
        let (dialled, accepted) = tokio::join!(dial, listener.accept());
        pairs.push((dialled.expect("a stream"), accepted.expect("a stream").0));
    }
    let before = cpu_ns();
    let mut ends = Vec::new();
    for (dialled, accepted) in pairs {
        let rounds = ROUNDS / callers;
        ends.push(env.spawn("asks", exchange(dialled, out, back, rounds, true)));
        ends.push(env.spawn("answers", exchange(accepted, back, out, rounds, false)));
    }
    for end in ends {
        end.await.expect("it ends");
    }
    (cpu_ns() - before) / ROUNDS
}

async fn exchange(mut stream: Conn, out: usize, back: usize, rounds: u64, first: bool) {
    let (sent, mut got) = (vec![1; out], vec![0; back]);
    for _ in 0..rounds {
        if first {
            stream.write_all(&sent).await.expect("it is taken");
        }
        stream.read_exact(&mut got).await.expect("it comes");
        if !first {
            stream.write_all(&sent).await.expect("it is taken");
        }
    }
    let _ = stream.shutdown().await;
}

struct Closest(Vec<Contact>);

impl Answer for Closest {
    fn read(&self, _: &PeerInfo, request: &Request) -> Response {
        match request {
            Request::Ping => Response::Pong,
            _ => Response::Nodes {
                closer: self.0.clone(),
            },
        }
    }
    fn write(&self, _: &PeerInfo, _: Request, reply: ReplyHandle) {
        reply.refuse(RefusalCode::Busy, 0);
    }
    fn proven(&self, _: Contact, _: bool, _: Option<Duration>) {}
    fn failed(&self, _: Contact, _: &RpcError) {}
}

async fn node(env: &Env, n: u8, closer: Vec<Contact>) -> (Peers, Contact) {
    let identity = Arc::new(Identity::from_seed(&[n; 32]));
    let listener = env
        .listen("127.0.0.1:0".parse().expect("an address"))
        .await
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let at = Contact {
        id: identity.id(),
        addr: addr.into(),
    };
    let mut rules = LinkRules::new(NetworkId::of_name("measured"), addr.port());
    rules.limits.requests_per_s = 10_000_000;
    rules.limits.bytes_per_s = u32::MAX;
    let peers = Peers::new(env.clone(), identity, rules, Arc::new(Closest(closer)));
    let accepting = peers.clone();
    if n == 2 {
        drop(env.spawn("listener", async move {
            listener::listen(&accepting, &*listener, &Shutdown::new()).await;
        }));
    }
    (peers, at)
}

fn contact(n: u8) -> Contact {
    Contact {
        id: Id([n; 32]),
        addr: std::net::SocketAddr::from(([10, 0, n, 1], 7000)).into(),
    }
}

/// The CPU time of all threads of this process, as the scheduler counts it.
fn cpu_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let spent = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    spent.sum()
}
