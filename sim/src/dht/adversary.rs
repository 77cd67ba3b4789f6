//! Somebody who speaks the protocol of svc-dht and means no good: many ids at one address, ids ground to lie next to a
//! key, records that are stale or forged, floods, and bytes that are no protocol at all.
//!
//! It uses the service's own wire code for everything but its lies, and it answers `/readyz` like anybody. Always: what it
//! does is drawn from its node's generator, so a run with it repeats.

mod garbage;
mod liar;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use ron_core::{
    Env,
    config::ConfigErrors,
    seam::{BoxFuture, Conn},
    shutdown::Shutdown,
};
use svc_dht::{
    contact::Contact,
    id::Id,
    identity::{Identity, NetworkId},
    link::rules::LinkRules,
    listener,
    peers::Peers,
    record::Record,
    wire::message::{Request, Response},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::liar::{Liar, Lie};
use super::{PORT, calls};
use crate::{
    service::{ProcessContext, SimService, read_config},
    trace::StopReport,
};

pub const NAME: &str = "dht-adversary";

/// Its ids listen from here on, one port each.
const FIRST_PORT: u16 = 7500;
/// Ids tried for each one that is to lie near the key.
const GRIND: usize = 256;
/// Requests of a flood under way at once.
const FLOOD: usize = 64;

ron_core::settings! {
    /// What it does.
    pub struct AdversaryConfig {
        /// `eclipse`, `sybil`, `stale`, `forge`, `garbage`, `store` or `ask`.
        act: String = "eclipse".to_owned(), restart;
        /// Ids that it has, all at its one address.
        ids: usize = 8 => 1..=200, restart;
        /// Nodes that it begins with, as `host:port`.
        victims: Vec<String> = vec![], restart;
        /// Time between two rounds.
        every_ms: u64 = 250 => 1..=60_000, restart;
        network: String = "ron".to_owned(), restart;
    }
}

pub struct Adversary;

impl SimService for Adversary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        read_config::<AdversaryConfig>(config).map(|_| ())
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(run(process))
    }
}

async fn run(process: ProcessContext) -> StopReport {
    let env = process.env.clone();
    let config: AdversaryConfig = read_config(&process.config).expect("checked before the start");
    let gang = Gang::new(&env, config);
    let shutdown = process.shutdown.clone();
    tokio::select! {
        biased;
        () = shutdown.wait() => {}
        () = nods(&env) => {}
        () = gang.act(&shutdown) => {}
    }
    for member in &gang.members {
        member.peers.shutdown().await;
    }
    StopReport {
        allowed: Duration::from_secs(60),
        ..StopReport::default()
    }
}

/// One of its ids.
struct Member {
    identity: Arc<Identity>,
    peers: Peers,
    port: u16,
}

struct Gang {
    env: Env,
    config: AdversaryConfig,
    members: Vec<Member>,
    lie: Arc<Lie>,
}

impl Gang {
    fn new(env: &Env, config: AdversaryConfig) -> Gang {
        let mut seed = [0; 32];
        env.fill_random(&mut seed);
        let near = (config.act == "sybil").then(|| Id::parse(&calls::content_key(0)));
        let identities = identities(&seed, config.ids, near.flatten());
        let lie = Arc::new(Lie::new(env, &config.act));
        let network = NetworkId::of_name(&config.network);
        let members = identities.into_iter().enumerate().map(|(n, identity)| {
            let port = FIRST_PORT + n as u16;
            let identity = Arc::new(identity);
            let rules = LinkRules::new(network, port);
            let liar = Arc::new(Liar(lie.clone()));
            let peers = Peers::new(env.clone(), identity.clone(), rules, liar);
            Member {
                identity,
                peers,
                port,
            }
        });
        Gang {
            env: env.clone(),
            members: members.collect(),
            config,
            lie,
        }
    }

