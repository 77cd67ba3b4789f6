//! The handshake: who is at the other end, and that it belongs to the same network. Pure; nonces are arguments.
//!
//! ```text
//! dials → Hello  [1, version, network, key, nonce, listen_port]
//!       ← Welcome [2, version, network, key, nonce, signature]   or Reject [4, code]
//!       → Proof  [3, signature]
//! ```
//! Each signature covers the network, both keys, both nonces and the port, under a label of its own. Always: an end of
//! this handshake names a node only after that node signed a nonce that was made here for this connection, so nothing
//! that was heard elsewhere is worth anything; and nodes of two networks never come to an end of it. What costs CPU time
//! (to sign and to verify) is in calls of its own: `welcome` and the two `check`.

use super::{
    cbor::{CborError, Reader, put_array, put_bytes, put_uint},
    envelope::VERSION,
};
use crate::{
    id::Id,
    identity::{Identity, NetworkId, PublicKey, Signature, verify},
};

/// Made anew for every connection.
pub type Nonce = [u8; 32];

const HELLO: u64 = 1;
const WELCOME: u64 = 2;
const PROOF: u64 = 3;
const REJECT: u64 = 4;

const WELCOME_LABEL: &str = "ron svc-dht welcome v1";
const PROOF_LABEL: &str = "ron svc-dht proof v1";

/// Who was proven to be at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerKey {
    pub id: Id,
    pub public: PublicKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("it belongs to another network")]
    WrongNetwork,
    #[error("it speaks another version")]
    WrongVersion,
    #[error("it could not prove who it is")]
    BadProof,
    #[error("it is not who was wanted")]
    WrongId,
    #[error("it is this node itself")]
    SelfDial,
    #[error("what it said cannot be read")]
    Malformed,
    #[error("it refused: {}", .0.name())]
    Rejected(RejectCode),
}

/// Why the accepting end hangs up, as it tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectCode {
    WrongNetwork = 1,
    WrongVersion = 2,
    SelfDial = 3,
    /// It has as many connections as it may.
    Busy = 4,
    /// It is about to stop.
    NotReady = 5,
}

impl HandshakeError {
    /// The label of `handshakes_rejected_total`.
    pub fn code(&self) -> &'static str {
        match self {
            HandshakeError::WrongNetwork => "wrong_network",
            HandshakeError::WrongVersion => "wrong_version",
            HandshakeError::BadProof => "bad_proof",
            HandshakeError::WrongId => "wrong_id",
            HandshakeError::SelfDial => "self_dial",
            HandshakeError::Malformed => "malformed",
            HandshakeError::Rejected(code) => code.name(),
        }
    }

    /// What the other end is told. Who sent garbage, or lies about who it is, is told nothing.
    pub fn reject(&self) -> Option<Vec<u8>> {
        let code = match self {
            HandshakeError::WrongNetwork => RejectCode::WrongNetwork,
            HandshakeError::WrongVersion => RejectCode::WrongVersion,
            HandshakeError::SelfDial => RejectCode::SelfDial,
            _ => return None,
        };
        Some(code.frame())
    }
}

impl From<CborError> for HandshakeError {
    fn from(_: CborError) -> Self {
        HandshakeError::Malformed
    }
}

impl RejectCode {
    pub const ALL: [RejectCode; 5] = [
        RejectCode::WrongNetwork,
        RejectCode::WrongVersion,
        RejectCode::SelfDial,
        RejectCode::Busy,
        RejectCode::NotReady,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RejectCode::WrongNetwork => "rejected_wrong_network",
            RejectCode::WrongVersion => "rejected_wrong_version",
            RejectCode::SelfDial => "rejected_self_dial",
            RejectCode::Busy => "rejected_busy",
            RejectCode::NotReady => "rejected_not_ready",
        }
    }

    /// The content of the frame that says so.
    pub fn frame(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3);
        put_array(&mut out, 2);
        put_uint(&mut out, REJECT);
        put_uint(&mut out, self as u64);
        out
    }
}

