//! The task of one connection: dials or accepts, proves who is there, then asks and answers both ways over one stream.
//!
//! It is one future that is polled as a whole: whatever woke it, it takes its mail, reads, answers, writes what has
//! gathered in one go, and sets one timer for the nearest of its deadlines. Always: all its state is its own; what it holds is
//! bounded; each request of ours that it took is answered; the stream is shut down however it ends.

mod closing;
mod handshaking;
mod serving;

use std::{
    future::Future,
    mem::MaybeUninit,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use ron_core::{
    Lost,
    seam::{BoxFuture, Conn},
};
use tokio::io::{AsyncRead, ReadBuf};

use self::{closing::Closing, handshaking::Checked};
use crate::{
    contact::{Addr, Contact},
    id::Id,
    link::{
        answer::PeerInfo,
        calls::Calls,
        ending::Why,
        error::{RpcError, TimedOut},
        hub::Hub,
        line::{Failure, Line, Mail, Wish},
        outbox::Outbox,
        timer::Timer,
    },
    wire::{
        envelope::{encode_request, is_envelope},
        frame::FrameReader,
        handshake::{Accepter, Dialler},
    },
};

/// Read at once. Most frames fit.
const READ_BYTES: usize = 8 * 1024;

/// Reads in a row before other tasks get their turn.
const READS_AT_ONCE: usize = 16;

pub(crate) struct Connection {
    hub: Arc<Hub>,
    line: Arc<Line>,
    stream: Option<Conn>,
    phase: Phase,
    peer: PeerInfo,
    /// False for an address of which nobody said who is there.
    wanted: bool,
    reader: FrameReader,
    outbox: Outbox,
    calls: Calls,
    /// Writes of the peer that workers have in hand.
    serving: usize,
    /// Refusals since the peer last took what was written.
    refused_unread: u16,
    /// The failure of this dial has been told.
    told: bool,
    /// From the hello to the welcome.
    rtt: Option<Duration>,
    /// When this phase began.
    phase_began: Instant,
    /// When a request was last seen, in either direction.
    used: Instant,
    /// Since when the peer has been silent though it owes an answer or the rest of a frame.
    silent_since: Instant,
    frame_began: Option<Instant>,
    timer: Timer,
}

enum Phase {
    Connecting(BoxFuture<'static, std::io::Result<Conn>>),
    /// We said hello, and perhaps asked; the welcome is to come.
    Greeted(Box<Dialler>),
    /// Somebody connected; the hello is to come.
    Accepted,
    /// We welcomed, and answer reads; the proof is to come.
    Unproven(Box<Accepter>),
    /// A signature is being made or verified. Nothing is read meanwhile.
    Checking(BoxFuture<'static, Result<Checked, Lost>>),
    Open,
    Closing(Closing),
    Closed,
}

impl Connection {
    pub fn dial(hub: &Arc<Hub>, line: &Arc<Line>, to: Addr, id: Option<Id>, now: Instant) -> Self {
        let env = hub.env.clone();
        let dial = async move { env.connect(to.socket()).await };
        let contact = Contact {
            // A seed's id is known once it has proven it.
            id: id.unwrap_or(Id([0; 32])),
            addr: to,
        };
        hub.stats.open_outbound.up();
        let phase = Phase::Connecting(Box::pin(dial));
        let mut connection = Connection::new(hub, line, contact, phase, now);
        connection.wanted = id.is_some();
        connection
    }

    pub fn accept(
        hub: &Arc<Hub>,
        line: &Arc<Line>,
        stream: Conn,
        from: SocketAddr,
        now: Instant,
    ) -> Self {
        // Who it is and where it listens is said in the hello.
        let contact = Contact {
            id: Id([0; 32]),
            addr: from.into(),
        };
        hub.stats.open_inbound.up();
        let mut connection = Connection::new(hub, line, contact, Phase::Accepted, now);
        connection.stream = Some(stream);
        connection
    }

    fn new(hub: &Arc<Hub>, line: &Arc<Line>, contact: Contact, phase: Phase, now: Instant) -> Self {
        Connection {
            hub: hub.clone(),
            line: line.clone(),
            stream: None,
            phase,
            peer: PeerInfo {
                contact,
                proven: false,
                outbound: line.is_outbound(),
            },
            wanted: false,
            reader: FrameReader::new(hub.rules.max_frame_bytes),
            outbox: Outbox::default(),
            calls: Calls::default(),
            serving: 0,
            refused_unread: 0,
            told: false,
            rtt: None,
            phase_began: now,
            used: now,
            silent_since: now,
            frame_began: None,
            timer: Timer::default(),
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.phase_began = now;
        self.silent_since = now;
    }

    // ------------------------------------------------------------------------------------- mail

    fn heed(&mut self, now: Instant) {
        match self.line.wished() {
            Wish::Stay => {}
            Wish::MakeRoom => self.end(Why::MakeRoom, now),
            Wish::Drain => self.end(Why::Drain, now),
        }
        if self.line.take_canceled() {
            let swept = self.calls.sweep();
            self.hub.stats.canceled.add(swept);
        }
    }

    fn take_mail(&mut self, now: Instant) {
        let mut taken = false;
        while let Some(mail) = self.line.next() {
            taken = true;
            match mail {
                Mail::Ask(ask) if ask.reply.is_closed() => self.hub.stats.canceled.up(),
                Mail::Ask(ask) => self.calls.add(ask),
                Mail::Reply {
                    corr_id,
                    op,
                    response,
                } => {
                    self.serving -= 1;
                    self.respond(corr_id, op, &response);
                }
            }
        }
        if taken {
            self.touch(now);
            self.send_unsent(now);
        }
    }

    /// Sends what may be sent now: reads once the hello is out, everything once the peer is proven.
    fn send_unsent(&mut self, now: Instant) {
        let reads = match self.phase {
            Phase::Greeted(_) => true,
            Phase::Open => false,
            _ => return,
        };
        while self.outbox.len() < self.hub.rules.outbox_bytes {
            if !self.calls.any_due() {
                self.silent_since = now;
            }
            let Some(call) = self.calls.unsent(reads) else {
                return;
            };
            let Some(request) = call.request.take() else {
                return;
            };
            let left_ms = call.deadline.saturating_duration_since(now).as_millis();
            let left_ms = u32::try_from(left_ms).unwrap_or(u32::MAX).max(1);
            let (id, hedge) = (call.id, call.hedge);
            let out = self.outbox.room(192);
            let network = self.hub.rules.network;
            if let Err(error) = encode_request(out, network, id, left_ms, hedge, &request) {
                let failure = Failure {
                    error: RpcError::Wire(error.code()),
                    again: false,
                };
                self.calls.answer(id, request.op(), Err(failure));
            }
        }
    }

    fn touch(&mut self, now: Instant) {
        self.used = now;
        self.line.touch(self.hub.millis(now));
    }

    // ------------------------------------------------------------------------------ read and write

    /// True if something came.
    fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| self.phase.reads()) else {
            return false;
        };
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut space);
        match Pin::new(stream).poll_read(cx, &mut buf) {
            Poll::Pending => return false,
            Poll::Ready(Err(_)) => self.end(Why::Broken, now),
            Poll::Ready(Ok(())) if buf.filled().is_empty() => match self.reader.end() {
                Ok(()) => self.end(Why::Eof, now),
                Err(error) => self.end(Why::Frame(error.code()), now),
            },
            Poll::Ready(Ok(())) => {
                self.hub.stats.bytes_in.add(buf.filled().len() as u64);
                self.silent_since = now;
                self.handle_read(buf.filled(), now);
            }
        }
        true
    }

    /// Frames that came whole are handled where they lie; only what is cut is kept.
    fn handle_read(&mut self, mut read: &[u8], now: Instant) {
        while self.reader.pending() == 0 && self.phase.reads() {
            match self.reader.next_in(&mut read) {
                Ok(Some(frame)) => {
                    self.frame_began = None;
                    self.handle_frame(frame, now);
                }
                Ok(None) => break,
                Err(error) => self.end(Why::Frame(error.code()), now),
            }
        }
        if !matches!(self.phase, Phase::Closing(_)) {
            self.reader.push(read);
            self.handle_frames(now);
        }
    }

    fn handle_frames(&mut self, now: Instant) {
        let mut whole = false;
        while self.phase.reads() {
            match self.reader.next() {
                Ok(Some(frame)) => {
                    whole = true;
                    self.handle_frame(&frame, now);
                }
                Ok(None) => break,
                Err(error) => self.end(Why::Frame(error.code()), now),
            }
        }
        // A frame has so long in all, however it dribbles in.
        let began = self.frame_began.filter(|_| !whole).unwrap_or(now);
        self.frame_began = (self.reader.pending() > 0).then_some(began);
    }

    fn handle_frame(&mut self, frame: &[u8], now: Instant) {
        match &self.phase {
            Phase::Accepted => self.handle_hello(frame, now),
            Phase::Unproven(_) if is_envelope(frame) => self.handle_message(frame, now),
            Phase::Open => self.handle_message(frame, now),
            _ => match std::mem::replace(&mut self.phase, Phase::Accepted) {
                Phase::Greeted(dialler) => self.handle_welcome(*dialler, frame, now),
                Phase::Unproven(accepter) => self.handle_proof(*accepter, frame, now),
                other => self.phase = other,
            },
        }
    }

    /// True if something was taken by the peer.
    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.outbox.is_empty()) else {
            return false;
        };
        let mut written = 0;
        let polled = self.outbox.poll_write(stream, cx, now, &mut written);
        self.hub.stats.bytes_out.add(written);
        if let Poll::Ready(Err(_)) = polled {
            self.outbox.clear();
            self.end(Why::Broken, now);
        }
        if written > 0 {
            if self.outbox.len() < self.hub.rules.outbox_bytes {
                self.refused_unread = 0;
            }
            // There is room again for what was held back.
            self.send_unsent(now);
        }
        written > 0
    }

    // ---------------------------------------------------------------------------------- deadlines

    /// The nearest time at which something is over, and what it is; none while the CPU pool works.
    fn due(&self) -> Option<(Instant, Why)> {
        let rules = &self.hub.rules;
        let read = Why::Timeout(TimedOut::Read);
        let phase = match &self.phase {
            Phase::Connecting(_) => {
                let why = Why::Timeout(TimedOut::Connect);
                Some((self.phase_began + rules.connect, why))
            }
            Phase::Greeted(_) | Phase::Accepted | Phase::Unproven(_) => {
                Some((self.phase_began + rules.read, read))
            }
            Phase::Open if self.calls.is_empty() && self.serving == 0 => {
                Some((self.used + rules.idle, Why::Idle))
            }
            Phase::Open => None,
            Phase::Checking(_) | Phase::Closing(_) | Phase::Closed => return None,
        };
        let write = self.outbox.since().map(|since| since + rules.write);
        let write = write.map(|at| (at, Why::Timeout(TimedOut::Write)));
        let frame = self.frame_began.map(|began| (began + rules.read, read));
        let answer = (self.calls.any_due()).then(|| (self.silent_since + rules.read, read));
        let all = [phase, write, frame, answer].into_iter().flatten();
        all.min_by_key(|(at, _)| *at)
    }

    fn keep_time(&mut self, now: Instant) {
        while let Some(call) = self.calls.take_expired(now) {
            let what = TimedOut::Rpc(call.op);
            self.hub.stats.count_timeout(what);
            let error = RpcError::Timeout(what);
            self.tell(&error);
            let again = false;
            call.fail(Failure { error, again });
        }
        if let Some((at, why)) = self.due()
            && at <= now
        {
            self.end(why, now);
        }
    }

    /// Tells the node that the peer failed it. Until it has proven who it is, one failure is told for all who wait.
    fn tell(&mut self, error: &RpcError) {
        let known = self.peer.proven || (self.peer.outbound && self.wanted);
        if known && (self.peer.proven || !std::mem::replace(&mut self.told, true)) {
            self.hub.answer.failed(self.peer.contact, error);
        }
    }

    /// When to look again even if nothing happens.
    fn next_look(&self, now: Instant) -> Instant {
        let due = match &self.phase {
            Phase::Closing(closing) => Some(closing.until),
            _ => self.due().map(|(at, _)| at),
        };
        let times = [due, self.calls.next_deadline()].into_iter().flatten();
        times.min().unwrap_or(now + Duration::from_secs(60))
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.line.listen(cx.waker());
        let now = this.hub.env.now();
        this.heed(now);
        this.take_mail(now);
        this.keep_time(now);
        let mut reads = 0;
        loop {
            let read = this.read(cx, now);
            reads += usize::from(read);
            let moved = this.advance(cx, now) | this.write(cx, now) | read;
            if let Poll::Ready(()) = this.poll_close(cx, now) {
                return Poll::Ready(());
            }
            if !moved {
                break;
            }
            if reads >= READS_AT_ONCE {
                cx.waker().wake_by_ref();
                break;
            }
        }
        let look = this.next_look(now);
        this.timer.wake_by(&this.hub.env, look, now, cx);
        Poll::Pending
    }
}

impl Phase {
    fn reads(&self) -> bool {
        matches!(
            self,
            Phase::Greeted(_) | Phase::Accepted | Phase::Unproven(_) | Phase::Open
        )
    }
}

/// What the task of a connection takes, besides its stream, its line and what is under way.
pub const TASK_BYTES: usize = size_of::<Connection>();
