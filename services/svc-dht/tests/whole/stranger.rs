//! A peer that is nothing but a stream: it proves who it is if it is to, and then sends whatever a test wants.

use bytes::BytesMut;
use ron_core::seam::{Conn, Net};
use svc_dht::{
    identity::NetworkId,
    wire::{
        envelope::{Message, decode, encode_request},
        frame::{FrameReader, put_bytes_as_frame},
        handshake::Dialler,
        message::{Request, Response},
    },
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    clockwork::World,
    node::{addr, identity, ip},
};

/// That of all nodes here.
pub fn network() -> NetworkId {
    NetworkId::of_name("ron")
}

pub struct Stranger {
    pub stream: Conn,
    reader: FrameReader,
    n: u8,
}

impl Stranger {
    /// Connects to the first node and says nothing.
    pub async fn connect(world: &World, n: u8) -> Stranger {
        let stream = world.machine(ip(n)).connect(addr(1)).await.unwrap();
        let reader = FrameReader::new(1 << 20);
        Stranger { stream, reader, n }
    }

    /// Its hello, and what it needs to go on.
    pub fn hello(n: u8) -> (Dialler, Vec<u8>) {
        // It listens nowhere, so nobody will look for it.
        Dialler::new(&identity(n), network(), 0, [n; 32])
    }

    /// Connects and proves who it is.
    pub async fn proven(world: &World, n: u8) -> Stranger {
        let mut stranger = Stranger::connect(world, n).await;
        let proof = stranger.proof().await;
        stranger.send(&framed(&proof)).await;
        stranger
    }

    /// Says hello and makes the proof that the welcome asks for.
    pub async fn proof(&mut self) -> Vec<u8> {
        let (dialler, hello) = Stranger::hello(self.n);
        self.send(&framed(&hello)).await;
        let welcome = self.frame().await.expect("a welcome");
        let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
        welcomed.check(&identity(self.n)).unwrap().1
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next frame; none at the end of the stream.
    pub async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = self.reader.next().unwrap() {
                return Some(frame.to_vec());
            }
            let mut buf = [0; 4096];
            match self.stream.read(&mut buf).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.reader.push(&buf[..n]),
            }
        }
    }

    pub async fn ask(&mut self, corr_id: u64, request: &Request) -> Response {
        self.send(&request_frame(corr_id, request)).await;
        let frame = self.frame().await.expect("an answer");
        match decode(&frame, network()) {
            Ok(Message::Response {
                corr_id: id,
                response,
                ..
            }) if id == corr_id => response,
            other => panic!("{other:?}"),
        }
    }
}

pub fn framed(content: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    put_bytes_as_frame(&mut out, content).unwrap();
    out.to_vec()
}

pub fn request_frame(corr_id: u64, request: &Request) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_request(&mut out, network(), corr_id, 1000, false, request).unwrap();
    out.to_vec()
}