/// What both signatures cover.
#[derive(Clone, Copy, Debug)]
struct Transcript {
    network: NetworkId,
    dialler: PublicKey,
    accepter: PublicKey,
    dialler_nonce: Nonce,
    accepter_nonce: Nonce,
    listen_port: u16,
}

impl Transcript {
    fn parts<T>(&self, with: impl FnOnce(&[&[u8]]) -> T) -> T {
        with(&[
            &self.network.0,
            &self.dialler,
            &self.accepter,
            &self.dialler_nonce,
            &self.accepter_nonce,
            &self.listen_port.to_be_bytes(),
        ])
    }
}

/// The end that dials, from its Hello to the Welcome.
#[derive(Clone, Debug)]
pub struct Dialler {
    network: NetworkId,
    public: PublicKey,
    nonce: Nonce,
    listen_port: u16,
}

impl Dialler {
    /// The Hello is to be sent as the first frame; reads may follow it at once.
    pub fn new(
        me: &Identity,
        network: NetworkId,
        listen_port: u16,
        nonce: Nonce,
    ) -> (Dialler, Vec<u8>) {
        let dialler = Dialler {
            network,
            public: *me.public(),
            nonce,
            listen_port,
        };
        let mut hello = opening(6, HELLO, network, &dialler.public, &nonce);
        put_uint(&mut hello, listen_port.into());
        (dialler, hello)
    }

    /// The first frame that comes back. Cheap: whoever is not wanted is turned away before anything is verified.
    pub fn handle_welcome(
        self,
        frame: &[u8],
        expected: Option<Id>,
    ) -> Result<Welcomed, HandshakeError> {
        let mut reader = Reader::new(frame);
        let opened = Opened::take(&mut reader, WELCOME, 6, self.network)?;
        let signature = reader.fixed()?;
        reader.end()?;
        let peer = opened.peer(&self.public)?;
        if expected.is_some_and(|expected| expected != peer.id) {
            return Err(HandshakeError::WrongId);
        }
        let transcript = Transcript {
            network: self.network,
            dialler: self.public,
            accepter: peer.public,
            dialler_nonce: self.nonce,
            accepter_nonce: opened.nonce,
            listen_port: self.listen_port,
        };
        Ok(Welcomed {
            transcript,
            peer,
            signature,
        })
    }
}

/// A Welcome from somebody who claims to be wanted.
#[derive(Clone, Debug)]
pub struct Welcomed {
    transcript: Transcript,
    peer: PeerKey,
    signature: Signature,
}

impl Welcomed {
    /// Who it claims to be.
    pub fn claimed(&self) -> Id {
        self.peer.id
    }

    /// Verifies that claim, and signs the Proof that is to be sent: CPU time.
    pub fn check(self, me: &Identity) -> Result<(PeerKey, Vec<u8>), HandshakeError> {
        let verified =
            |parts: &[&[u8]]| verify(&self.peer.public, WELCOME_LABEL, parts, &self.signature);
        if !self.transcript.parts(verified) {
            return Err(HandshakeError::BadProof);
        }
        let mut proof = Vec::with_capacity(68);
        put_array(&mut proof, 2);
        put_uint(&mut proof, PROOF);
        let signature = self.transcript.parts(|parts| me.sign(PROOF_LABEL, parts));
        put_bytes(&mut proof, &signature);
        Ok((self.peer, proof))
    }
}

/// The end that accepts, from the Hello to the Proof.
#[derive(Clone, Debug)]
pub struct Accepter {
    transcript: Transcript,
    peer: PeerKey,
}

impl Accepter {
    /// The first frame of a connection. Cheap. On an error, send [`HandshakeError::reject`] if it gives one, and close.
    pub fn handle_hello(
        frame: &[u8],
        me: &Identity,
        network: NetworkId,
        nonce: Nonce,
    ) -> Result<Accepter, HandshakeError> {
        let mut reader = Reader::new(frame);
        let opened = Opened::take(&mut reader, HELLO, 6, network)?;
        let listen_port = reader.small()?;
        reader.end()?;
        let peer = opened.peer(me.public())?;
        let transcript = Transcript {
            network,
            dialler: peer.public,
            accepter: *me.public(),
            dialler_nonce: opened.nonce,
            accepter_nonce: nonce,
            listen_port,
        };
        Ok(Accepter { transcript, peer })
    }

