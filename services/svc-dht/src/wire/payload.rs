//! The payloads of envelopes: each operation's own CBOR.
//!
//! ```text
//! ask      PING []   FIND_* and GET_PROVIDERS [key]   PROVIDE and STORE [record]
//! answer   [0], [0, contacts] or [0, records, contacts]   refused [1, code, retry_after_ms]
//! ```
//! Always: what is decoded holds no more contacts and records than [`MAX_CONTACTS`] and [`MAX_RECORDS`].

use bytes::BytesMut;

use super::{
    cbor::{CborError, Reader, put_array, put_bytes, put_bytes_head, put_uint},
    envelope::WireError,
    message::{Op, Refusal, RefusalCode, Request, Response},
};
use crate::{contact::Contact, id::Id, record::Record};

/// The most contacts in an answer.
pub const MAX_CONTACTS: usize = 64;
/// The most records in an answer.
pub const MAX_RECORDS: usize = 64;

const OK: u64 = 0;
const REFUSED: u64 = 1;

pub fn put_request(out: &mut BytesMut, request: &Request) {
    match request {
        Request::Ping => put_array(out, 0),
        Request::FindNode { target: key }
        | Request::FindValue { key }
        | Request::GetProviders { key } => {
            put_array(out, 1);
            put_bytes(out, &key.0);
        }
        Request::Provide { record } | Request::Store { record } => {
            put_array(out, 1);
            record.put(out);
        }
    }
}

pub fn take_request(op: Op, payload: &[u8]) -> Result<Request, WireError> {
    let mut reader = Reader::new(payload);
    reader.array_of(usize::from(op != Op::Ping))?;
    let request = match op {
        Op::Ping => Request::Ping,
        Op::FindNode => Request::FindNode {
            target: Id(reader.fixed()?),
        },
        Op::FindValue => Request::FindValue {
            key: Id(reader.fixed()?),
        },
        Op::GetProviders => Request::GetProviders {
            key: Id(reader.fixed()?),
        },
        Op::Provide => Request::Provide {
            record: Record::take(&mut reader)?,
        },
        Op::Store => Request::Store {
            record: Record::take(&mut reader)?,
        },
    };
    reader.end()?;
    Ok(request)
}

/// Fails on what nobody could decode again: an answer to another operation, or more in it than it may hold.
pub fn put_response(out: &mut BytesMut, op: Op, response: &Response) -> Result<(), WireError> {
    match (op, response) {
        (_, Response::Refused(refusal)) => {
            put_array(out, 3);
            put_uint(out, REFUSED);
            put_uint(out, refusal.code as u64);
            put_uint(out, refusal.retry_after_ms.into());
        }
        (Op::Ping, Response::Pong) | (Op::Provide | Op::Store, Response::Stored) => {
            put_array(out, 1);
            put_uint(out, OK);
        }
        (Op::FindNode, Response::Nodes { closer }) => {
            put_array(out, 2);
            put_uint(out, OK);
            put_contacts(out, closer)?;
        }
        (Op::FindValue, Response::Value { value, closer }) => {
            put_array(out, 3);
            put_uint(out, OK);
            put_records(out, value.as_slice().iter().map(|value| &**value))?;
            put_contacts(out, closer)?;
        }
        (Op::GetProviders, Response::Providers { providers, closer }) => {
            put_array(out, 3);
            put_uint(out, OK);
            put_records(out, providers.iter())?;
            put_contacts(out, closer)?;
        }
        _ => return Err(WireError::WrongAnswer),
    }
    Ok(())
}

pub fn take_response(op: Op, payload: &[u8]) -> Result<Response, WireError> {
    let mut reader = Reader::new(payload);
    let len = reader.array()?;
    let response = match (reader.uint()?, op, len) {
        (REFUSED, _, 3) => Response::Refused(Refusal {
            code: RefusalCode::of(reader.uint()?).ok_or(CborError::Unexpected)?,
            retry_after_ms: reader.small()?,
        }),
        (OK, Op::Ping, 1) => Response::Pong,
        (OK, Op::Provide | Op::Store, 1) => Response::Stored,
        (OK, Op::FindNode, 2) => Response::Nodes {
            closer: take_contacts(&mut reader)?,
        },
        (OK, Op::FindValue, 3) => {
            let mut values = take_records(&mut reader, 1)?;
            Response::Value {
                value: values.pop().map(Box::new),
                closer: take_contacts(&mut reader)?,
            }
        }
        (OK, Op::GetProviders, 3) => Response::Providers {
            providers: take_records(&mut reader, MAX_RECORDS)?,
            closer: take_contacts(&mut reader)?,
        },
        _ => return Err(CborError::Unexpected.into()),
    };
    reader.end()?;
    Ok(response)
}

fn put_contacts(out: &mut BytesMut, contacts: &[Contact]) -> Result<(), WireError> {
    if contacts.len() > MAX_CONTACTS {
        return Err(WireError::TooMany);
    }
    put_array(out, contacts.len());
    for contact in contacts {
        put_bytes_head(out, contact.encoded_len());
        contact.put(out);
    }
    Ok(())
}

fn take_contacts(reader: &mut Reader<'_>) -> Result<Vec<Contact>, WireError> {
    let len = reader.array()?;
    if len > MAX_CONTACTS {
        return Err(WireError::TooMany);
    }
    let mut contacts = Vec::with_capacity(len);
    for _ in 0..len {
        contacts.push(Contact::from_bytes(reader.bytes()?).ok_or(WireError::BadContact)?);
    }
    Ok(contacts)
}

fn put_records<'a>(
    out: &mut BytesMut,
    records: impl ExactSizeIterator<Item = &'a Record>,
) -> Result<(), WireError> {
    if records.len() > MAX_RECORDS {
        return Err(WireError::TooMany);
    }
    put_array(out, records.len());
    records.for_each(|record| record.put(out));
    Ok(())
}

fn take_records(reader: &mut Reader<'_>, max: usize) -> Result<Vec<Record>, WireError> {
    let len = reader.array()?;
    if len > max {
        return Err(WireError::TooMany);
    }
    (0..len).map(|_| Ok(Record::take(reader)?)).collect()
}
