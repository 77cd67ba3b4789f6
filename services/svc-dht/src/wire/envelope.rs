//! Envelopes: what every frame after the handshake is. `[network, version, op, corr_id, flags, deadline_ms, payload]`.
//!
//! Always: a message has exactly one encoding, and whatever differs from it is refused with a typed code. A frame is
//! written in place, behind what waits to be sent; nothing of another network or version is ever decoded.

use bytes::BytesMut;

use super::{
    cbor::{CborError, Reader, head_len, put_array, put_bytes, put_bytes_head, put_uint},
    frame::{FrameError, put_frame},
    message::{Op, Request, Response},
    payload,
};
use crate::identity::NetworkId;

/// The version of the wire, of envelopes and handshake alike.
pub const VERSION: u64 = 1;

const ITEMS: usize = 7;
const FIRST_BYTE: u8 = 0x80 | ITEMS as u8;

/// What kind of message an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    Request,
    /// A request that was sent beside another one which is overdue.
    Hedge,
    Response,
}

impl Flags {
    const REQ: u64 = 1;
    const RESP: u64 = 2;
    const HEDGE: u64 = 4;

    fn bits(self) -> u64 {
        match self {
            Flags::Request => Flags::REQ,
            Flags::Hedge => Flags::REQ | Flags::HEDGE,
            Flags::Response => Flags::RESP,
        }
    }

    fn of(bits: u64) -> Option<Flags> {
        let all = [Flags::Request, Flags::Hedge, Flags::Response];
        all.into_iter().find(|flags| flags.bits() == bits)
    }
}

