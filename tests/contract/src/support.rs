//! What the cases share: connected streams, a running server, a client that speaks plain HTTP/1.1 and
//! can be as rude as a case needs.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use ron_core::{
    Env, Join, Shutdown,
    seam::{BoxFuture, Conn, Listener},
    serve::{ServeOptions, ServeReport, ServeStats},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::Pair;

/// Short enough for a quick real run.
pub const SHORT: Duration = Duration::from_millis(100);

/// A client's end and the server's end of one connection.
pub async fn connected(pair: &Pair) -> (Conn, Conn) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let addr = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(biased; pair.client.connect(addr), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

pub struct Server {
    pub addr: SocketAddr,
    pub stop: Shutdown,
    pub stats: Arc<ServeStats>,
    pub task: Join<ServeReport>,
    /// How often each accepted connection was shut down, in order of arrival.
    pub shutdowns: Arc<Shutdowns>,
}

impl Server {
    pub async fn start(pair: &Pair, app: Router, options: ServeOptions) -> Self {
        let inner = pair
            .server
            .listen((pair.server_ip, 0).into())
            .await
            .unwrap();
        let addr = inner.local_addr().unwrap();
        let shutdowns = Arc::new(Shutdowns::default());
        let listener = Watched {
            inner,
            shutdowns: shutdowns.clone(),
        };
        let (stop, stats) = (Shutdown::new(), options.stats.clone());
        let (env, until) = (pair.server.clone(), stop.clone());
        let task = pair.server.spawn("case-server", async move {
            env.serve(Box::new(listener), app, options, until).await
        });
        Server {
            addr,
            stop,
            stats,
            task,
            shutdowns,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Waits for the server to come to `state`.
    pub async fn until(&self, env: &Env, state: impl Fn(&ServeStats) -> bool) {
        for _ in 0..2000 {
            if state(&self.stats) {
                return;
            }
            env.sleep(Duration::from_millis(5)).await;
        }
        panic!("the server never got there: {:?}", self.stats);
    }

    pub async fn until_open(&self, env: &Env, open: u64) {
        self.until(env, |stats| stats.open.load(Relaxed) == open)
            .await;
    }
}

/// A raw HTTP/1.1 client over one connection.
pub struct Raw {
    pub conn: Conn,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }
}

impl Raw {
    pub async fn connect(env: &Env, addr: SocketAddr) -> Self {
        Raw {
            conn: env.connect(addr).await.unwrap(),
            unread: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: &str) {
        self.conn.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// An answer with a content-length.
    pub async fn answer(&mut self) -> Answer {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await;
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next())
            .map_or(0, |n| n.parse().unwrap());
        while self.unread.len() < length {
            self.more().await;
        }
        let body = self.unread.drain(..length).collect();
        Answer { head, body }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// Reads to the end: what came, and no error but a reset.
    pub async fn closed(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.unread);
        if let Err(error) = self.conn.read_to_end(&mut rest).await {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        rest
    }

    async fn more(&mut self) {
        let n = self.conn.read_buf(&mut self.unread).await.unwrap();
        assert_ne!(n, 0, "closed in the middle of an answer");
    }
}

// ------------------------------------------------------------------- a listener that is watched

#[derive(Default)]
pub struct Shutdowns(std::sync::Mutex<Vec<Arc<AtomicUsize>>>);

impl Shutdowns {
    pub fn counts(&self) -> Vec<usize> {
        let all = self.0.lock().unwrap();
        all.iter().map(|n| n.load(Relaxed)).collect()
    }
}

struct Watched {
    inner: Box<dyn Listener>,
    shutdowns: Arc<Shutdowns>,
}

impl Listener for Watched {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
        Box::pin(async {
            let (inner, peer) = self.inner.accept().await?;
            let shutdowns = Arc::new(AtomicUsize::new(0));
            self.shutdowns.0.lock().unwrap().push(shutdowns.clone());
            let conn = Box::new(WatchedConn { inner, shutdowns });
            Ok((conn as Conn, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

struct WatchedConn {
    inner: Conn,
    shutdowns: Arc<AtomicUsize>,
}

impl AsyncRead for WatchedConn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for WatchedConn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        if result.is_ready() {
            self.shutdowns.fetch_add(1, Relaxed);
        }
        result
    }
}