    /// The Welcome that is to be sent: CPU time.
    pub fn welcome(&self, me: &Identity) -> Vec<u8> {
        let Transcript {
            network,
            accepter,
            accepter_nonce,
            ..
        } = &self.transcript;
        let mut welcome = opening(6, WELCOME, *network, accepter, accepter_nonce);
        let signature = self.transcript.parts(|parts| me.sign(WELCOME_LABEL, parts));
        put_bytes(&mut welcome, &signature);
        welcome
    }

    /// Who the dialler claims to be, and where it listens: 0 if nowhere. Not proven yet.
    pub fn claimed(&self) -> (Id, u16) {
        (self.peer.id, self.transcript.listen_port)
    }

    /// The Proof, which comes when the dialler has read the Welcome; until then only reads are answered. Cheap.
    pub fn handle_proof(self, frame: &[u8]) -> Result<Proof, HandshakeError> {
        let mut reader = Reader::new(frame);
        reader.array_of(2)?;
        if reader.uint()? != PROOF {
            return Err(HandshakeError::Malformed);
        }
        let signature = reader.fixed()?;
        reader.end()?;
        let Accepter { transcript, peer } = self;
        Ok(Proof {
            transcript,
            peer,
            signature,
        })
    }
}

/// A Proof that nobody has verified yet.
#[derive(Clone, Debug)]
pub struct Proof {
    transcript: Transcript,
    peer: PeerKey,
    signature: Signature,
}

impl Proof {
    /// Who is there, if that is true: CPU time.
    pub fn check(self) -> Result<PeerKey, HandshakeError> {
        let verified =
            |parts: &[&[u8]]| verify(&self.peer.public, PROOF_LABEL, parts, &self.signature);
        match self.transcript.parts(verified) {
            true => Ok(self.peer),
            false => Err(HandshakeError::BadProof),
        }
    }
}

/// What Hello and Welcome begin with.
struct Opened {
    public: PublicKey,
    nonce: Nonce,
}

impl Opened {
    fn take(
        reader: &mut Reader<'_>,
        kind: u64,
        items: usize,
        network: NetworkId,
    ) -> Result<Opened, HandshakeError> {
        let found = reader.array()?;
        match reader.uint()? {
            REJECT if kind == WELCOME && found == 2 => return Err(rejected(reader)),
            other if other != kind => return Err(HandshakeError::Malformed),
            _ => {}
        }
        // Another version may say other things after this.
        if reader.uint()? != VERSION {
            return Err(HandshakeError::WrongVersion);
        }
        if found != items {
            return Err(HandshakeError::Malformed);
        }
        if NetworkId(reader.fixed()?) != network {
            return Err(HandshakeError::WrongNetwork);
        }
        Ok(Opened {
            public: reader.fixed()?,
            nonce: reader.fixed()?,
        })
    }

    fn peer(&self, me: &PublicKey) -> Result<PeerKey, HandshakeError> {
        if self.public == *me {
            return Err(HandshakeError::SelfDial);
        }
        Ok(PeerKey {
            id: Id::of_node(&self.public),
            public: self.public,
        })
    }
}

fn rejected(reader: &mut Reader<'_>) -> HandshakeError {
    let code = reader.uint().ok().filter(|_| reader.end().is_ok());
    let code = code.and_then(|code| {
        RejectCode::ALL
            .into_iter()
            .find(|known| *known as u64 == code)
    });
    code.map_or(HandshakeError::Malformed, HandshakeError::Rejected)
}

fn opening(
    items: usize,
    kind: u64,
    network: NetworkId,
    public: &PublicKey,
    nonce: &Nonce,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    put_array(&mut out, items);
    put_uint(&mut out, kind);
    put_uint(&mut out, VERSION);
    put_bytes(&mut out, &network.0);
    put_bytes(&mut out, public);
    put_bytes(&mut out, nonce);
    out
}

#[cfg(test)]
mod tests;