    async fn act(&self, stop: &Shutdown) {
        let listening = self.members.iter().map(|member| async move {
            let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, member.port));
            let Ok(listener) = self.env.listen(addr).await else {
                return;
            };
            if let Ok(addr) = listener.local_addr() {
                self.lie.join(Contact {
                    id: member.identity.id(),
                    addr: addr.into(),
                });
            }
            listener::listen(&member.peers, &*listener, stop).await;
        });
        let (_, ()) = futures_util::future::join(join_all(listening), self.rounds()).await;
    }

    async fn rounds(&self) {
        for round in 0_u64.. {
            self.env
                .sleep(Duration::from_millis(self.config.every_ms))
                .await;
            let victims = self.victims().await;
            match self.config.act.as_str() {
                "garbage" => garbage::throw(&self.env, &victims).await,
                "store" | "ask" => self.flood(&victims, round).await,
                _ => self.mingle(&victims).await,
            }
        }
    }

    /// Those that it was told of, and whoever called it since.
    async fn victims(&self) -> Vec<SocketAddr> {
        let mut victims = Vec::new();
        for victim in &self.config.victims {
            let Some((host, port)) = victim.rsplit_once(':') else {
                continue;
            };
            let port = port.parse().unwrap_or(super::PEER_PORT);
            victims.extend(self.env.resolve(host, port).await.unwrap_or_default());
        }
        victims.extend(self.lie.met().iter().map(|c| c.addr.socket()));
        victims.dedup();
        victims
    }

    /// Every id calls on the victims, learns of more, and hands out what it has kept from others.
    async fn mingle(&self, victims: &[SocketAddr]) {
        let until = self.env.now() + Duration::from_secs(1);
        let mut calls = FuturesUnordered::new();
        for (n, member) in self.members.iter().enumerate() {
            // A few each time, so that it goes on for the whole run.
            for addr in victims.iter().skip(n % 3).step_by(3).take(8) {
                calls.push(async move {
                    let Ok(met) = member.peers.meet(*addr, until).await else {
                        return;
                    };
                    let target = member.identity.id();
                    let asked = Request::FindNode { target };
                    let answer = member.peers.request(met, &asked, false, until).await;
                    if let Ok(Response::Nodes { closer }) = answer {
                        closer.into_iter().for_each(|c| self.lie.meet(c));
                    }
                    for record in self.lie.replays() {
                        let again = Request::Store { record };
                        let _ = member.peers.request(met, &again, false, until).await;
                    }
                });
            }
        }
        while calls.next().await.is_some() {}
        self.env.probe(
            "adversary.mingled",
            self.lie.met().len() as u64,
            format_args!(""),
        );
    }

    /// More than anybody may ask, or more records than anybody may keep.
    async fn flood(&self, victims: &[SocketAddr], round: u64) {
        let until = self.env.now() + Duration::from_secs(1);
        let now_ms = self.env.wall_ms();
        let mut calls = FuturesUnordered::new();
        for (n, member) in self.members.iter().enumerate() {
            let Some(addr) = victims.get(n % victims.len().max(1)) else {
                return;
            };
            for i in 0..FLOOD {
                let request = match self.config.act.as_str() {
                    "ask" => Request::FindNode {
                        target: member.identity.id(),
                    },
                    _ => Request::Store {
                        record: Record::sign_value(
                            &member.identity,
                            format!("flood-{round}-{i}").as_bytes(),
                            &[0; 512],
                            now_ms,
                            now_ms,
                            600_000,
                        ),
                    },
                };
                calls.push(async move {
                    let met = member.peers.meet(*addr, until).await.ok()?;
                    let answer = member.peers.request(met, &request, false, until).await;
                    Some(matches!(answer, Ok(Response::Refused(_)) | Err(_)))
                });
            }
        }
        let (mut refused, mut taken) = (0, 0);
        while let Some(answer) = calls.next().await {
            match answer {
                Some(true) | None => refused += 1,
                Some(false) => taken += 1,
            }
        }
        if refused > 0 {
            let told = "adversary.refused";
            self.env.probe(told, refused, format_args!("{taken} taken"));
        }
    }
}

/// As many as wanted; the nearest of many more, if they are to lie near a key.
fn identities(seed: &[u8; 32], wanted: usize, near: Option<Id>) -> Vec<Identity> {
    let make = |n: usize| {
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(&n.to_be_bytes());
        Identity::from_seed(hasher.finalize().as_bytes())
    };
    let Some(key) = near else {
        return (0..wanted).map(make).collect();
    };
    let mut all: Vec<Identity> = (0..wanted * GRIND).map(make).collect();
    all.sort_by_key(|identity| identity.id().distance(&key));
    all.truncate(wanted);
    all
}

/// Answers every HTTP request with 200: nobody waits for it to be ready.
async fn nods(env: &Env) {
    let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    let Ok(listener) = env.listen(addr).await else {
        return std::future::pending().await;
    };
    let mut open: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok((conn, _)) => open.push(Box::pin(nod(conn))),
                Err(_) => return std::future::pending().await,
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}

async fn nod(mut conn: Conn) {
    const YES: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let mut request = Vec::new();
    let mut buffer = [0; 512];
    while let Ok(n @ 1..) = conn.read(&mut buffer).await {
        request.extend_from_slice(&buffer[..n]);
        while let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") {
            // The bodies that the simulator sends are short and come with their heads.
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let body = head.split("content-length: ").nth(1).and_then(|rest| {
                let digits = rest.split("\r\n").next()?;
                digits.trim().parse::<usize>().ok()
            });
            let whole = end + 4 + body.unwrap_or(0);
            if request.len() < whole {
                break;
            }
            request.drain(..whole);
            if conn.write_all(YES).await.is_err() {
                return;
            }
        }
    }
}
