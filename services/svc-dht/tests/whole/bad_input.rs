//! Everything that peers and callers send wrong, as one table: what they hear, what becomes of their stream, which counter
//! moves.
//!
//! After each case: that counter went up by one and no other did, somebody else's stream still answers, nobody's but
//! the sender's was closed, no record was taken and no file touched. `cargo test -p svc-dht --test whole bad_input --
//! --nocapture` prints the table.

use std::collections::BTreeMap;

use bytes::BytesMut;
use svc_dht::{
    contact::Contact,
    id::Id,
    identity::NetworkId,
    record::Record,
    wire::{
        envelope::encode_response,
        handshake::{Dialler, HandshakeError},
        message::{Op, Request, Response},
    },
};
use tokio::io::AsyncWriteExt;

use crate::{
    clockwork::{World, in_world},
    node::{Node, addr, identity},
    stranger::{Stranger, framed, network, request_frame},
};

const HOUR: u64 = 3_600_000;
const NOW: u64 = 1_700_000_000_000;
/// The sender of everything wrong, and somebody who has nothing to do with it.
const SENDER: u8 = 9;
const BYSTANDER: u8 = 20;
/// One peer's requests in a second.
const SHARE: usize = 10;

struct Case {
    what: &'static str,
    does: Does,
    hears: &'static str,
    /// The one counter that moves, if one does.
    counted: &'static str,
}

