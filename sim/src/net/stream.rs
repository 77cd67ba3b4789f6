//! One TCP-like connection: two directions, each a window of bytes in flight.
//!
//! A byte written is readable only after its segment's transit time; segments of one direction never
//! overtake each other; a writer whose window is full waits until the reader has read.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Host, HostState, Incarnation, Network, NodeId, stale};
use crate::{detail::Message, timer};

/// Bytes that may be under way or unread in one direction.
const WINDOW: usize = 64 * 1024;

/// What both ends of a connection share.
pub(super) struct Wire {
    net: Network,
    /// Unique in its network.
    number: u64,
    ends: [(Arc<Host>, Incarnation); 2],
    state: Mutex<Pair>,
}

struct Pair {
    /// `lanes[side]` carries what `side` writes.
    lanes: [Lane; 2],
    ends: [End; 2],
    /// Something between the ends has forgotten the connection: nothing arrives any more.
    silent: bool,
}

#[derive(Default)]
struct Lane {
    segments: VecDeque<Segment>,
    /// Cut off by a partition; they go out when it heals.
    stalled: VecDeque<Payload>,
    outstanding: usize,
    /// Moments are nanoseconds of world time; 0 is long ago.
    last_arrival: u64,
    /// When the last segment has left a slow link and the next one may begin.
    free_at: u64,
    fin_sent: bool,
    reader: Option<Waker>,
    /// The arrival for which the reader has been promised a wake-up.
    promised: Option<u64>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Its stream was dropped: bytes that arrive are answered with a reset.
    Closed,
    /// Its process or machine is gone without a word.
    Dead,
    /// It has received a reset.
    Reset,
}

struct Segment {
    arrives: u64,
    payload: Payload,
}

enum Payload {
    Data(Bytes),
    Fin,
    Reset,
}

impl Wire {
    pub fn new(net: Network, number: u64, ends: [(Arc<Host>, Incarnation); 2]) -> Self {
        let pair = Pair {
            lanes: Default::default(),
            ends: Default::default(),
            silent: false,
        };
        Wire {
            net,
            number,
            ends,
            state: Mutex::new(pair),
        }
    }