/// An envelope whose payload nobody has looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub network: NetworkId,
    pub op: Op,
    /// Joins an answer to its request; the asker chooses it, for one connection.
    pub corr_id: u64,
    pub flags: Flags,
    /// What is left of the asker's time; 0 in an answer.
    pub deadline_ms: u32,
    pub payload: &'a [u8],
}

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Request {
        corr_id: u64,
        deadline_ms: u32,
        hedge: bool,
        request: Request,
    },
    /// Says which operation it answers; whether that was asked is for the asker to know.
    Response {
        corr_id: u64,
        op: Op,
        response: Response,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a message that cannot be read: {0}")]
    Cbor(#[from] CborError),
    #[error("a message of another network")]
    WrongNetwork,
    #[error("a message of version {found}, not {VERSION}")]
    WrongVersion { found: u64 },
    #[error("there is no operation {found}")]
    UnknownOp { found: u64 },
    #[error("flags that make no sense")]
    BadFlags,
    #[error("a contact that is none")]
    BadContact,
    #[error("more contacts or records than an answer may hold")]
    TooMany,
    #[error("an answer to another operation")]
    WrongAnswer,
    #[error("a message that is no frame: {0}")]
    Frame(#[from] FrameError),
}

impl WireError {
    /// The label of `frames_rejected_total`.
    pub fn code(&self) -> &'static str {
        match self {
            WireError::Cbor(CborError::NotDeterministic) => "not_deterministic",
            WireError::Cbor(_) | WireError::BadContact => "malformed",
            WireError::WrongNetwork => "wrong_network",
            WireError::WrongVersion { .. } => "wrong_version",
            WireError::UnknownOp { .. } => "unknown_op",
            WireError::BadFlags => "bad_flags",
            WireError::TooMany => "too_many",
            WireError::WrongAnswer => "wrong_answer",
            WireError::Frame(error) => error.code(),
        }
    }
}

/// Whether a frame claims to be an envelope rather than a part of the handshake: no frame could be both.
pub fn is_envelope(frame: &[u8]) -> bool {
    frame.first() == Some(&FIRST_BYTE)
}

/// Appends the frame of a request, its length included. Fails only where the frame would be too long.
pub fn encode_request(
    out: &mut BytesMut,
    network: NetworkId,
    corr_id: u64,
    deadline_ms: u32,
    hedge: bool,
    request: &Request,
) -> Result<(), WireError> {
    let envelope = Envelope {
        network,
        op: request.op(),
        corr_id,
        flags: if hedge { Flags::Hedge } else { Flags::Request },
        deadline_ms,
        payload: &[],
    };
    put_frame(out, |out| {
        put_envelope(out, &envelope, |out| {
            payload::put_request(out, request);
            Ok(())
        })
    })
}

/// Appends the frame of an answer, its length included. Fails on an answer that does not belong to `op` or holds too
/// much, and leaves `out` as it was.
pub fn encode_response(
    out: &mut BytesMut,
    network: NetworkId,
    corr_id: u64,
    op: Op,
    response: &Response,
) -> Result<(), WireError> {
    let envelope = Envelope {
        network,
        op,
        corr_id,
        flags: Flags::Response,
        deadline_ms: 0,
        payload: &[],
    };
    put_frame(out, |out| {
        put_envelope(out, &envelope, |out| {
            payload::put_response(out, op, response)
        })
    })
}

/// Reads a frame without its length.
pub fn decode(frame: &[u8], network: NetworkId) -> Result<Message, WireError> {
    let envelope = Envelope::parse(frame)?;
    if envelope.network != network {
        return Err(WireError::WrongNetwork);
    }
    let Envelope {
        op,
        corr_id,
        deadline_ms,
        ..
    } = envelope;
    Ok(match envelope.flags {
        Flags::Request | Flags::Hedge => Message::Request {
            corr_id,
            deadline_ms,
            hedge: envelope.flags == Flags::Hedge,
            request: payload::take_request(op, envelope.payload)?,
        },
        Flags::Response => Message::Response {
            corr_id,
            op,
            response: payload::take_response(op, envelope.payload)?,
        },
    })
}

impl<'a> Envelope<'a> {
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        let items = reader.array()?;
        let network = NetworkId(reader.fixed()?);
        // Another version may have other items: say that rather than that it is malformed.
        let version = reader.uint()?;
        if version != VERSION {
            return Err(WireError::WrongVersion { found: version });
        }
        if items != ITEMS {
            return Err(CborError::Unexpected.into());
        }
        let op = reader.uint()?;
        let op = Op::of(op).ok_or(WireError::UnknownOp { found: op })?;
        let corr_id = reader.uint()?;
        let flags = Flags::of(reader.uint()?).ok_or(WireError::BadFlags)?;
        let deadline_ms = reader.small()?;
        if flags == Flags::Response && deadline_ms != 0 {
            return Err(WireError::BadFlags);
        }
        let payload = reader.bytes()?;
        reader.end()?;
        Ok(Envelope {
            network,
            op,
            corr_id,
            flags,
            deadline_ms,
            payload,
        })
    }
}

/// The payload is what `write` appends.
fn put_envelope(
    out: &mut BytesMut,
    envelope: &Envelope<'_>,
    write: impl FnOnce(&mut BytesMut) -> Result<(), WireError>,
) -> Result<(), WireError> {
    put_array(out, ITEMS);
    put_bytes(out, &envelope.network.0);
    put_uint(out, VERSION);
    put_uint(out, envelope.op as u64);
    put_uint(out, envelope.corr_id);
    put_uint(out, envelope.flags.bits());
    put_uint(out, envelope.deadline_ms.into());

    // The head is as long as the payload demands, which is known only afterwards. Most answers need this much.
    const GUESS: usize = 3;
    let start = out.len();
    out.extend_from_slice(&[0; GUESS]);
    write(out)?;
    let len = out.len() - start - GUESS;
    let head = head_len(len);
    if head > GUESS {
        out.extend_from_slice(&[0; 9][..head - GUESS]);
    }
    out.copy_within(start + GUESS..start + GUESS + len, start + head);
    out.truncate(start + head + len);
    put_bytes_head(&mut &mut out[start..start + head], len);
    Ok(())
}

#[cfg(test)]
mod tests;
