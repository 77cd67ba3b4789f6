//! A connection lent to code that will drop it, and got back when it does.
//!
//! hyper and TLS drop their stream on errors without closing it, and after a shutdown without hearing the
//! peer out. Always: whatever way they end, the stream comes back, and is shut down once, by them or by
//! [`Returned::shutdown`].

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::seam::Conn;

/// Told about every read and write; the connection's own notes. Must be cheap.
pub(super) trait Observe: Send + Sync + Unpin {
    /// An error ends the connection.
    fn read(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// What to write in place of `data`, which is about to be written.
    fn instead(&mut self, data: &[u8]) -> Option<Vec<u8>>;
    fn wrote(&mut self, result: &Poll<io::Result<usize>>);
    fn flushed(&mut self, pending: bool);
}

/// Sees nothing.
impl Observe for () {
    fn read(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn instead(&mut self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn wrote(&mut self, _: &Poll<io::Result<usize>>) {}
    fn flushed(&mut self, _: bool) {}
}

/// Where a lent connection comes back to.
#[derive(Clone, Default)]
pub(super) struct Lender {
    back: Arc<Mutex<Option<Returned>>>,
}

impl Lender {
    pub fn lend<O: Observe>(&self, conn: Conn, observer: O) -> Held<O> {
        Held {
            conn: Some(conn),
            shut: false,
            observer,
            instead: None,
            lender: self.clone(),
        }
    }

    /// What was lent. To be called after the borrower is gone.
    pub fn take_back(&self) -> Option<Returned> {
        self.back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// A connection whose borrower is gone.
pub(super) struct Returned {
    conn: Conn,
    shut: bool,
}

impl Returned {
    /// As far as it needs no waiting.
    pub fn say(&mut self, last: &[u8]) {
        if !self.shut {
            let _ = self.conn.write_all(last).now_or_never();
        }
    }

    /// Tells the peer that nothing more will come, unless the borrower already did.
    pub async fn shutdown(&mut self) {
        if !self.shut {
            self.shut = true;
            // The peer may be gone already: nothing is left to be told.
            let _ = self.conn.shutdown().await;
        }
    }

    /// Reads and forgets what the peer still sends, at most `most` bytes of it.
    pub async fn hear_out(&mut self, most: usize) {
        let mut piece = vec![0; 16 * 1024];
        let mut heard = 0;
        while heard < most {
            match self.conn.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(n) => heard += n,
            }
        }
    }
}

pub(super) struct Held<O: Observe> {
    /// `None` only while dropping.
    conn: Option<Conn>,
    shut: bool,
    observer: O,
    /// What is written in place of the borrower's own words, and how much of it was.
    instead: Option<(Vec<u8>, usize)>,
    lender: Lender,
}

impl<O: Observe> Held<O> {
    fn parts(&mut self) -> io::Result<(Pin<&mut Conn>, &mut O)> {
        match &mut self.conn {
            Some(conn) => Ok((Pin::new(conn), &mut self.observer)),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// `None` if the borrower's own `data` is to be written.
    fn write_instead(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        len: usize,
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_none() {
            self.instead = Some((self.observer.instead(data)?, 0));
        }
        let (conn, (bytes, at)) = (self.conn.as_mut()?, self.instead.as_mut()?);
        while *at < bytes.len() {
            let result = Pin::new(&mut *conn).poll_write(cx, &bytes[*at..]);
            self.observer.wrote(&result);
            match result {
                Poll::Ready(Ok(n)) if n > 0 => *at += n,
                other => return Some(other),
            }
        }
        self.instead = None;
        Some(Poll::Ready(Ok(len)))
    }
}

impl<O: Observe> Drop for Held<O> {
    fn drop(&mut self) {
        let mut back = self
            .lender
            .back
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let shut = self.shut;
        *back = self.conn.take().map(|conn| Returned { conn, shut });
    }
}

impl<O: Observe> AsyncRead for Held<O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (conn, observer) = self.parts()?;
        let before = buf.filled().len();
        if crate::buggify!("serve.short_read") {
            // A stream may give fewer bytes than it has.
            let mut few = [0; 7];
            let most = few.len().min(buf.remaining());
            let mut short = ReadBuf::new(&mut few[..most]);
            ready!(conn.poll_read(cx, &mut short))?;
            buf.put_slice(short.filled());
        } else {
            ready!(conn.poll_read(cx, buf))?;
        }
        Poll::Ready(observer.read(&buf.filled()[before..]))
    }
}

impl<O: Observe> AsyncWrite for Held<O> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = self.write_instead(cx, data, data.len()) {
            return written;
        }
        let (conn, observer) = self.parts()?;
        let most = if crate::buggify!("serve.short_write") {
            7
        } else {
            data.len()
        };
        let result = conn.poll_write(cx, &data[..most.min(data.len())]);
        observer.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = data.first().map_or(&[][..], |first| first);
        let len = data.iter().map(|piece| piece.len()).sum();
        if let Some(written) = self.write_instead(cx, first, len) {
            return written;
        }
        let (conn, observer) = self.parts()?;
        let result = conn.poll_write_vectored(cx, data);
        observer.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.conn.as_ref().is_some_and(|c| c.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (conn, observer) = self.parts()?;
        let result = conn.poll_flush(cx);
        observer.flushed(result.is_pending());
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (conn, observer) = self.parts()?;
        let result = conn.poll_shutdown(cx);
        observer.flushed(result.is_pending());
        if result.is_ready() {
            self.shut = true;
        }
        result
    }
}
