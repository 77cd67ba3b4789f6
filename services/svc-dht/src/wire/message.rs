//! What nodes ask each other, and what they answer.

use crate::{contact::Contact, id::Id, record::Record};

/// The operations, as they are numbered on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    Ping = 1,
    FindNode = 2,
    FindValue = 3,
    Provide = 4,
    GetProviders = 5,
    Store = 6,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Ping,
    FindNode { target: Id },
    FindValue { key: Id },
    Provide { record: Record },
    GetProviders { key: Id },
    Store { record: Record },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Pong,
    /// The closest that the answering node knows and does not think dead.
    Nodes {
        closer: Vec<Contact>,
    },
    /// `value` is the newest that it holds.
    Value {
        value: Option<Box<Record>>,
        closer: Vec<Contact>,
    },
    Providers {
        providers: Vec<Record>,
        closer: Vec<Contact>,
    },
    /// The record is stored, or was there.
    Stored,
    Refused(Refusal),
}

/// Why a node did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: RefusalCode,
    /// When to try again; 0 if that is of no use.
    pub retry_after_ms: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RefusalCode {
    Busy = 1,
    NotReady = 2,
    Quota = 3,
    BadSignature = 4,
    Expired = 5,
    /// A newer sequence is held.
    Stale = 6,
    TooLarge = 7,
    /// The asker has not proven who it is.
    NotVerified = 8,
    BadRequest = 9,
}

impl Op {
    pub const ALL: [Op; 6] = [
        Op::Ping,
        Op::FindNode,
        Op::FindValue,
        Op::Provide,
        Op::GetProviders,
        Op::Store,
    ];

    /// The operation with this number.
    pub fn of(number: u64) -> Option<Op> {
        Op::ALL.into_iter().find(|op| *op as u64 == number)
    }

    pub fn name(self) -> &'static str {
        match self {
            Op::Ping => "ping",
            Op::FindNode => "find_node",
            Op::FindValue => "find_value",
            Op::Provide => "provide",
            Op::GetProviders => "get_providers",
            Op::Store => "store",
        }
    }

    /// Reads change nothing: they may be repeated, and are answered before the asker has proven who it is.
    pub fn is_read(self) -> bool {
        !matches!(self, Op::Provide | Op::Store)
    }
}

impl Request {
    pub fn op(&self) -> Op {
        match self {
            Request::Ping => Op::Ping,
            Request::FindNode { .. } => Op::FindNode,
            Request::FindValue { .. } => Op::FindValue,
            Request::Provide { .. } => Op::Provide,
            Request::GetProviders { .. } => Op::GetProviders,
            Request::Store { .. } => Op::Store,
        }
    }
}

impl RefusalCode {
    pub const ALL: [RefusalCode; 9] = [
        RefusalCode::Busy,
        RefusalCode::NotReady,
        RefusalCode::Quota,
        RefusalCode::BadSignature,
        RefusalCode::Expired,
        RefusalCode::Stale,
        RefusalCode::TooLarge,
        RefusalCode::NotVerified,
        RefusalCode::BadRequest,
    ];

    /// The code with this number.
    pub fn of(number: u64) -> Option<RefusalCode> {
        RefusalCode::ALL
            .into_iter()
            .find(|code| *code as u64 == number)
    }

    pub fn name(self) -> &'static str {
        match self {
            RefusalCode::Busy => "busy",
            RefusalCode::NotReady => "not_ready",
            RefusalCode::Quota => "quota",
            RefusalCode::BadSignature => "bad_signature",
            RefusalCode::Expired => "expired",
            RefusalCode::Stale => "stale",
            RefusalCode::TooLarge => "too_large",
            RefusalCode::NotVerified => "not_verified",
            RefusalCode::BadRequest => "bad_request",
        }
    }
}
