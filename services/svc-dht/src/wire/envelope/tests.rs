//! Every message survives the wire, and nothing else than its one encoding does.

use std::net::{IpAddr, SocketAddr};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    contact::Contact,
    id::Id,
    record::{Record, RecordKind},
    wire::{
        frame::{FrameReader, MAX_FRAME_BYTES, PREFIX_LEN},
        message::{Refusal, RefusalCode},
        payload::{MAX_CONTACTS, MAX_RECORDS},
    },
};

const NET: NetworkId = NetworkId([5; 16]);

/// The frame of a message, without its length.
fn encode(message: &Message) -> Result<Vec<u8>, WireError> {
    let mut out = BytesMut::new();
    match message {
        Message::Request {
            corr_id,
            deadline_ms,
            hedge,
            request,
        } => {
            encode_request(&mut out, NET, *corr_id, *deadline_ms, *hedge, request)?;
        }
        Message::Response {
            corr_id,
            op,
            response,
        } => {
            encode_response(&mut out, NET, *corr_id, *op, response)?;
        }
    }
    Ok(out[PREFIX_LEN..].to_vec())
}

fn ping() -> Message {
    Message::Request {
        corr_id: 7,
        deadline_ms: 1500,
        hedge: false,
        request: Request::Ping,
    }
}

fn ids() -> impl Strategy<Value = Id> {
    any::<[u8; 32]>().prop_map(Id)
}

/// Numbers of every length on the wire.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..30_u64, 0..70_000_u64, any::<u64>()]
}

fn contacts() -> impl Strategy<Value = Vec<Contact>> {
    let contact = (ids(), any::<IpAddr>(), any::<u16>()).prop_map(|(id, ip, port)| Contact {
        id,
        addr: SocketAddr::new(ip, port).into(),
    });
    vec(contact, 0..=MAX_CONTACTS)
}

fn records() -> impl Strategy<Value = Record> {
    let kinds = prop_oneof![Just(RecordKind::Value), Just(RecordKind::Provider)];
    let numbers = (numbers(), numbers(), numbers());
    let rest = (
        any::<[u8; 32]>(),
        vec(any::<u8>(), 0..400),
        vec(any::<u8>(), 64),
    );
    (kinds, ids(), numbers, rest).prop_map(
        |(kind, key, (seq, created_ms, ttl_ms), (publisher, body, signature))| Record {
            kind,
            key,
            publisher,
            seq,
            created_ms,
            ttl_ms,
            body,
            signature: signature.try_into().unwrap(),
        },
    )
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Ping),
        ids().prop_map(|target| Request::FindNode { target }),
        ids().prop_map(|key| Request::FindValue { key }),
        ids().prop_map(|key| Request::GetProviders { key }),
        records().prop_map(|record| Request::Provide { record }),
        records().prop_map(|record| Request::Store { record }),
    ]
}

