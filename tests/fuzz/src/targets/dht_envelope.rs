//! Envelopes of the DHT: any bytes are refused with a code, or are the one encoding of a message.

use bytes::BytesMut;
use svc_dht::{
    identity::NetworkId,
    wire::{
        envelope::{Message, decode, encode_request, encode_response, is_envelope},
        frame::PREFIX_LEN,
        message::Op,
        payload,
    },
};

const NETWORK: NetworkId = NetworkId([0; 16]);

pub fn run(frame: &[u8]) {
    check(frame);
    // The payloads by themselves, which a fuzzer would seldom wrap rightly.
    for op in Op::ALL {
        if let Ok(request) = payload::take_request(op, frame) {
            let mut again = BytesMut::new();
            payload::put_request(&mut again, &request);
            assert_eq!(again, frame);
        }
        if let Ok(response) = payload::take_response(op, frame) {
            let mut again = BytesMut::new();
            payload::put_response(&mut again, op, &response).expect("it was read");
            assert_eq!(again, frame);
        }
    }
}

fn check(frame: &[u8]) {
    let message = match decode(frame, NETWORK) {
        Ok(message) => message,
        Err(error) => return assert!(!error.code().is_empty()),
    };
    assert!(is_envelope(frame));
    let mut again = BytesMut::new();
    let written = match &message {
        Message::Request {
            corr_id,
            deadline_ms,
            hedge,
            request,
        } => encode_request(&mut again, NETWORK, *corr_id, *deadline_ms, *hedge, request),
        Message::Response {
            corr_id,
            op,
            response,
        } => encode_response(&mut again, NETWORK, *corr_id, *op, response),
    };
    written.expect("it was read");
    assert_eq!(&again[PREFIX_LEN..], frame);
}
