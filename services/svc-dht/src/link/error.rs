//! Why a request to a peer has no answer.

use crate::{
    wire::handshake::HandshakeError,
    wire::message::{Op, Refusal},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// Nobody listens there, or the network says so.
    #[error("cannot connect")]
    Connect,
    #[error("{} timed out", .0.name())]
    Timeout(TimedOut),
    /// The stream ended before the answer: whether the request was seen is not known.
    #[error("connection lost before the answer")]
    Reset,
    #[error("refused: {}", .0.code.name())]
    Refused(Refusal),
    #[error("handshake failed: {}", .0.code())]
    Handshake(HandshakeError),
    /// The peer sent what cannot be read, or asked us for what we cannot send; the stream was closed.
    #[error("bad frame: {0}")]
    Wire(&'static str),
    /// No room here: too many connections or requests are under way, or the peer's breaker is open.
    #[error("busy")]
    Busy,
    /// This node is stopping.
    #[error("canceled")]
    Canceled,
}

/// What ran out of time: the label `op` of `io_timeouts_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedOut {
    Connect,
    Read,
    Write,
    /// A request of this kind had no answer at its deadline.
    Rpc(Op),
}

impl TimedOut {
    pub const COUNT: usize = 9;

    pub fn name(self) -> &'static str {
        match self {
            TimedOut::Connect => "connect",
            TimedOut::Read => "read",
            TimedOut::Write => "write",
            TimedOut::Rpc(op) => op.name(),
        }
    }

    /// Its place in a table of counters.
    pub fn index(self) -> usize {
        match self {
            TimedOut::Connect => 0,
            TimedOut::Read => 1,
            TimedOut::Write => 2,
            TimedOut::Rpc(op) => 2 + op as usize,
        }
    }
}

impl RpcError {
    /// Whether it says something about the peer; what happened here does not.
    pub fn is_the_peers(&self) -> bool {
        !matches!(
            self,
            RpcError::Busy | RpcError::Canceled | RpcError::Refused(_)
        )
    }
}
