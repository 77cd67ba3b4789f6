//! Stands in for the parts of the wire that are being written.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    WrongNetwork,
    WrongVersion,
    BadProof,
    WrongId,
    SelfDial,
    Malformed,
}

impl HandshakeError {
    pub fn code(self) -> &'static str {
        "handshake"
    }
}

pub struct Identity;
