//! The end of a connection: what is open is settled, what is written is flushed, the stream is shut down.

use std::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Connection, Phase};
use crate::link::{
    ending::Why,
    line::{Failure, Mail},
};

/// A connection on its way out.
pub(super) struct Closing {
    /// However far it got.
    pub until: Instant,
    step: Step,
    /// The peer is to read our last words: bytes of its own that nobody read would turn the close into a reset.
    lingers: bool,
}

/// Reads that are thrown away before other tasks get their turn.
const THROWN_AT_ONCE: usize = 16;

enum Step {
    Flush,
    Shutdown,
    Linger,
}

impl Connection {
    /// Begins the end. What comes first counts; whoever waits is told.
    pub(super) fn end(&mut self, why: Why, now: Instant) {
        if matches!(self.phase, Phase::Closing(_) | Phase::Closed) {
            return;
        }
        self.count(why);
        self.hub.retire(&self.line);
        let served = matches!(self.phase, Phase::Open);
        let unhappy = self.settle(why, served);
        if why.is_fault() || unhappy {
            self.tell(&why.error());
        }
        if !why.flushes() {
            self.outbox.clear();
        }
        self.frame_began = None;
        let until = now + self.hub.close_limit();
        self.phase = Phase::Closing(Closing {
            until,
            step: Step::Flush,
            lingers: matches!(why, Why::Handshake(_)) && !self.peer.outbound,
        });
    }

    fn count(&self, why: Why) {
        let stats = &self.hub.stats;
        match why {
            Why::Connect => stats.dials_failed.up(),
            Why::Frame(code) => stats.count_frame_rejected(code),
            Why::Timeout(what) => stats.count_timeout(what),
            Why::Idle => stats.closed_idle.up(),
            _ => {}
        }
    }

    /// Fails all that is open. True if a request was lost that cannot just be sent again.
    fn settle(&mut self, why: Why, served: bool) -> bool {
        self.line.close();
        let mut unhappy = false;
        for call in self.calls.take_all() {
            let failure = why.failure(call.op, call.is_sent(), served);
            unhappy |= !failure.again && failure.error.is_the_peers();
            call.fail(failure);
        }
        while let Some(mail) = self.line.next() {
            // Answers of workers to a peer that is gone go with it.
            if let Mail::Ask(ask) = mail {
                let failure = match why {
                    Why::Drain => why.failure(ask.request.op(), false, served),
                    // It came in the moment of the end: another connection will do.
                    _ => Failure {
                        error: why.error(),
                        again: true,
                    },
                };
                let _ = ask.reply.send(Err(failure));
            }
        }
        unhappy
    }

    /// Ready when the stream is closed. Nothing happens before the end has begun.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        let Phase::Closing(closing) = &mut self.phase else {
            return Poll::Pending;
        };
        let Some(stream) = self.stream.as_mut() else {
            return self.closed();
        };
        let late = closing.until <= now;
        let mut thrown = 0;
        loop {
            match closing.step {
                Step::Flush if late || self.outbox.is_empty() => closing.step = Step::Shutdown,
                // The write before this call took what could be taken.
                Step::Flush => return Poll::Pending,
                Step::Shutdown => match Pin::new(&mut *stream).poll_shutdown(cx) {
                    Poll::Pending if !late => return Poll::Pending,
                    _ => {
                        self.hub.stats.shut_down.up();
                        closing.step = Step::Linger;
                    }
                },
                Step::Linger if late || !closing.lingers => return self.closed(),
                Step::Linger if thrown >= THROWN_AT_ONCE => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Linger => {
                    thrown += 1;
                    let mut space = [MaybeUninit::uninit(); 1024];
                    let mut buf = ReadBuf::uninit(&mut space);
                    match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                        Poll::Ready(_) => return self.closed(),
                    }
                }
            }
        }
    }

    fn closed(&mut self) -> Poll<()> {
        self.phase = Phase::Closed;
        self.stream = None;
        Poll::Ready(())
    }
}

impl Drop for Connection {
    /// However the task ended: nobody is left waiting for it, and it is no longer counted.
    fn drop(&mut self) {
        self.line.close();
        while self.line.next().is_some() {}
        let stats = &self.hub.stats;
        match self.peer.outbound {
            true => stats.open_outbound.down(),
            false => stats.open_inbound.down(),
        }
        self.hub.gone(&self.line);
    }
}
