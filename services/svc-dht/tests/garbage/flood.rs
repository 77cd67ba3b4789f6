//! A flood of garbage against a whole node on real sockets, and what must come of it: nothing.
//!
//! Every frame is wrong in some way. Those that close their stream come once on each connection, last or first; those that are
//! answered with a refusal, or repeat what was asked, come in between. Always checked: the node counted exactly what was
//! sent, by code; it stored nothing; it answers an honest peer; its memory stays where it was once warm.

use std::{collections::BTreeMap, fs, net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use ron_core::{Env, Shutdown, seam::Conn};
use ron_io::{Data, TokioOptions, TokioRuntime};
use svc_dht::{
    config::Config,
    dht::Dht,
    id::Id,
    identity::{Identity, NetworkId},
    limiter::Kind,
    metrics::Family,
    record::Record,
    service::{Options, Service},
    wire::{
        envelope::{Message, decode, encode_request, encode_response},
        frame::{FrameReader, put_bytes_as_frame},
        handshake::Dialler,
        message::{Op, Request, Response},
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Frames of a connection that are answered, before the one that closes it.
const ANSWERED: usize = 48;
/// Connections at once.
const LANES: u64 = 4;
/// Senders, each with a share of the node's limits.
const SENDERS: u64 = 16;
/// Times at which memory is looked at; the first is the end of the warm-up.
const LOOKS: u64 = 10;
/// How much memory may grow after that: what an allocator holds back.
const MOST_GROWTH_KB: u64 = 4 * 1024;

/// What was sent and what was heard.
#[derive(Default)]
struct Tally {
    frames: u64,
    requests: u64,
    /// By what the answer said.
    answers: BTreeMap<&'static str, u64>,
    /// Streams that were closed, by the counter that should tell.
    closed: BTreeMap<(Family, &'static str), u64>,
}

/// A frame that closes its stream, and how it is counted.
struct Last {
    bytes: Vec<u8>,
    counted: (Family, &'static str),
}

/// Sends so many frames and checks all of the above; prints what it sees.
pub async fn run(frames: u64) {
    let (env, dht, addr) = start().await;
    let each = frames / LOOKS;
    let mut sum = Tally::default();
    let mut warm = 0;
    println!(
        "{:>9} {:>9} {:>9} {:>8}",
        "frames", "answers", "closed", "VmRSS KB"
    );
    println!("{:>9} {:>9} {:>9} {:>8}", 0, 0, 0, resident_kb());
    for look in 1..=LOOKS {
        let lanes = (0..LANES).map(|lane| {
            let env = env.clone();
            let lane = async move { flood(&env, addr, lane, each / LANES).await };
            tokio::spawn(lane)
        });
        // All at once, not one after the other.
        let lanes: Vec<_> = lanes.collect();
        for lane in lanes {
            sum.add(lane.await.expect("a lane ends"));
        }
        until_closed(&dht).await;
        let (now, closed) = (resident_kb(), sum.closed.values().sum::<u64>());
        println!("{:>9} {:>9} {closed:>9} {now:>8}", sum.frames, sum.requests);
        if look == 1 {
            warm = now;
        }
        let most = warm + MOST_GROWTH_KB;
        assert!(
            now <= most,
            "{now} KB after {} frames, {warm} KB after the first",
            sum.frames
        );
    }
    assert!(sum.frames >= frames - LOOKS * LANES * ANSWERED as u64);
    check(&dht, &sum);
    let mut honest = connect(&env, addr).await;
    let identity = Identity::from_seed(&[99; 32]);
    greet(&mut honest, &identity).await;
    let pong = ask(&mut honest, &[request(1, &Request::Ping)]).await;
    assert_eq!(pong, [Response::Pong]);
}

async fn start() -> (Env, Dht, SocketAddr) {
    let options = TokioOptions {
        data: Data::Memory {
            limit_bytes: 1 << 24,
        },
        extra_ca_pem: None,
    };
    let runtime = TokioRuntime::new(tokio::runtime::Handle::current(), &options);
    let env = Env::new(runtime.unwrap_or_else(|error| panic!("{error}")));
    let mut config = Config::default();
    config.api.enabled = false;
    let listener = env.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let identity = Identity::from_seed(&[1; 32]);
    let options = Options::new(env.clone(), Arc::new(config), identity, listener, None);
    let service = Service::open(options).await.unwrap();
    let (dht, readiness) = (service.dht(), service.readiness());
    drop(env.spawn("service", service.run(Shutdown::new(), |_| {})));
    while !readiness.is_ready() {
        tokio::task::yield_now().await;
    }
    (env, dht, addr)
}

/// One connection after the other: one in two never gets as far as a handshake.
async fn flood(env: &Env, addr: SocketAddr, lane: u64, frames: u64) -> Tally {
    let mut tally = Tally::default();
    let (firsts, lasts) = (firsts(), lasts());
    let answered = answered(env.wall_ms());
    let mut n = lane;
    while tally.frames < frames {
        n += LANES;
        let first = &firsts[n as usize % firsts.len()];
        let mut stream = connect(env, addr).await;
        stream.write_all(&first.bytes).await.unwrap();
        until_end(&mut stream).await;
        tally.close(first);

        let mut stream = connect(env, addr).await;
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&(n % SENDERS).to_be_bytes());
        greet(&mut stream, &Identity::from_seed(&seed)).await;
        for response in ask(&mut stream, &answered).await {
            tally.requests += 1;
            tally.frames += 1;
            *tally.answers.entry(told(&response)).or_default() += 1;
        }
        let last = &lasts[n as usize % lasts.len()];
        stream.write_all(&last.bytes).await.unwrap();
        if last.counted.1 == "truncated" {
            stream.shutdown().await.unwrap();
        }
        until_end(&mut stream).await;
        tally.close(last);
    }
    tally
}

impl Tally {
    fn close(&mut self, last: &Last) {
        self.frames += 1;
        *self.closed.entry(last.counted).or_default() += 1;
    }

    fn add(&mut self, other: Tally) {
        self.frames += other.frames;
        self.requests += other.requests;
        for (code, count) in other.answers {
            *self.answers.entry(code).or_default() += count;
        }
        for (code, count) in other.closed {
            *self.closed.entry(code).or_default() += count;
        }
    }
}

/// The node counted what was sent, and nothing but that.
fn check(dht: &Dht, sum: &Tally) {
    let (stats, metrics) = (dht.peers().stats(), &dht.node().metrics);
    println!("heard {:?}", sum.answers);
    println!("closed {:?}", sum.closed);
    let closed: u64 = sum.closed.values().sum();
    assert_eq!(sum.frames, sum.requests + closed);
    for ((family, code), count) in &sum.closed {
        let counted = match family {
            Family::FramesRejected => stats.frames_rejected(code),
            _ => stats.handshakes_rejected(code),
        };
        assert_eq!(counted, *count, "{family:?} {code}");
    }
    assert_eq!(stats.requests_in.get(), sum.requests);
    let answers: u64 = sum.answers.values().sum();
    assert_eq!(answers, sum.requests, "each request has its answer");
    let heard = |code| sum.answers.get(code).copied().unwrap_or(0);
    for code in ["bad_signature", "expired", "too_large"] {
        let counted = metrics.counted(Family::RecordsRejected, code);
        assert_eq!(counted, heard(code), "{code}");
    }
    let limited: u64 = Kind::ALL
        .map(|kind| stats.quota_rejected(kind))
        .iter()
        .sum();
    let full = metrics.counted(Family::BusyEndpoint, "store");
    let in_flight = stats.refused_in_flight.get() + stats.refused_outbox.get();
    assert_eq!(limited + full + in_flight, heard("busy"));
    assert_eq!(heard("stored"), 0);
    let node = dht.node();
    assert_eq!(
        node.shelf.all(node.env.wall_ms()).count(),
        0,
        "nothing is stored"
    );
    assert_eq!(node.table.counts().peers, 0, "nobody is known");
}

/// Closed before anybody said who they are.
fn firsts() -> Vec<Last> {
    let me = Identity::from_seed(&[7; 32]);
    let hello = |network| framed(&Dialler::new(&me, NetworkId::of_name(network), 0, [1; 32]).1);
    let mut other_version = hello("ron");
    other_version[6] = 2;
    let last = |bytes, family, code| Last {
        bytes,
        counted: (family, code),
    };
    let (frame, handshake) = (Family::FramesRejected, Family::HandshakesRejected);
    vec![
        last(vec![0; 4], frame, "empty"),
        last(vec![0xff; 4], frame, "too_long"),
        last(framed(b"\x00\x01garbage"), handshake, "malformed"),
        last(hello("other"), handshake, "wrong_network"),
        last(other_version, handshake, "wrong_version"),
        last(request(1, &Request::Ping), handshake, "malformed"),
    ]
}

/// Closed after the handshake.
fn lasts() -> Vec<Last> {
    let ping = request(1, &Request::Ping);
    // Length 4, array 1, network 17, version 1, operation 1, corr_id 1, flags 1.
    let with = |at: usize, byte: u8| {
        let mut bytes = ping.clone();
        bytes[at] = byte;
        bytes
    };
    let mut unasked = BytesMut::new();
    let network = NetworkId::of_name("ron");
    encode_response(&mut unasked, network, 7, Op::Ping, &Response::Pong).unwrap();
    let cases = [
        (with(8, !ping[8]), "wrong_network"),
        (with(22, 2), "wrong_version"),
        (with(23, 23), "unknown_op"),
        (with(25, 7), "bad_flags"),
        (unasked.to_vec(), "unasked"),
        (framed(&[0xff; 300]), "malformed"),
        (vec![0; 4], "empty"),
        (vec![0, 0x10, 0, 1], "too_long"),
        (ping[..9].to_vec(), "truncated"),
    ];
    let cases = cases.into_iter().map(|(bytes, code)| Last {
        bytes,
        counted: (Family::FramesRejected, code),
    });
    cases.collect()
}

/// Frames that a stream survives: the same question again and again under one number, and records that nobody takes.
fn answered(now: u64) -> Vec<Vec<u8>> {
    const HOUR: u64 = 3_600_000;
    let me = Identity::from_seed(&[8; 32]);
    let mut forged = Record::sign_value(&me, b"forged", b"1", 1, now, HOUR);
    forged.signature[3] ^= 1;
    let old = Record::sign_value(&me, b"old", b"1", 1, now - 100 * HOUR, HOUR);
    let big = Record::sign_value(&me, b"big", &[0; 17 * 1024], 1, now, HOUR);
    let stores = [forged, old, big].map(|record| Request::Store { record });
    let mut frames: Vec<Vec<u8>> = stores.iter().map(|store| request(3, store)).collect();
    let find = Request::FindNode {
        target: Id([9; 32]),
    };
    while frames.len() < ANSWERED {
        let again = if frames.len().is_multiple_of(2) {
            &find
        } else {
            &Request::Ping
        };
        frames.push(request(3, again));
    }
    frames
}

fn told(response: &Response) -> &'static str {
    match response {
        Response::Refused(refusal) => refusal.code.name(),
        Response::Stored => "stored",
        _ => "answered",
    }
}

async fn connect(env: &Env, addr: SocketAddr) -> Conn {
    env.connect(addr).await.expect("the node accepts")
}

async fn greet(stream: &mut Conn, me: &Identity) {
    let (dialler, hello) = Dialler::new(me, NetworkId::of_name("ron"), 0, [5; 32]);
    stream.write_all(&framed(&hello)).await.unwrap();
    let welcome = answers(stream, 1).await.remove(0);
    let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
    let (_, proof) = welcomed.check(me).unwrap();
    stream.write_all(&framed(&proof)).await.unwrap();
}

/// Sends them all and waits for as many answers, which may come in any order.
async fn ask(stream: &mut Conn, requests: &[Vec<u8>]) -> Vec<Response> {
    stream.write_all(&requests.concat()).await.unwrap();
    let frames = answers(stream, requests.len()).await;
    let network = NetworkId::of_name("ron");
    let responses = frames.iter().map(|frame| match decode(frame, network) {
        Ok(Message::Response { response, .. }) => response,
        other => panic!("{other:?}"),
    });
    responses.collect()
}

async fn answers(stream: &mut Conn, count: usize) -> Vec<Vec<u8>> {
    let mut reader = FrameReader::new(1 << 20);
    let mut frames = Vec::new();
    while frames.len() < count {
        match reader.next().unwrap() {
            Some(frame) => frames.push(frame.to_vec()),
            None => {
                let mut buf = [0; 8192];
                let read = stream.read(&mut buf).await.unwrap();
                assert!(read > 0, "{} of {count} answers came", frames.len());
                reader.push(&buf[..read]);
            }
        }
    }
    frames
}

/// The node closes it; a reject may come first, and a close with bytes unread is a reset.
async fn until_end(stream: &mut Conn) {
    let mut buf = [0; 256];
    while stream.read(&mut buf).await.is_ok_and(|read| read > 0) {}
}

async fn until_closed(dht: &Dht) {
    while dht.peers().alive() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn framed(content: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    put_bytes_as_frame(&mut out, content).unwrap();
    out.to_vec()
}

fn request(corr_id: u64, request: &Request) -> Vec<u8> {
    let mut out = BytesMut::new();
    let network = NetworkId::of_name("ron");
    encode_request(&mut out, network, corr_id, 1000, false, request).unwrap();
    out.to_vec()
}

fn resident_kb() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
