//! HTTP/2 frames as they come in, looked at only as far as their heads: how many carry no request.
//!
//! A PING, a SETTINGS or a reset costs the server an answer or some bookkeeping and the peer nine bytes. A client that
//! works needs a few of them; one that sends thousands a second is told to calm down. Always: no copy, no allocation;
//! the limit holds per connection, and one that keeps to it is never closed.

use std::time::Instant;

use crate::admission::TokenBucket;

const HEAD_BYTES: usize = 9;
/// Downloads need many of them: only every so-manieth counts.
const WINDOW_UPDATES_PER_TOKEN: u8 = 8;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head seen so far.
    have: usize,
    /// Bytes of the payload still to come.
    skip: usize,
    window_updates: u8,
    last_stream: u32,
    bucket: TokenBucket,
}

/// The peer sent more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood;

impl Frames {
    pub fn new(per_s: u32, now: Instant) -> Self {
        Frames {
            head: [0; HEAD_BYTES],
            have: 0,
            skip: 0,
            window_updates: 0,
            last_stream: 0,
            bucket: TokenBucket::new(per_s, per_s, now),
        }
    }

    /// What came after the preface, in pieces as they came.
    pub fn read(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), Flood> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let n = (HEAD_BYTES - self.have).min(bytes.len());
            self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have < HEAD_BYTES {
                return Ok(());
            }
            self.have = 0;
            let [l0, l1, l2, kind, flags, stream @ ..] = self.head;
            self.skip = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            if kind == HEADERS {
                self.last_stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            }
            if self.counts(kind, flags) {
                self.bucket.try_take(now()).map_err(|_| Flood)?;
            }
        }
    }

    fn counts(&mut self, kind: u8, flags: u8) -> bool {
        match kind {
            HEADERS => false,
            // Padding may be all there is to it.
            DATA => flags & END_STREAM == 0 && (self.skip == 0 || flags & PADDED != 0),
            WINDOW_UPDATE => {
                self.window_updates = (self.window_updates + 1) % WINDOW_UPDATES_PER_TOKEN;
                self.window_updates == 0
            }
            _ => true,
        }
    }

    /// GOAWAY with ENHANCE_YOUR_CALM.
    pub fn farewell(&self) -> [u8; 17] {
        let mut frame = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];
        frame[9..13].copy_from_slice(&self.last_stream.to_be_bytes());
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::serve::tests::some_instant;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![
            0,
            (payload >> 8) as u8,
            payload as u8,
            kind,
            flags,
            0,
            0,
            0,
            5,
        ];
        frame.resize(HEAD_BYTES + payload, 0xff);
        frame
    }

    /// How many of a hundred such frames are let through at once, out of ten per second.
    fn let_through(kind: u8, flags: u8, payload: usize) -> usize {
        let now = some_instant();
        let mut frames = Frames::new(10, now);
        let one = frame(kind, flags, payload);
        let sent = (0..100).take_while(|_| frames.read(&one, || now).is_ok());
        sent.count()
    }

    #[test]
    fn what_carries_no_request_is_counted_and_what_does_is_not() {
        for (what, kind, flags, payload, expected) in [
            ("DATA", DATA, 0, 7, 100),
            ("empty DATA", DATA, 0, 0, 10),
            ("DATA of padding", DATA, PADDED, 7, 10),
            ("the end of a stream", DATA, END_STREAM, 0, 100),
            ("HEADERS", HEADERS, 4, 30, 100),
            ("PRIORITY", 2, 0, 5, 10),
            ("RST_STREAM", 3, 0, 4, 10),
            ("SETTINGS", 4, 0, 0, 10),
            ("PING", 6, 0, 8, 10),
            ("WINDOW_UPDATE", WINDOW_UPDATE, 0, 4, 87),
            ("CONTINUATION", 9, 0, 1, 10),
            ("an unknown one", 77, 0, 300, 10),
        ] {
            assert_eq!(let_through(kind, flags, payload), expected, "{what}");
        }
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_closed() {
        let start = some_instant();
        let mut frames = Frames::new(10, start);
        for n in 0..1_000 {
            let now = start + Duration::from_millis(100) * n;
            assert_eq!(frames.read(&frame(6, 0, 8), || now), Ok(()), "{n}");
        }
    }

    #[test]
    fn the_farewell_names_the_last_stream_and_asks_for_calm() {
        let now = some_instant();
        let mut frames = Frames::new(10, now);
        frames.read(&frame(HEADERS, 4, 3), || now).unwrap();
        let expected = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0xb];
        assert_eq!(frames.farewell(), expected);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_the_bytes_come(
            sent in prop::collection::vec((0u8..12, any::<u8>(), 0usize..400), 0..60),
            cuts in prop::collection::vec(1usize..50, 1..20),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|(k, f, n)| frame(*k, *f, *n)).collect();
            let now = some_instant();
            let (mut whole, mut pieces) = (Frames::new(20, now), Frames::new(20, now));
            let expected = whole.read(&bytes, || now);
            let (mut rest, mut cuts, mut got) = (&bytes[..], cuts.iter().cycle(), Ok(()));
            while !rest.is_empty() && got.is_ok() {
                let (piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                got = pieces.read(piece, || now);
                rest = later;
            }
            prop_assert_eq!(got, expected);
        }
    }
}
