//! A node that is nothing but its connections, and a peer that is nothing but a stream and says what a test wants.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use ron_core::{Env, Shutdown, seam::Listener};
use svc_dht::{
    contact::Contact,
    id::Id,
    identity::{Identity, NetworkId},
    link::{
        answer::{Answer, PeerInfo, ReplyHandle},
        error::RpcError,
        rules::LinkRules,
    },
    listener,
    peers::Peers,
    record::Record,
    wire::{
        envelope::{Message, decode, encode_request, encode_response},
        frame::{FrameReader, put_bytes_as_frame},
        handshake::{Accepter, Dialler},
        message::{Op, Request, Response},
    },
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub const NETWORK: &str = "test";

pub fn network() -> NetworkId {
    NetworkId::of_name(NETWORK)
}

pub fn identity(n: u8) -> Arc<Identity> {
    Arc::new(Identity::from_seed(&[n; 32]))
}

pub fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 7000))
}

pub fn contact(n: u8) -> Contact {
    Contact {
        id: identity(n).id(),
        addr: addr(n).into(),
    }
}

/// A value that its publisher signed.
pub fn record(n: u8) -> Record {
    Record::sign_value(
        &identity(n),
        b"name",
        b"value",
        1,
        1_700_000_000_000,
        60_000,
    )
}

/// What a node heard and was asked.
#[derive(Default)]
pub struct Heard {
    pub proven: Mutex<Vec<(Contact, bool, Option<Duration>)>>,
    pub failed: Mutex<Vec<(Contact, RpcError)>>,
    pub reads: Mutex<Vec<(PeerInfo, Request)>>,
    pub writes: Mutex<Vec<(PeerInfo, Request, ReplyHandle)>>,
    /// The answer to `FIND_NODE`.
    pub closer: Mutex<Vec<Contact>>,
}

impl Answer for Heard {
    fn read(&self, from: &PeerInfo, request: &Request) -> Response {
        self.reads.lock().unwrap().push((*from, request.clone()));
        match request {
            Request::Ping => Response::Pong,
            _ => Response::Nodes {
                closer: self.closer.lock().unwrap().clone(),
            },
        }
    }

    fn write(&self, from: &PeerInfo, request: Request, reply: ReplyHandle) {
        self.writes.lock().unwrap().push((*from, request, reply));
    }

    fn proven(&self, peer: Contact, outbound: bool, rtt: Option<Duration>) {
        self.proven.lock().unwrap().push((peer, outbound, rtt));
    }

    fn failed(&self, peer: Contact, error: &RpcError) {
        self.failed.lock().unwrap().push((peer, *error));
    }
}

pub struct Node {
    pub env: Env,
    pub n: u8,
    pub peers: Peers,
    pub heard: Arc<Heard>,
    pub stop: Shutdown,
}

impl Node {
    pub async fn start(env: &Env, n: u8) -> Node {
        Node::with(env, n, |_| {}).await
    }

    /// Listens at [`addr`]`(n)`, with other rules.
    pub async fn with(env: &Env, n: u8, change: impl FnOnce(&mut LinkRules)) -> Node {
        let listener = env.listen(addr(n)).await.unwrap();
        Node::on(env, n, listener, change)
    }

    pub fn on(
        env: &Env,
        n: u8,
        listener: Box<dyn Listener>,
        change: impl FnOnce(&mut LinkRules),
    ) -> Node {
        let port = listener.local_addr().unwrap().port();
        let mut rules = LinkRules::new(network(), port);
        change(&mut rules);
        let heard = Arc::new(Heard::default());
        let peers = Peers::new(env.clone(), identity(n), rules, heard.clone());
        let stop = Shutdown::new();
        let (accepting, stopped) = (peers.clone(), stop.clone());
        drop(env.spawn("listener", async move {
            listener::listen(&accepting, &*listener, &stopped).await;
        }));
        Node {
            env: env.clone(),
            n,
            peers,
            heard,
            stop,
        }
    }

    pub fn in_ms(&self, ms: u64) -> Instant {
        self.env.now() + Duration::from_millis(ms)
    }

    pub async fn ping(&self, n: u8) -> Result<Response, RpcError> {
        self.ask(contact(n), Request::Ping, 1000).await
    }

    pub async fn ask(&self, to: Contact, request: Request, ms: u64) -> Result<Response, RpcError> {
        let deadline = self.in_ms(ms);
        self.peers.request(to, &request, false, deadline).await
    }

    pub async fn finish(self) {
        self.stop.trigger();
        self.peers.shutdown().await;
        assert_eq!(self.peers.alive(), 0);
        assert_eq!(self.peers.open(), (0, 0));
        let stats = self.peers.stats();
        assert_eq!(
            (stats.open_outbound.get(), stats.open_inbound.get()),
            (0, 0)
        );
    }
}

/// The other end of a node's stream, in the hands of a test.
pub struct Raw<S> {
    pub stream: S,
    reader: FrameReader,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub fn new(stream: S) -> Self {
        let reader = FrameReader::new(1 << 20);
        Raw { stream, reader }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn send_frame(&mut self, content: &[u8]) {
        self.send(&framed(content)).await;
    }

    /// The next frame; none at the end of the stream.
    pub async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.reader.next().unwrap() {
                return Some(frame);
            }
            let mut buf = [0; 4096];
            match self.stream.read(&mut buf).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.reader.push(&buf[..n]),
            }
        }
    }

    pub async fn message(&mut self) -> Option<Message> {
        let frame = self.frame().await?;
        Some(decode(&frame, network()).unwrap())
    }

    /// The next request's id and what it asks.
    pub async fn request(&mut self) -> (u64, Request) {
        match self.message().await {
            Some(Message::Request {
                corr_id, request, ..
            }) => (corr_id, request),
            other => panic!("no request: {other:?}"),
        }
    }

    pub async fn response(&mut self) -> (u64, Response) {
        match self.message().await {
            Some(Message::Response {
                corr_id, response, ..
            }) => (corr_id, response),
            other => panic!("no answer: {other:?}"),
        }
    }

    pub async fn ask(&mut self, corr_id: u64, request: &Request) {
        self.send(&request_frame(corr_id, request)).await;
    }

    pub async fn answer(&mut self, corr_id: u64, op: Op, response: &Response) {
        let mut out = BytesMut::new();
        encode_response(&mut out, network(), corr_id, op, response).unwrap();
        self.send(&out).await;
    }

    /// Proves to a node that we are number `n`.
    pub async fn greet(&mut self, n: u8) {
        let me = identity(n);
        let (dialler, hello) = Dialler::new(&me, network(), 7000, [n; 32]);
        self.send_frame(&hello).await;
        let welcome = self.frame().await.expect("a welcome");
        let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
        let (_, proof) = welcomed.check(&me).unwrap();
        self.send_frame(&proof).await;
    }

    /// Welcomes a node that dialled, as number `n`; says who it is once it has proven that.
    pub async fn welcome(&mut self, n: u8) -> Id {
        let me = identity(n);
        let hello = self.frame().await.expect("a hello");
        let accepter = Accepter::handle_hello(&hello, &me, network(), [n; 32]).unwrap();
        self.send_frame(&accepter.welcome(&me)).await;
        loop {
            let frame = self.frame().await.expect("a proof");
            if let Ok(proof) = accepter.clone().handle_proof(&frame) {
                return proof.check().unwrap().id;
            }
        }
    }

    /// Everything up to the end of the stream.
    pub async fn rest(&mut self) -> usize {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap_or(0)
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
