//! A client that writes its requests byte by byte and reads answers as they stand on the wire.
//!
//! It shares nothing with the server but the text of HTTP/1.1; every answer here says its length.

use std::time::{Duration, Instant};

use ron_core::{Env, seam::Conn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Verdict, agree};

pub struct Client {
    env: Env,
    conn: Conn,
    /// Read, and not yet part of an answer.
    unread: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn is(&self, what: &str, status: u16, body: &[u8]) -> Verdict {
        let came = (self.status, String::from_utf8_lossy(&self.body));
        agree(what, came, (status, String::from_utf8_lossy(body)))
    }
}

/// A request, with a body if there is one.
pub fn request(method: &str, path: &str, headers: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}");
    if let Some(body) = body {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend(body.unwrap_or_default());
    bytes
}

impl Client {
    pub fn new(env: &Env, conn: Conn) -> Self {
        Client {
            env: env.clone(),
            conn,
            unread: Vec::new(),
        }
    }

    pub fn into_conn(self) -> Conn {
        self.conn
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Verdict {
        let sent = self.conn.write_all(bytes).await;
        sent.map_err(|error| format!("a request could not be sent: {error}"))
    }

    /// As far as it can be sent: the other side may have closed.
    pub async fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.conn.write_all(bytes).await;
    }

    /// Nothing more will come from here.
    pub async fn finish(&mut self) {
        let _ = self.conn.shutdown().await;
    }

    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer, String> {
        self.send(request).await?;
        self.answer(!request.starts_with(b"HEAD ")).await
    }

    /// The next answer; one to HEAD has a length but no body.
    pub async fn answer(&mut self, with_body: bool) -> Result<Answer, String> {
        loop {
            if let Some(answer) = self.parse(with_body)? {
                return Ok(answer);
            }
            if !self.read_some().await {
                let text = String::from_utf8_lossy(&self.unread);
                return Err(format!("an answer broke off after {text:?}"));
            }
        }
    }

    /// When the other side has closed, and what it said before.
    pub async fn end(&mut self) -> (Vec<u8>, Instant) {
        while self.read_some().await {}
        (std::mem::take(&mut self.unread), self.env.now())
    }

    /// Whether the other side closes before so long.
    pub async fn closed_within(&mut self, limit: Duration) -> bool {
        let env = self.env.clone();
        matches!(env.timeout(limit, self.read_some()).await, Ok(false))
    }

    /// False at the end, proper or not.
    async fn read_some(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.conn.read(&mut piece).await {
            Ok(n @ 1..) => {
                self.unread.extend(&piece[..n]);
                true
            }
            _ => false,
        }
    }

    fn parse(&mut self, with_body: bool) -> Result<Option<Answer>, String> {
        let end = self.unread.windows(4).position(|w| w == b"\r\n\r\n");
        let Some(end) = end else { return Ok(None) };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| format!("no answer: {head:?}"))?;
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_lowercase(), value.trim().to_owned()))
        };
        let mut answer = Answer {
            status,
            headers: lines.filter_map(header).collect(),
            body: Vec::new(),
        };
        let length = answer.header("content-length").unwrap_or("0");
        let length: usize = length.parse().map_err(|_| format!("length of {head:?}"))?;
        let whole = end + 4 + length * usize::from(with_body);
        if self.unread.len() < whole {
            return Ok(None);
        }
        answer.body = self.unread.drain(..whole).skip(end + 4).collect();
        Ok(Some(answer))
    }
}
