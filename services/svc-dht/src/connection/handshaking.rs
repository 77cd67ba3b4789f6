//! The first words of a connection: who is there, proven to both ends.
//!
//! Always: reads are sent with the hello and answered after the welcome; nothing that came behind a proof is looked at
//! before the proof has been verified. Signatures are made and verified on the CPU pool.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
    time::Instant,
};

use ron_core::{
    Lost,
    seam::{Conn, Pool},
};

use super::{Connection, Phase};
use crate::{
    contact::Contact,
    link::{answer::PeerInfo, ending::Why},
    wire::{
        frame::put_bytes_as_frame,
        handshake::{Accepter, Dialler, HandshakeError, PeerKey},
    },
};

/// What the CPU pool found out.
pub(super) enum Checked {
    Welcome(Box<Accepter>, Vec<u8>),
    /// With the proof of our own id, if we dialled.
    Peer(Result<(PeerKey, Option<Vec<u8>>), HandshakeError>),
}

impl Connection {
    /// Moves on what is not reading or writing. True if the phase changed.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Connecting(dial) => match dial.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(stream)) => self.greet(stream, now),
                Poll::Ready(Err(_)) => self.end(Why::Connect, now),
            },
            Phase::Checking(check) => match check.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(Checked::Welcome(accepter, welcome))) => {
                    self.welcome(accepter, &welcome, now);
                }
                Poll::Ready(Ok(Checked::Peer(Ok((peer, proof))))) => self.open(peer, proof, now),
                Poll::Ready(Ok(Checked::Peer(Err(error)))) => self.reject(error, now),
                Poll::Ready(Err(Lost)) => self.end(Why::Broken, now),
            },
            _ => return false,
        }
        true
    }

    fn greet(&mut self, stream: Conn, now: Instant) {
        self.stream = Some(stream);
        let rules = &self.hub.rules;
        let nonce = self.nonce();
        let (dialler, hello) =
            Dialler::new(&self.hub.identity, rules.network, rules.listen_port, nonce);
        self.put(&hello);
        self.enter(Phase::Greeted(Box::new(dialler)), now);
        self.send_unsent(now);
    }

    pub(super) fn handle_hello(&mut self, frame: &[u8], now: Instant) {
        let (nonce, identity) = (self.nonce(), self.hub.identity.clone());
        match Accepter::handle_hello(frame, &identity, self.hub.rules.network, nonce) {
            Ok(accepter) => {
                let (id, port) = accepter.claimed();
                let ip = self.peer.contact.addr.ip();
                let addr = SocketAddr::new(ip, port).into();
                self.peer.contact = Contact { id, addr };
                // Measured by the example `link_cost`: a signature costs 9 µs of CPU time here and 28 µs by way of the
                // pool, most of it to wake threads. The pool is dearer for the sign alone; it keeps a flood of hellos
                // from holding up those who have been let in, and bounds what may be spent on it at once.
                let accepter = Box::new(accepter);
                self.check(now, move || {
                    let welcome = accepter.welcome(&identity);
                    Checked::Welcome(accepter, welcome)
                });
            }
            Err(error) => self.reject(error, now),
        }
    }

    pub(super) fn handle_welcome(&mut self, dialler: Dialler, frame: &[u8], now: Instant) {
        let expected = self.wanted.then_some(self.peer.contact.id);
        match dialler.handle_welcome(frame, expected) {
            Ok(welcomed) => {
                let rtt = now.saturating_duration_since(self.phase_began);
                let identity = self.hub.identity.clone();
                self.check(now, move || {
                    let checked = welcomed.check(&identity);
                    Checked::Peer(checked.map(|(peer, proof)| (peer, Some(proof))))
                });
                self.rtt = Some(rtt);
            }
            Err(error) => self.reject(error, now),
        }
    }

    pub(super) fn handle_proof(&mut self, accepter: Accepter, frame: &[u8], now: Instant) {
        match accepter.handle_proof(frame) {
            Ok(proof) => self.check(now, move || {
                Checked::Peer(proof.check().map(|peer| (peer, None)))
            }),
            Err(error) => self.reject(error, now),
        }
    }

    fn check(&mut self, now: Instant, job: impl FnOnce() -> Checked + Send + 'static) {
        let check = self.hub.env.offload(Pool::CPU, job);
        self.enter(Phase::Checking(Box::pin(check)), now);
    }

    fn welcome(&mut self, accepter: Box<Accepter>, welcome: &[u8], now: Instant) {
        self.put(welcome);
        self.enter(Phase::Unproven(accepter), now);
        self.handle_frames(now);
    }

    /// The peer has proven its id.
    fn open(&mut self, peer: PeerKey, proof: Option<Vec<u8>>, now: Instant) {
        if let Some(proof) = proof {
            self.put(&proof);
        }
        self.peer.contact.id = peer.id;
        self.peer.proven = true;
        self.enter(Phase::Open, now);
        self.hub.identify(&self.line, peer.id);
        let PeerInfo {
            contact, outbound, ..
        } = self.peer;
        self.hub.answer.proven(contact, outbound, self.rtt);
        self.send_unsent(now);
        self.handle_frames(now);
    }

    fn reject(&mut self, error: HandshakeError, now: Instant) {
        self.hub.stats.count_handshake_rejected(error.code());
        if !self.peer.outbound
            && let Some(reject) = error.reject()
        {
            self.put(&reject);
        }
        self.end(Why::Handshake(error), now);
    }

    fn put(&mut self, content: &[u8]) {
        // A part of the handshake is never too long for a frame.
        let _ = put_bytes_as_frame(self.outbox.room(content.len() + 4), content);
    }

    fn nonce(&self) -> [u8; 32] {
        let mut nonce = [0; 32];
        self.hub.env.fill_random(&mut nonce);
        nonce
    }
}