fn responses() -> impl Strategy<Value = (Op, Response)> {
    let ops = proptest::sample::select(Op::ALL.to_vec());
    let codes = proptest::sample::select(RefusalCode::ALL.to_vec());
    let refused = (ops, codes, any::<u32>()).prop_map(|(op, code, retry_after_ms)| {
        (
            op,
            Response::Refused(Refusal {
                code,
                retry_after_ms,
            }),
        )
    });
    let value = (proptest::option::of(records()), contacts())
        .prop_map(|(value, closer)| (value.map(Box::new), closer));
    prop_oneof![
        Just((Op::Ping, Response::Pong)),
        Just((Op::Store, Response::Stored)),
        Just((Op::Provide, Response::Stored)),
        contacts().prop_map(|closer| (Op::FindNode, Response::Nodes { closer })),
        value.prop_map(|(value, closer)| (Op::FindValue, Response::Value { value, closer })),
        (vec(records(), 0..5), contacts()).prop_map(|(providers, closer)| {
            (Op::GetProviders, Response::Providers { providers, closer })
        }),
        refused,
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let asked = (numbers(), any::<u32>(), any::<bool>(), requests());
    prop_oneof![
        asked.prop_map(|(corr_id, deadline_ms, hedge, request)| Message::Request {
            corr_id,
            deadline_ms,
            hedge,
            request,
        }),
        (numbers(), responses()).prop_map(|(corr_id, (op, response))| Message::Response {
            corr_id,
            op,
            response,
        }),
    ]
}

/// Any CBOR that the wire uses, as another library reads it; the payload is looked into.
#[derive(Clone, Debug)]
enum Item {
    Uint(u64),
    Bytes(Vec<u8>),
    Array(Vec<Item>),
    Wrapped(Box<Item>),
}

/// How to write one item otherwise than it must be.
#[derive(Clone, Copy, Debug)]
enum Bend {
    LongerHead,
    Indefinite,
    OneMore,
}

impl Item {
    fn read(decoder: &mut minicbor::Decoder<'_>) -> Item {
        use minicbor::data::Type;
        match decoder.datatype().unwrap() {
            Type::Bytes => Item::Bytes(decoder.bytes().unwrap().to_vec()),
            Type::Array => {
                let len = decoder.array().unwrap().unwrap();
                Item::Array((0..len).map(|_| Item::read(decoder)).collect())
            }
            _ => Item::Uint(decoder.u64().unwrap()),
        }
    }

    fn of_frame(frame: &[u8]) -> Item {
        let mut whole = Item::read(&mut minicbor::Decoder::new(frame));
        if let Item::Array(items) = &mut whole
            && let Some(Item::Bytes(payload)) = items.last()
        {
            let payload = Item::read(&mut minicbor::Decoder::new(payload));
            *items.last_mut().unwrap() = Item::Wrapped(Box::new(payload));
        }
        whole
    }

    fn count(&self) -> usize {
        1 + match self {
            Item::Uint(_) | Item::Bytes(_) => 0,
            Item::Array(items) => items.iter().map(Item::count).sum(),
            Item::Wrapped(inner) => inner.count(),
        }
    }

    /// Writes it, with the item number `at` bent, counting from the outermost.
    fn write(&self, out: &mut Vec<u8>, at: &mut usize, bend: Bend) {
        let bent = *at == 0;
        *at = at.wrapping_sub(1);
        let (major, len, content) = match self {
            Item::Uint(value) => (0, *value, Vec::new()),
            Item::Bytes(bytes) => (2, bytes.len() as u64, bytes.clone()),
            Item::Array(items) => {
                let mut content = Vec::new();
                items
                    .iter()
                    .for_each(|item| item.write(&mut content, at, bend));
                (4, items.len() as u64, content)
            }
            Item::Wrapped(inner) => {
                let mut content = Vec::new();
                inner.write(&mut content, at, bend);
                (2, content.len() as u64, content)
            }
        };
        match (bent.then_some(bend), major) {
            (Some(Bend::Indefinite), 2) => {
                out.push(0x5f);
                put_bytes(out, &content);
                out.push(0xff);
            }
            (Some(Bend::Indefinite), 4) => {
                out.push(0x9f);
                out.extend(content);
                out.push(0xff);
            }
            // A number has no indefinite form, nor anything to put more into.
            (Some(Bend::LongerHead | Bend::Indefinite), _) | (Some(Bend::OneMore), 0) => {
                put_longer_head(out, major, len);
                out.extend(content);
            }
            (Some(Bend::OneMore), _) => {
                put_longer_or_not(out, major, len + 1);
                out.extend(content);
                out.push(0);
            }
            (None, _) => {
                put_longer_or_not(out, major, len);
                out.extend(content);
            }
        }
    }
}

fn put_longer_or_not(out: &mut Vec<u8>, major: u8, len: u64) {
    let start = out.len();
    put_uint(out, len);
    out[start] |= major << 5;
}

/// The next longer form; nine bytes for what has no longer one, which is then no head at all.
fn put_longer_head(out: &mut Vec<u8>, major: u8, len: u64) {
    let (info, width) = match head_len(len as usize) {
        1 => (24, 1),
        2 => (25, 2),
        3 => (26, 4),
        5 => (27, 8),
        _ => (28, 8),
    };
    out.push(major << 5 | info);
    out.extend(&len.to_be_bytes()[8 - width..]);
}

#[test]
fn a_ping_is_26_bytes_on_the_wire() {
    let mut expected = vec![0x87, 0x50];
    expected.extend([5; 16]);
    expected.extend([1, 1, 7, 1, 0x19, 0x05, 0xdc, 0x41, 0x80]);
    assert_eq!(encode(&ping()).unwrap(), expected);
    assert!(is_envelope(&expected));
}

#[test]
fn another_network_version_op_or_flag_has_its_code() {
    let good = encode(&ping()).unwrap();
    assert_eq!(decode(&good, NET), Ok(ping()));
    assert_eq!(
        decode(&good, NetworkId([6; 16])),
        Err(WireError::WrongNetwork)
    );
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes, NET).unwrap_err()
    };
    assert_eq!(with(18, 2), WireError::WrongVersion { found: 2 });
    assert_eq!(with(19, 7), WireError::UnknownOp { found: 7 });
    assert_eq!(with(19, 0), WireError::UnknownOp { found: 0 });
    for flags in [0, 3, 4, 6, 7, 8] {
        assert_eq!(with(21, flags), WireError::BadFlags, "{flags}");
    }
    assert_eq!(
        with(21, 2),
        WireError::BadFlags,
        "an answer has no deadline"
    );
    assert_eq!(with(0, 0x86).code(), "malformed");
    assert_eq!(with(22, 0x1b).code(), "malformed");
}

