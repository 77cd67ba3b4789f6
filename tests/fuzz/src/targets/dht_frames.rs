//! Frames of the DHT: however a stream is cut into reads its frames are the same, and no announced length takes room.
//!
//! Every input is also read behind the four lengths at the edges, so that no corpus has to find them.

use svc_dht::wire::frame::{FrameError, FrameReader, MAX_FRAME_BYTES};

const EDGES: [usize; 4] = [0, 1, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1];

// proves: DHT-10.6
pub fn run(input: (u8, u16, &[u8])) {
    let (piece, cap, stream) = input;
    let (piece, cap) = (usize::from(piece) + 1, usize::from(cap) + 1);
    let whole = read(stream, stream.len().max(1), cap);
    assert_eq!(read(stream, piece, cap), whole);
    assert!(whole.0.iter().all(|frame| (1..=cap).contains(&frame.len())));

    for len in EDGES {
        let mut edge = (len as u32).to_be_bytes().to_vec();
        edge.extend_from_slice(stream);
        let (frames, end) = read(&edge, piece, MAX_FRAME_BYTES);
        match len {
            0 => assert_eq!((frames.len(), end), (0, Err(FrameError::Empty))),
            1 => assert_eq!(frames.is_empty(), stream.is_empty()),
            MAX_FRAME_BYTES => assert_eq!(frames.is_empty(), stream.len() < len),
            _ => assert_eq!((frames.len(), end), (0, Err(FrameError::TooLong { len }))),
        }
    }
}

fn read(stream: &[u8], piece: usize, cap: usize) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
    let mut reader = FrameReader::new(cap);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
        assert!(reader.pending() <= cap + 4);
    }
    (frames, reader.end())
}