/// What is done by a peer on a stream of its own, or by a caller of the API.
enum Does {
    /// Its first frame.
    Opens(Vec<u8>),
    /// A proof that is not its own.
    Proves,
    /// Bytes after the handshake.
    Sends(Vec<u8>),
    /// And then the end of the stream.
    Cuts(Vec<u8>),
    /// A request before the proof.
    AsksAtOnce(Request),
    /// So often; the last answer counts.
    Asks(usize, Request),
    Http(&'static str, String, Vec<u8>),
}

use Does::{Asks, AsksAtOnce, Cuts, Http, Opens, Proves, Sends};

fn case(what: &'static str, does: Does, hears: &'static str, counted: &'static str) -> Case {
    Case {
        what,
        does,
        hears,
        counted,
    }
}

#[rustfmt::skip]
fn frames() -> Vec<Case> {
    let ping = request_frame(1, &Request::Ping);
    // Length 4, array 1, network 17, version 1, operation 1, corr_id 1, flags 1.
    let with = |at: usize, byte: u8| { let mut bytes = ping.clone(); bytes[at] = byte; bytes };
    let mut long_number = with(24, 0x18);
    long_number.insert(25, 1);
    long_number[3] += 1;
    let mut trailing = ping.clone();
    trailing.push(0);
    trailing[3] += 1;
    let mut unasked = BytesMut::new();
    encode_response(&mut unasked, network(), 0, Op::Ping, &Response::Pong).unwrap();
    let hello = |network| framed(&Dialler::new(&identity(SENDER), network, 0, [1; 32]).1);
    let mut other_version = hello(network());
    other_version[6] = 2;
    let own = framed(&Dialler::new(&identity(1), network(), 0, [1; 32]).1);
    let (frame, shake) = ("frames_rejected_total", "handshakes_rejected_total");
    let counted = |family: &str, code: &str| -> &'static str { format!("{family}{{code=\"{code}\"}}").leak() };
    vec![
        case("empty frame", Sends(vec![0; 4]), "closed", counted(frame, "empty")),
        case("frame of 1 MiB + 1", Sends(vec![0, 0x10, 0, 1]), "closed", counted(frame, "too_long")),
        case("frame of 4 GiB", Sends(vec![0xff; 4]), "closed", counted(frame, "too_long")),
        case("frame cut off", Cuts(ping[..ping.len() - 1].to_vec()), "closed", counted(frame, "truncated")),
        case("length cut off", Cuts(vec![0, 0]), "closed", counted(frame, "truncated")),
        case("garbage for CBOR", Sends(framed(b"\xff\xfe garbage")), "closed", counted(frame, "malformed")),
        case("bytes after the end", Sends(trailing), "closed", counted(frame, "malformed")),
        case("number in a longer form", Sends(long_number), "closed", counted(frame, "not_deterministic")),
        case("message of another network", Sends(with(8, !ping[8])), "closed", counted(frame, "wrong_network")),
        case("message of another version", Sends(with(22, 2)), "closed", counted(frame, "wrong_version")),
        case("unknown operation", Sends(with(23, 23)), "closed", counted(frame, "unknown_op")),
        case("flags without sense", Sends(with(25, 7)), "closed", counted(frame, "bad_flags")),
        case("answer that nobody asked for", Sends(unasked.to_vec()), "closed", counted(frame, "unasked")),
        case("garbage for a hello", Opens(framed(b"\x01\x02\x03\x04")), "closed", counted(shake, "malformed")),
        case("empty first frame", Opens(vec![0; 4]), "closed", counted(frame, "empty")),
        case("hello of another network", Opens(hello(NetworkId::of_name("other"))), "rejected_wrong_network, closed", counted(shake, "wrong_network")),
        case("hello of another version", Opens(other_version), "rejected_wrong_version, closed", counted(shake, "wrong_version")),
        case("hello of the node itself", Opens(own), "rejected_self_dial, closed", counted(shake, "self_dial")),
        case("bad signature in the handshake", Proves, "closed", counted(shake, "bad_proof")),
    ]
}

#[rustfmt::skip]
fn records() -> Vec<Case> {
    let me = identity(SENDER);
    let value = |name: &[u8], value: &[u8], created_ms, ttl_ms| Record::sign_value(&me, name, value, 1, created_ms, ttl_ms);
    let mut forged = value(b"forged", b"1", NOW, HOUR);
    forged.signature[7] ^= 1;
    let mut moved = value(b"moved", b"1", NOW, HOUR);
    moved.key = Id([1; 32]);
    let other = Contact { id: identity(3).id(), addr: addr(3).into() };
    let store = |record| Asks(1, Request::Store { record });
    let provide = |record| Asks(1, Request::Provide { record });
    let counted = |code: &str| -> &'static str { format!("records_rejected_total{{code=\"{code}\"}}").leak() };
    vec![
        case("bad signature of a record", store(forged), "bad_signature", counted("bad_signature")),
        case("value at another's key", store(moved), "bad_request", counted("wrong_key")),
        case("value of 16 KiB + 1", store(value(b"big", &[0; 16 * 1024 + 1], NOW, HOUR)), "too_large", counted("too_large")),
        case("name of 256 bytes", store(value(&[b'n'; 256], b"1", NOW, HOUR)), "too_large", counted("too_large")),
        case("expired record", store(value(b"old", b"1", NOW - 3 * HOUR, HOUR)), "expired", counted("expired")),
        case("record of the future", store(value(b"new", b"1", NOW + 10 * HOUR, HOUR)), "expired", counted("early")),
        case("time to live of 100 days", store(value(b"long", b"1", NOW, 2400 * HOUR)), "bad_request", counted("bad_ttl")),
        case("provider that is not its publisher", provide(Record::sign_provider(&me, Id([5; 32]), &other, 1, NOW, HOUR)), "bad_request", counted("wrong_provider")),
        case("older sequence than is held", store(Record::sign_value(&identity(7), b"held", b"0", 4, NOW, HOUR)), "stale", counted("stale")),
        case("one more than a publisher's quota", store(Record::sign_value(&identity(8), b"third", b"1", 1, NOW, HOUR)), "quota", counted("quota")),
        case("one more provider than a key's quota", provide(provider(SENDER, KEY)), "quota", counted("quota")),
        case("write before the proof", AsksAtOnce(Request::Store { record: value(b"soon", b"1", NOW, HOUR) }), "not_verified", counted("not_verified")),
        case("one request more than a peer's share", Asks(SHARE + 1, Request::Ping), "busy", "quota_reject_total{kind=\"peer_requests\"}"),
        case("unknown key of a value", Asks(1, Request::FindValue { key: Id([4; 32]) }), "no value", ""),
        case("unknown key of providers", Asks(1, Request::GetProviders { key: Id([4; 32]) }), "no providers", ""),
    ]
}

#[rustfmt::skip]
fn calls() -> Vec<Case> {
    let key = Id([4; 32]);
    let get = |path: &str| Http("GET", format!("/v1/dht/{path}"), Vec::new());
    let put = |path: &str, body: Vec<u8>| Http("PUT", format!("/v1/dht/values/{path}"), body);
    let post = |body: &[u8]| Http("POST", format!("/v1/dht/providers/{key}"), body.to_vec());
    let counted = |code: &str, route: &str| -> &'static str {
        let route = if route.is_empty() { String::new() } else { format!("/v1/dht/{route}") };
        format!("dht_refused_total{{code=\"{code}\",route=\"{route}\"}}").leak()
    };
    let (value, values, providers) = ("values/{key}", "values", "providers/{key}");
    vec![
        case("GET of an unknown key", get(&format!("values/{key}")), "404 key_not_found", counted("key_not_found", value)),
        case("GET of a malformed key", get("values/short"), "400 invalid_path", counted("invalid_path", value)),
        case("GET without a name", get("values"), "400 invalid_query", counted("invalid_query", values)),
        case("GET with a malformed publisher", get("values?name=a&publisher=zz"), "400 invalid_query", counted("invalid_query", values)),
        case("GET with an unknown parameter", get("values?name=a&surplus=1"), "400 invalid_query", counted("invalid_query", values)),
        case("GET providers of a malformed key", get("providers/xyz"), "400 invalid_path", counted("invalid_path", providers)),
        case("GET closest to a malformed key", get("closest/xyz"), "400 invalid_path", counted("invalid_path", "closest/{key}")),
        case("GET a malformed lookup", get("lookups/abc"), "400 invalid_path", counted("invalid_path", "lookups/{id}")),
        case("GET an unknown lookup", get("lookups/99999"), "404 lookup_not_found", counted("lookup_not_found", "lookups/{id}")),
        case("PUT of 16 KiB + 1", put("big", vec![0; 16 * 1024 + 1]), "413 body_too_large", counted("body_too_large", value)),
        case("PUT under a name of 256 bytes", put(&"n".repeat(256), vec![1]), "400 invalid_path", counted("invalid_path", value)),
        case("PUT for no time", put("a?ttl_ms=0", vec![1]), "400 invalid_query", counted("invalid_query", value)),
        case("PUT for years", put("a?ttl_ms=99999999999", vec![1]), "400 invalid_request", counted("invalid_request", value)),
        case("PUT for a word", put("a?ttl_ms=soon", vec![1]), "400 invalid_query", counted("invalid_query", value)),
        case("POST of half a JSON", post(b"{"), "400 json_syntax", counted("json_syntax", providers)),
        case("POST of an unknown field", post(b"{\"x\":1}"), "422 unknown_field", counted("unknown_field", providers)),
        case("GET of no path there is", get("closest/"), "404 not_found", counted("not_found", "")),
        case("DELETE where there is none", Http("DELETE", "/v1/dht/routing".into(), Vec::new()), "405 method_not_allowed", counted("method_not_allowed", "routing")),
    ]
}