#[test]
fn an_answer_holds_so_many_contacts_and_records_and_no_more() {
    let contact = Contact {
        id: Id([1; 32]),
        addr: SocketAddr::from(([1, 2, 3, 4], 5)).into(),
    };
    let record = Record {
        kind: RecordKind::Provider,
        key: Id([1; 32]),
        publisher: [2; 32],
        seq: 3,
        created_ms: 4,
        ttl_ms: 5,
        body: vec![6; 50],
        signature: [7; 64],
    };
    for (contacts, records, fits) in [
        (MAX_CONTACTS, MAX_RECORDS, true),
        (MAX_CONTACTS + 1, 0, false),
        (0, MAX_RECORDS + 1, false),
    ] {
        let response = Response::Providers {
            providers: vec![record.clone(); records],
            closer: vec![contact; contacts],
        };
        let message = Message::Response {
            corr_id: 1,
            op: Op::GetProviders,
            response,
        };
        match encode(&message) {
            Ok(frame) => {
                assert!(fits);
                assert_eq!(decode(&frame, NET), Ok(message));
            }
            Err(error) => {
                assert!(!fits);
                assert_eq!(error, WireError::TooMany);
            }
        }
    }
    // Said by somebody who counts otherwise: [0, 65 contacts], the first of which is not even there.
    let mut frame = BytesMut::new();
    let envelope = Envelope {
        network: NET,
        op: Op::FindNode,
        corr_id: 1,
        flags: Flags::Response,
        deadline_ms: 0,
        payload: &[],
    };
    let many = |out: &mut BytesMut| {
        out.extend_from_slice(&[0x82, 0, 0x98, 65]);
        out.extend_from_slice(&[0; 65]);
        Ok(())
    };
    put_envelope(&mut frame, &envelope, many).unwrap();
    assert_eq!(decode(&frame, NET), Err(WireError::TooMany));
}

#[test]
fn an_answer_to_another_operation_is_not_written() {
    let mut out = BytesMut::from(&b"before"[..]);
    let refused = encode_response(&mut out, NET, 1, Op::FindNode, &Response::Pong);
    assert_eq!(refused, Err(WireError::WrongAnswer));
    assert_eq!(&out[..], b"before");
}

#[test]
fn a_message_too_long_for_a_frame_is_not_written() {
    let record = Record {
        kind: RecordKind::Value,
        key: Id([1; 32]),
        publisher: [2; 32],
        seq: 3,
        created_ms: 4,
        ttl_ms: 5,
        body: vec![6; MAX_FRAME_BYTES],
        signature: [7; 64],
    };
    let mut out = BytesMut::new();
    let refused = encode_request(&mut out, NET, 1, 1, false, &Request::Store { record });
    assert_eq!(refused.unwrap_err().code(), "too_long");
    assert!(out.is_empty());
}

