//! Frames: how messages are told apart in a stream of bytes. A big-endian `u32` length, then that many bytes.
//!
//! Always: a length is judged as soon as its four bytes are there and before room for the rest is made; room grows with
//! what has arrived, not with what was announced; a reader that holds nothing has no memory; and however the stream is
//! cut into reads, the frames are the same. After an error the stream means nothing any more: the error stays.

use bytes::{Buf, Bytes, BytesMut};

/// The longest frame that anybody sends; `max_frame_bytes` may accept less.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;

/// The length in front of a frame.
pub const PREFIX_LEN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame without content")]
    Empty,
    #[error("a frame of {len} bytes is too long")]
    TooLong { len: usize },
    #[error("the stream ended within a frame")]
    Truncated,
}

impl FrameError {
    /// The label of `frames_rejected_total`.
    pub fn code(&self) -> &'static str {
        match self {
            FrameError::Empty => "empty",
            FrameError::TooLong { .. } => "too_long",
            FrameError::Truncated => "truncated",
        }
    }
}

/// Assembles frames over as many reads as they take.
///
/// For each read: [`push`](Self::push) what was read, then [`next`](Self::next) until it gives nothing. At the end of
/// the stream: [`end`](Self::end).
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    max_bytes: u32,
    broken: Option<FrameError>,
}

impl FrameReader {
    pub fn new(max_bytes: usize) -> Self {
        FrameReader {
            buffer: BytesMut::new(),
            max_bytes: max_bytes.min(MAX_FRAME_BYTES) as u32,
            broken: None,
        }
    }

    pub fn push(&mut self, read: &[u8]) {
        if self.broken.is_none() {
            self.buffer.extend_from_slice(read);
        }
    }

    /// The next whole frame without its length, if it has arrived.
    #[expect(
        clippy::should_implement_trait,
        reason = "None is not its end: more may be pushed"
    )]
    pub fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_LEN>() else {
            self.release();
            return Ok(None);
        };
        let len = self.judge(*prefix)?;
        if self.buffer.len() < PREFIX_LEN + len {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_LEN);
        Ok(Some(self.buffer.split_to(len).freeze()))
    }

    /// The next whole frame of what was just read, in place: for a reader that holds nothing of earlier reads. When it
    /// gives nothing, what is left of `read` is to be [pushed](Self::push).
    pub fn next_in<'a>(&mut self, read: &mut &'a [u8]) -> Result<Option<&'a [u8]>, FrameError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some((prefix, content)) = read.split_first_chunk::<PREFIX_LEN>() else {
            return Ok(None);
        };
        let len = self.judge(*prefix)?;
        let Some((frame, rest)) = content.split_at_checked(len) else {
            return Ok(None);
        };
        *read = rest;
        Ok(Some(frame))
    }

    /// The stream has ended: fine between two frames, an error within one.
    pub fn end(&self) -> Result<(), FrameError> {
        match (self.broken, self.buffer.is_empty()) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(()),
            (None, false) => Err(FrameError::Truncated),
        }
    }

    /// Bytes of a frame that is not whole yet.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// The length that a frame announces, if it may have it.
    fn judge(&mut self, prefix: [u8; PREFIX_LEN]) -> Result<usize, FrameError> {
        match u32::from_be_bytes(prefix) {
            0 => Err(self.fail(FrameError::Empty)),
            len if len > self.max_bytes => {
                Err(self.fail(FrameError::TooLong { len: len as usize }))
            }
            len => Ok(len as usize),
        }
    }

    /// Between two frames a connection may stay idle for long: it should cost nothing.
    fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    fn fail(&mut self, error: FrameError) -> FrameError {
        self.buffer = BytesMut::new();
        self.broken = Some(error);
        error
    }
}