const KEY: Id = Id([6; 32]);

fn provider(n: u8, key: Id) -> Record {
    let me = identity(n);
    let addr = addr(n).into();
    let contact = Contact { id: me.id(), addr };
    Record::sign_provider(&me, key, &contact, 1, NOW, HOUR)
}

// proves: DHT-7.1, DHT-7.2, DHT-7.3, DHT-1.10
#[test]
fn whatever_is_sent_wrong_has_its_code_and_its_counter_and_hurts_nobody_else() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |config| {
            config.records.per_publisher = 2;
            config.records.providers_per_key = 1;
            config.limits.rps = 4 * SHARE as u32;
        });
        let node = node.await;
        node.until_ready().await;
        let mut bystander = Stranger::proven(&world, BYSTANDER).await;
        for record in [
            Record::sign_value(&identity(7), b"held", b"1", 5, NOW, HOUR),
            Record::sign_value(&identity(8), b"first", b"1", 1, NOW, HOUR),
            Record::sign_value(&identity(8), b"second", b"1", 1, NOW, HOUR),
        ] {
            let stored = bystander.ask(0, &Request::Store { record }).await;
            assert_eq!(stored, Response::Stored);
        }
        let record = provider(7, KEY);
        let stored = bystander.ask(0, &Request::Provide { record }).await;
        assert_eq!(stored, Response::Stored);
        println!("{:38} {:32} counted in", "what", "who sent it hears");
        for (n, case) in [frames(), records(), calls()]
            .into_iter()
            .flatten()
            .enumerate()
        {
            // A share is full again.
            world.pass(1_000).await;
            let (before, files) = (counts(&node).await, node.machine.jobs("disk"));
            let heard = hear(&world, &node, case.does).await;
            world.pass(100).await;
            let moved = moved(&before, &counts(&node).await);
            println!("{:38} {heard:32} {}", case.what, moved.join(", "));
            assert_eq!(heard, case.hears, "{}", case.what);
            let wanted = if case.counted.is_empty() {
                vec![]
            } else {
                vec![case.counted]
            };
            assert_eq!(moved, wanted, "{}", case.what);
            assert_eq!(node.machine.jobs("disk"), files, "{}", case.what);
            let pong = bystander.ask(n as u64, &Request::Ping).await;
            assert_eq!(pong, Response::Pong, "{}", case.what);
            assert_eq!(node.peers().open(), (0, 1), "{}", case.what);
        }
    });
}

