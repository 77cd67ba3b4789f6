//! Why a connection ends, and what that means for the requests that it leaves open.

use super::{
    error::{RpcError, TimedOut},
    line::Failure,
};
use crate::wire::{
    handshake::{HandshakeError, RejectCode},
    message::{Op, Refusal, RefusalCode},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nobody answers at the address.
    Connect,
    /// The peer closed the stream between two frames.
    Eof,
    /// The stream broke.
    Broken,
    Handshake(HandshakeError),
    /// The peer sent what it must not, by its code.
    Frame(&'static str),
    Timeout(TimedOut),
    Idle,
    /// Another peer needs the place.
    MakeRoom,
    /// This node stops.
    Drain,
}

impl Why {
    pub fn error(self) -> RpcError {
        match self {
            Why::Connect => RpcError::Connect,
            // It is there and says so: no worse than a request that it refuses.
            Why::Handshake(HandshakeError::Rejected(RejectCode::Busy)) => {
                refused(RefusalCode::Busy)
            }
            Why::Handshake(HandshakeError::Rejected(RejectCode::NotReady)) => {
                refused(RefusalCode::NotReady)
            }
            Why::Handshake(error) => RpcError::Handshake(error),
            Why::Frame(code) => RpcError::Wire(code),
            Why::Timeout(what) => RpcError::Timeout(what),
            Why::Drain => RpcError::Canceled,
            Why::Eof | Why::Broken | Why::Idle | Why::MakeRoom => RpcError::Reset,
        }
    }

    /// A connection that has served may end at any time, as the other end sees fit: what was not sent, or may be sent
    /// twice, is worth another try.
    pub fn failure(self, op: Op, sent: bool, served: bool) -> Failure {
        let again = match self {
            Why::Idle | Why::MakeRoom => !sent,
            Why::Eof | Why::Broken => served && (!sent || op.is_read()),
            _ => false,
        };
        Failure {
            error: self.error(),
            again,
        }
    }

    /// The peer is at fault, whether or not anybody asked it.
    pub fn is_fault(self) -> bool {
        let fault = matches!(
            self,
            Why::Connect | Why::Handshake(_) | Why::Frame(_) | Why::Timeout(_)
        );
        fault && self.error().is_the_peers()
    }

    /// What waits to be written is still worth sending: the peer may be reading.
    pub fn flushes(self) -> bool {
        !matches!(self, Why::Broken | Why::Connect | Why::Timeout(_))
    }
}

fn refused(code: RefusalCode) -> RpcError {
    RpcError::Refused(Refusal {
        code,
        retry_after_ms: 0,
    })
}