    pub fn node(&self, side: usize) -> NodeId {
        self.ends[side].0.node
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn is_open(&self, side: usize) -> bool {
        self.lock().ends[side] == End::Open
    }

    /// The process of `side` died; if its machine lives it resets the peer.
    pub fn owner_died(&self, side: usize, tells_peer: bool) {
        let mut pair = self.lock();
        if matches!(pair.ends[side], End::Open | End::Closed) {
            pair.ends[side] = End::Dead;
            // What waited behind a partition was in the memory of who died.
            pair.lanes[side].stalled.clear();
            if tells_peer {
                self.send(&mut pair, side, Payload::Reset);
            }
        }
        pair.wake_all();
    }

    /// The machine of a dead end is back: a peer with unanswered bytes is reset.
    pub fn reset_dead_ends(&self) {
        let mut pair = self.lock();
        for side in 0..2 {
            if pair.ends[side] == End::Dead && pair.lanes[1 - side].outstanding > 0 {
                self.send(&mut pair, side, Payload::Reset);
            }
        }
    }

    /// Both ends are reset at once, as by a middlebox. False if there was nothing left to reset.
    pub fn reset_both(&self) -> bool {
        let mut pair = self.lock();
        let open = pair.ends.contains(&End::Open);
        for end in &mut pair.ends {
            if *end == End::Open {
                *end = End::Reset;
            }
        }
        pair.wake_all();
        open
    }

    /// Nothing arrives any more, either way, and nobody is told. False if there was nothing open to silence.
    pub fn go_silent(&self) -> bool {
        let mut pair = self.lock();
        let open = pair.ends.contains(&End::Open) && !pair.silent;
        if open {
            pair.silent = true;
            let now = timer::now_ns();
            for lane in &mut pair.lanes {
                lane.segments.retain(|segment| segment.arrives <= now);
                lane.stalled.clear();
            }
        }
        open
    }

    pub fn release_stalled(&self) {
        let mut pair = self.lock();
        for side in 0..2 {
            if pair.lanes[side].stalled.is_empty() {
                continue;
            }
            let delay = self.net.retransmission();
            let floor = timer::now_ns() + delay.as_nanos() as u64;
            pair.lanes[side].last_arrival = pair.lanes[side].last_arrival.max(floor);
            for payload in std::mem::take(&mut pair.lanes[side].stalled) {
                self.send(&mut pair, side, payload);
            }
        }
    }

    /// Puts a segment of `side` on its way, or aside while the link is cut.
    fn send(&self, pair: &mut Pair, side: usize, payload: Payload) {
        if pair.silent {
            return;
        }
        let len = if let Payload::Data(data) = &payload {
            data.len()
        } else {
            0
        };
        let (from, to) = (self.node(side), self.node(1 - side));
        let stalled = !pair.lanes[side].stalled.is_empty();
        let transit = if stalled {
            None
        } else {
            self.net.transit(from, to, len)
        };
        let Some(transit) = transit else {
            // A reset is not retransmitted: across a partition it is simply lost.
            self.show(side, &payload, len, None);
            if !matches!(payload, Payload::Reset) {
                pair.lanes[side].stalled.push_back(payload);
            }
            return;
        };
        let lane = &mut pair.lanes[side];
        let departs = lane.free_at.max(timer::now_ns()) + transit.departure_ns;
        lane.free_at = departs;
        let arrives = lane.last_arrival.max(departs + transit.travel_ns);
        lane.last_arrival = arrives;
        self.show(side, &payload, len, Some(arrives));
        let resets = matches!(payload, Payload::Reset);
        lane.segments.push_back(Segment { arrives, payload });
        lane.promise_reader();
        if resets && let Some(writer) = &pair.lanes[1 - side].writer {
            // Waiting for room, it would otherwise never hear of the reset.
            timer::wake_at(arrives, writer);
        }
        // Nobody reads at a closed or dead end: what arrives there is judged at once.
        if pair.ends[1 - side] != End::Open {
            self.arrive_at_no_reader(pair, side);
        }
    }

    /// Tells whoever taps the network.
    fn show(&self, side: usize, payload: &Payload, bytes: usize, arrives: Option<u64>) {
        let Some(tap) = self.net.shared.tap.get() else {
            return;
        };
        tap(Message {
            from: self.node(side).0,
            to: self.node(1 - side).0,
            sent: timer::elapsed(),
            arrives: arrives.map(Duration::from_nanos),
            bytes,
            kind: match payload {
                Payload::Data(_) => "data",
                Payload::Fin => "end",
                Payload::Reset => "reset",
            },
        });
    }

    /// Bytes for an end without a reader: a live machine answers with a reset, a silent one not at all.
    fn arrive_at_no_reader(&self, pair: &mut Pair, side: usize) {
        let has_data = pair.lanes[side]
            .segments
            .iter()
            .any(|s| matches!(s.payload, Payload::Data(_)));
        let machine_lives = self.ends[1 - side].0.state() != HostState::PoweredOff;
        let answers = match pair.ends[1 - side] {
            End::Closed => true,
            End::Dead => machine_lives,
            End::Open | End::Reset => false,
        };
        if has_data && answers && pair.ends[side] == End::Open {
            pair.lanes[side].segments.clear();
            self.send(pair, 1 - side, Payload::Reset);
        }
    }

    fn check_owner(&self, side: usize) -> io::Result<()> {
        let (host, incarnation) = &self.ends[side];
        if host.state() == HostState::Up(*incarnation) {
            Ok(())
        } else {
            Err(stale())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pair> {
        self.state.lock().unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.net.forget(self);
    }
}

impl Pair {
    fn wake_all(&mut self) {
        for lane in &mut self.lanes {
            for waker in [lane.reader.take(), lane.writer.take()]
                .into_iter()
                .flatten()
            {
                waker.wake();
            }
            lane.promised = None;
        }
    }

    /// A reset that has arrived at `side` ends both of its directions.
    fn take_reset(&mut self, side: usize) -> bool {
        let lane = &mut self.lanes[1 - side];
        let now = timer::now_ns();
        // A reset overtakes unread data, as in TCP.
        let arrived = lane
            .segments
            .iter()
            .any(|s| matches!(s.payload, Payload::Reset) && s.arrives <= now);
        if arrived {
            lane.segments.clear();
            self.ends[side] = End::Reset;
            self.wake_all();
        }
        self.ends[side] == End::Reset
    }
}

impl Lane {
    /// Makes sure that a waiting reader wakes when the first segment arrives.
    fn promise_reader(&mut self) {
        let (Some(reader), Some(first)) = (&self.reader, self.segments.front()) else {
            return;
        };
        // A reset may sit behind data that arrives no later: the front is always the first arrival.
        if self.promised.is_none_or(|at| at > first.arrives) {
            timer::wake_at(first.arrives, reader);
            self.promised = Some(first.arrives);
        }
    }
}

/// One end of a connection.
pub struct SimStream {
    wire: Arc<Wire>,
    side: usize,
}

impl SimStream {
    pub(super) fn new(wire: Arc<Wire>, side: usize) -> Self {
        SimStream { wire, side }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wire.check_owner(self.side)?;
        let mut pair = self.wire.lock();
        if pair.take_reset(self.side) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let lane = &mut pair.lanes[1 - self.side];
        let now = timer::now_ns();
        let before = buf.filled().len();
        while let Some(segment) = lane.segments.front_mut()
            && segment.arrives <= now
            && buf.remaining() > 0
        {
            match &mut segment.payload {
                Payload::Data(data) => {
                    let n = data.len().min(buf.remaining());
                    buf.put_slice(&data[..n]);
                    data.advance(n);
                    lane.outstanding -= n;
                    if data.is_empty() {
                        lane.segments.pop_front();
                    }
                }
                // Stays in front: every later read sees the end too.
                Payload::Fin => break,
                Payload::Reset => unreachable!("taken above"),
            }
        }
        if buf.filled().len() > before {
            lane.promised = None;
            if let Some(writer) = lane.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Ok(()));
        }
        let ended = lane
            .segments
            .front()
            .is_some_and(|s| s.arrives <= now && matches!(s.payload, Payload::Fin));
        if ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if lane
            .reader
            .as_ref()
            .is_none_or(|w| !w.will_wake(cx.waker()))
        {
            lane.reader = Some(cx.waker().clone());
            lane.promised = None;
        }
        if lane.promised.is_some_and(|at| at <= now) {
            lane.promised = None;
        }
        lane.promise_reader();
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire.check_owner(self.side)?;
        let mut pair = self.wire.lock();
        if pair.take_reset(self.side) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let lane = &mut pair.lanes[self.side];
        if lane.fin_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = WINDOW - lane.outstanding;
        if room == 0 {
            lane.writer = Some(cx.waker().clone());
            // A reset that is under way already wakes only who waited when it was sent.
            let mut inbound = pair.lanes[1 - self.side].segments.iter();
            if let Some(reset) = inbound.find(|s| matches!(s.payload, Payload::Reset)) {
                timer::wake_at(reset.arrives, cx.waker());
            }
            return Poll::Pending;
        }
        let n = room.min(data.len());
        lane.outstanding += n;
        self.wire.send(
            &mut pair,
            self.side,
            Payload::Data(Bytes::copy_from_slice(&data[..n])),
        );
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.check_owner(self.side)?;
        let mut pair = self.wire.lock();
        if pair.take_reset(self.side) {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        if !std::mem::replace(&mut pair.lanes[self.side].fin_sent, true) {
            self.wire.send(&mut pair, self.side, Payload::Fin);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if self.wire.check_owner(self.side).is_err() {
            return;
        }
        let mut pair = self.wire.lock();
        if pair.ends[self.side] != End::Open {
            return;
        }
        pair.ends[self.side] = End::Closed;
        // What is still under way counts as unread: it will find nobody.
        let unread = pair.lanes[1 - self.side]
            .segments
            .iter()
            .any(|s| matches!(s.payload, Payload::Data(_)));
        if unread {
            // Closing with unread bytes resets, as TCP does.
            self.wire.send(&mut pair, self.side, Payload::Reset);
        } else if !std::mem::replace(&mut pair.lanes[self.side].fin_sent, true) {
            self.wire.send(&mut pair, self.side, Payload::Fin);
        }
        pair.lanes[1 - self.side].reader = None;
    }
}