/// Does it, and tells what came back; a stream that stays open must still answer.
async fn hear(world: &World, node: &Node, does: Does) -> String {
    let mut sender = match &does {
        Http(method, path, body) => {
            let answer = node.http(method, path, body).await;
            let kind = answer.header("content-type");
            assert_eq!(kind, Some("application/problem+json"), "{path}");
            assert_eq!(answer.json["retryable"], false, "{path}");
            return format!("{} {}", answer.status, answer.code());
        }
        Opens(_) | Proves | AsksAtOnce(_) => Stranger::connect(world, SENDER).await,
        Sends(_) | Cuts(_) | Asks(..) => Stranger::proven(world, SENDER).await,
    };
    match does {
        Opens(bytes) | Sends(bytes) => sender.send(&bytes).await,
        Cuts(bytes) => {
            sender.send(&bytes).await;
            sender.stream.shutdown().await.unwrap();
        }
        Proves => {
            let mut proof = sender.proof().await;
            *proof.last_mut().unwrap() ^= 1;
            sender.send(&framed(&proof)).await;
        }
        AsksAtOnce(request) => {
            sender.proof().await;
            return told(&sender.ask(1, &request).await);
        }
        Asks(times, request) => {
            let mut last = String::new();
            for n in 0..times {
                last = told(&sender.ask(n as u64, &request).await);
            }
            world.pass(1_000).await;
            assert_eq!(sender.ask(99, &Request::Ping).await, Response::Pong);
            return last;
        }
        Http(..) => {}
    }
    let Some(frame) = sender.frame().await else {
        return "closed".to_owned();
    };
    let said = Stranger::hello(SENDER).0.handle_welcome(&frame, None);
    let Err(HandshakeError::Rejected(code)) = said else {
        panic!("{said:?}");
    };
    assert_eq!(sender.frame().await, None, "a rejected stream is closed");
    format!("{}, closed", code.name())
}

fn told(response: &Response) -> String {
    match response {
        Response::Refused(refusal) => refusal.code.name().to_owned(),
        Response::Value { value: None, .. } => "no value".to_owned(),
        Response::Providers { providers, .. } if providers.is_empty() => "no providers".to_owned(),
        other => format!("{other:?}"),
    }
}

/// What honest traffic moves as well.
const ORDINARY: [&str; 8] = [
    "connections_accepted_total",
    "requests_answered_total",
    "lookups_total",
    "lookup_hops_total",
    "lookup_ms_total",
    "lookup_requests_total",
    "lookup_rounds_total",
    "tasks_spawned_total",
];

/// Every counter that tells of something wrong, and how much is held.
async fn counts(node: &Node) -> BTreeMap<String, f64> {
    let text = String::from_utf8(node.get("/metrics").await.body).unwrap();
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        let held = name == "records" || name == "record_bytes";
        let counts = held || name.ends_with("_total") && !ORDINARY.contains(&name);
        counts.then(|| Some((series.to_owned(), value.parse().ok()?)))?
    });
    series.collect()
}

/// Those that went up by one; by anything else they are told with it.
fn moved(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<String> {
    let by = |series: &String, value: &f64| value - before.get(series).copied().unwrap_or(0.0);
    let moved = after
        .iter()
        .filter(|(series, value)| by(series, value) != 0.0);
    moved
        .map(|(series, value)| match by(series, value) {
            1.0 => series.clone(),
            other => format!("{series} +{other}"),
        })
        .collect()
}
