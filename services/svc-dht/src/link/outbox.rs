//! What waits to be written: frames are appended to one buffer while another one is being written, so that all that
//! comes together leaves together. Always: a buffer that holds nothing has no memory.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Buf, BytesMut};
use ron_core::seam::Conn;
use tokio::io::AsyncWrite;

#[derive(Default)]
pub(crate) struct Outbox {
    writing: BytesMut,
    queued: BytesMut,
    /// When the peer was first offered what is being written.
    since: Option<Instant>,
}

impl Outbox {
    pub fn len(&self) -> usize {
        self.writing.len() + self.queued.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a frame of about this size is to be appended.
    pub fn room(&mut self, about: usize) -> &mut BytesMut {
        self.queued.reserve(about);
        &mut self.queued
    }

    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    pub fn clear(&mut self) {
        *self = Outbox::default();
    }

    /// Writes as much as the peer takes; ready with the number of bytes when nothing is left.
    pub fn poll_write(
        &mut self,
        stream: &mut Conn,
        cx: &mut Context<'_>,
        now: Instant,
        written: &mut u64,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            if self.writing.is_empty() {
                if self.queued.is_empty() {
                    self.clear();
                    return stream.poll_flush(cx);
                }
                self.writing = std::mem::take(&mut self.queued);
                self.since = Some(now);
            }
            let taken = ready!(stream.as_mut().poll_write(cx, &self.writing))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += taken as u64;
            self.writing.advance(taken);
        }
    }
}