/// Appends one frame, whose content `write` appends. Where that fails, or is nothing, or too long to be sent, `out`
/// is left as it was.
pub fn put_frame<E: From<FrameError>>(
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_LEN]);
    let written = write(out).and_then(|()| match out.len() - start - PREFIX_LEN {
        0 => Err(FrameError::Empty.into()),
        len if len > MAX_FRAME_BYTES => Err(FrameError::TooLong { len }.into()),
        len => Ok(len as u32),
    });
    match written {
        Ok(len) => {
            out[start..start + PREFIX_LEN].copy_from_slice(&len.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Appends bytes that are there already, such as those of the handshake, as one frame.
pub fn put_bytes_as_frame(out: &mut BytesMut, content: &[u8]) -> Result<(), FrameError> {
    put_frame(out, |out| {
        out.extend_from_slice(content);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(contents: &[Vec<u8>]) -> BytesMut {
        let mut out = BytesMut::new();
        for content in contents {
            put_bytes_as_frame(&mut out, content).unwrap();
        }
        out
    }

    /// All frames that reading `stream` in these pieces gives, and what it ended with.
    fn read(stream: &[u8], pieces: &[usize], max: usize) -> (Vec<Bytes>, Result<(), FrameError>) {
        let mut reader = FrameReader::new(max);
        let (mut frames, mut rest) = (Vec::new(), stream);
        let mut pieces = pieces.iter().copied().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(pieces.next().unwrap_or(1).clamp(1, rest.len()));
            rest = after;
            reader.push(piece);
            loop {
                match reader.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Err(error)),
                }
            }
        }
        (frames, reader.end())
    }

    // proves: DHT-7.1, DHT-10.6
    #[test]
    fn lengths_of_0_and_of_more_than_the_cap_are_refused_and_those_between_are_read() {
        for (len, expected) in [
            (0, Err(FrameError::Empty)),
            (1, Ok(())),
            (MAX_FRAME_BYTES, Ok(())),
            (
                MAX_FRAME_BYTES + 1,
                Err(FrameError::TooLong {
                    len: MAX_FRAME_BYTES + 1,
                }),
            ),
            (
                u32::MAX as usize,
                Err(FrameError::TooLong {
                    len: u32::MAX as usize,
                }),
            ),
        ] {
            let mut stream = (len as u32).to_be_bytes().to_vec();
            stream.resize(PREFIX_LEN + len.min(MAX_FRAME_BYTES + 1), 7);
            let (frames, end) = read(&stream, &[16 * 1024], MAX_FRAME_BYTES);
            assert_eq!(end, expected, "{len}");
            assert_eq!(frames.len(), usize::from(expected.is_ok()), "{len}");
            assert!(frames.iter().all(|frame| frame.len() == len));
        }
    }

    // proves: DHT-7.3
    #[test]
    fn whole_frames_are_read_in_place_and_the_cut_one_is_left() {
        let stream = framed(&[vec![1], vec![2; 300], vec![3; 5]]);
        let (came, rest) = stream.split_at(stream.len() - 2);
        let mut reader = FrameReader::new(MAX_FRAME_BYTES);
        let mut read = came;
        assert_eq!(reader.next_in(&mut read), Ok(Some(&[1][..])));
        assert_eq!(reader.next_in(&mut read), Ok(Some(&[2; 300][..])));
        assert_eq!(reader.next_in(&mut read), Ok(None));
        assert_eq!(reader.pending(), 0);
        reader.push(read);
        reader.push(rest);
        assert_eq!(reader.next().unwrap().unwrap(), [3; 5][..]);
        let mut bad = &[0, 0, 0, 0, 9][..];
        assert_eq!(reader.next_in(&mut bad), Err(FrameError::Empty));
        assert_eq!(reader.next_in(&mut read), Err(FrameError::Empty));
    }

    // proves: DHT-7.1
    #[test]
    fn a_length_above_the_cap_is_refused_by_its_four_bytes_and_nothing_is_kept() {
        let mut reader = FrameReader::new(100);
        reader.push(&101_u32.to_be_bytes());
        assert_eq!(reader.next(), Err(FrameError::TooLong { len: 101 }));
        reader.push(&[0; 4096]);
        assert_eq!(
            reader.next(),
            Err(FrameError::TooLong { len: 101 }),
            "for good"
        );
        assert_eq!((reader.pending(), reader.buffer.capacity()), (0, 0));
        assert!(reader.end().is_err());
    }

    // proves: DHT-7.1
    #[test]
    fn an_announced_frame_takes_no_more_room_than_has_arrived() {
        let mut reader = FrameReader::new(MAX_FRAME_BYTES);
        reader.push(&(MAX_FRAME_BYTES as u32).to_be_bytes());
        reader.push(&[0; 10]);
        assert_eq!(reader.next(), Ok(None));
        assert!(
            reader.buffer.capacity() < 1024,
            "{}",
            reader.buffer.capacity()
        );
    }

    #[test]
    fn an_idle_reader_has_no_memory() {
        let mut reader = FrameReader::new(MAX_FRAME_BYTES);
        reader.push(&framed(&[vec![1; 5000]]));
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.next(), Ok(None));
        assert_eq!(reader.buffer.capacity(), 0);
    }

    #[test]
    fn a_frame_that_cannot_be_sent_leaves_what_was_there() {
        let mut out = framed(&[vec![1, 2, 3]]);
        let before = out.clone();
        let long = vec![0; MAX_FRAME_BYTES + 1];
        let refused = put_bytes_as_frame(&mut out, &long);
        assert_eq!(refused, Err(FrameError::TooLong { len: long.len() }));
        assert_eq!(put_bytes_as_frame(&mut out, &[]), Err(FrameError::Empty));
        assert_eq!(out, before);
    }

    proptest! {
        // proves: DHT-1.10, DHT-7.3
        #[test]
        fn however_a_stream_is_split_its_frames_are_the_same(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
            pieces in proptest::collection::vec(1..400_usize, 1..8),
        ) {
            let (frames, end) = read(&framed(&contents), &pieces, 300);
            prop_assert_eq!(frames, contents);
            prop_assert_eq!(end, Ok(()));
        }

        // proves: DHT-7.3
        #[test]
        fn a_stream_cut_within_a_frame_is_truncated(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..4),
            pieces in proptest::collection::vec(1..50_usize, 1..4),
            cut in any::<proptest::sample::Index>(),
        ) {
            let stream = framed(&contents);
            let cut = cut.index(stream.len());
            let mut ends = vec![0];
            for content in &contents {
                ends.push(ends[ends.len() - 1] + PREFIX_LEN + content.len());
            }
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let (frames, end) = read(&stream[..cut], &pieces, 40);
            prop_assert_eq!(&frames[..], &contents[..whole]);
            prop_assert_eq!(end.is_ok(), ends.contains(&cut));
        }

        #[test]
        fn garbage_is_read_alike_however_it_is_split(
            stream in proptest::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..200),
            pieces in proptest::collection::vec(1..50_usize, 1..4),
        ) {
            prop_assert_eq!(read(&stream, &pieces, 64), read(&stream, &[usize::MAX], 64));
        }
    }
}