#[test]
fn a_payload_of_any_length_gets_its_shortest_head() {
    for body in [0, 1, 23, 24, 200, 255, 256, 65_000, 65_535, 65_536, 70_000] {
        let record = Record {
            kind: RecordKind::Value,
            key: Id([1; 32]),
            publisher: [2; 32],
            seq: 3,
            created_ms: 4,
            ttl_ms: 5,
            body: vec![6; body],
            signature: [7; 64],
        };
        let request = Request::Store { record };
        let message = Message::Request {
            corr_id: 1,
            deadline_ms: 1,
            hedge: true,
            request,
        };
        assert_eq!(
            decode(&encode(&message).unwrap(), NET),
            Ok(message),
            "{body}"
        );
    }
}

proptest! {
    #[test]
    fn every_message_is_read_as_it_was_written(message in messages()) {
        let frame = encode(&message).unwrap();
        prop_assert!(is_envelope(&frame));
        prop_assert_eq!(decode(&frame, NET), Ok(message));
    }

    #[test]
    fn every_other_way_to_write_a_message_is_refused(message in messages(), at: Index, bend in 0..3_usize) {
        let frame = encode(&message).unwrap();
        let item = Item::of_frame(&frame);
        let mut straight = Vec::new();
        item.write(&mut straight, &mut usize::MAX.clone(), Bend::OneMore);
        prop_assert_eq!(&straight, &frame, "written by its parts it is the same");

        let bend = [Bend::LongerHead, Bend::Indefinite, Bend::OneMore][bend];
        let mut bent = Vec::new();
        item.write(&mut bent, &mut at.index(item.count()), bend);
        prop_assert_ne!(&bent, &frame);
        // One more byte in a body is another record, not another way to write this one.
        if let Ok(other) = decode(&bent, NET) {
            prop_assert!(matches!(bend, Bend::OneMore));
            prop_assert_ne!(&other, &message);
            prop_assert_eq!(encode(&other).unwrap(), bent);
        }
    }

    #[test]
    fn what_is_accepted_is_what_would_have_been_written(
        message in messages(), at: Index, byte: u8, from: Index, to: Index,
    ) {
        let mut bytes = encode(&message).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        let mut swapped = bytes.clone();
        swapped.swap(from, to);
        for bytes in [bytes, swapped] {
            if let Ok(other) = decode(&bytes, NET) {
                prop_assert_eq!(encode(&other).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_cut_message_or_one_with_more_behind_it_is_refused(message in messages(), cut: Index, more: u8) {
        let mut frame = encode(&message).unwrap();
        prop_assert!(decode(&frame[..cut.index(frame.len())], NET).is_err());
        frame.push(more);
        prop_assert_eq!(decode(&frame, NET), Err(CborError::Trailing.into()));
    }

    #[test]
    fn garbage_is_refused_or_is_a_message(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(message) = decode(&bytes, NET) {
            prop_assert_eq!(encode(&message).unwrap(), bytes);
        }
    }

    // proves: DHT-1.10, DHT-7.3
    #[test]
    fn messages_written_one_behind_another_are_read_one_by_one(
        sent in vec(messages(), 0..4), piece in 1..2000_usize,
    ) {
        let mut stream = BytesMut::new();
        for message in &sent {
            match message {
                Message::Request { corr_id, deadline_ms, hedge, request } =>
                    encode_request(&mut stream, NET, *corr_id, *deadline_ms, *hedge, request).unwrap(),
                Message::Response { corr_id, op, response } =>
                    encode_response(&mut stream, NET, *corr_id, *op, response).unwrap(),
            }
        }
        let (mut reader, mut read) = (FrameReader::new(MAX_FRAME_BYTES), Vec::new());
        for piece in stream.chunks(piece) {
            reader.push(piece);
            while let Some(frame) = reader.next().unwrap() {
                read.push(decode(&frame, NET).unwrap());
            }
        }
        prop_assert_eq!(read, sent);
        prop_assert_eq!(reader.end(), Ok(()));
    }
}
