//! Decompression that a small body cannot turn against us.
//!
//! Always: the output is at most `max_bytes`, and after each 4 KiB of input, and at the end, at most
//! `max_ratio` times the input so far. Input is taken in those steps however it arrives, so the same body
//! gets the same answer whatever the network did to it; no more than the allowance is ever held.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

use crate::problem::BodyFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflateLimits {
    pub max_ratio: u32,
    pub max_bytes: u64,
}

pub struct Inflater {
    limits: InflateLimits,
    decoder: MultiGzDecoder<Allowance>,
    /// Input that does not fill a step yet.
    step: Vec<u8>,
    fed: u64,
}

pub(super) const STEP: usize = 4096;

impl Inflater {
    pub fn new(limits: InflateLimits) -> Self {
        Inflater {
            limits,
            decoder: MultiGzDecoder::new(Allowance::default()),
            step: Vec::with_capacity(STEP),
            fed: 0,
        }
    }

    /// Takes compressed bytes, gives what they expand to so far.
    pub fn push(&mut self, mut input: &[u8]) -> Result<Bytes, BodyFault> {
        while !input.is_empty() {
            let (now, later) = input.split_at(input.len().min(STEP - self.step.len()));
            self.step.extend_from_slice(now);
            input = later;
            if self.step.len() == STEP {
                self.feed()?;
            }
        }
        Ok(self.take())
    }

    /// The rest, once the input has ended. A body that breaks off is corrupt.
    pub fn finish(&mut self) -> Result<Bytes, BodyFault> {
        self.feed()?;
        self.decoder.try_finish().map_err(|_| self.fault())?;
        Ok(self.take())
    }

    fn feed(&mut self) -> Result<(), BodyFault> {
        self.fed += self.step.len() as u64;
        let by_ratio = self.fed.saturating_mul(self.limits.max_ratio.into());
        self.decoder.get_mut().allowed = by_ratio.min(self.limits.max_bytes);
        let written = self.decoder.write_all(&self.step);
        // Without the flush some output would wait in the decoder and count for a later step.
        written
            .and_then(|()| self.decoder.flush())
            .map_err(|_| self.fault())?;
        self.step.clear();
        Ok(())
    }

    fn fault(&self) -> BodyFault {
        let sink = self.decoder.get_ref();
        if !sink.exceeded {
            BodyFault::Corrupt
        } else if sink.allowed == self.limits.max_bytes {
            BodyFault::Expanded {
                cap: self.limits.max_bytes,
            }
        } else {
            BodyFault::Ratio {
                ratio: self.limits.max_ratio,
            }
        }
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.decoder.get_mut().out))
    }
}

/// Where output goes while it is within what is allowed.
#[derive(Default)]
struct Allowance {
    out: Vec<u8>,
    total: u64,
    allowed: u64,
    exceeded: bool,
}

impl Write for Allowance {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.total += data.len() as u64;
        if self.total > self.allowed {
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::{Compression, read, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(
        input: &[u8],
        limits: InflateLimits,
        chunks: &[usize],
    ) -> Result<Vec<u8>, BodyFault> {
        let mut inflater = Inflater::new(limits);
        let (mut out, mut rest) = (Vec::new(), input);
        for chunk in chunks.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(*chunk));
            out.extend(inflater.push(now)?);
            rest = later;
        }
        out.extend(inflater.finish()?);
        Ok(out)
    }

    /// What a plain decoder makes of a prefix: as much as comes out before it runs dry.
    fn expands_to(prefix: &[u8]) -> u64 {
        let mut out = Vec::new();
        let _ = read::MultiGzDecoder::new(prefix).read_to_end(&mut out);
        out.len() as u64
    }

    const WIDE: InflateLimits = InflateLimits {
        max_ratio: u32::MAX,
        max_bytes: u64::MAX,
    };

    proptest! {
        #[test]
        fn whatever_the_chunks_it_gives_the_data_or_the_limit_that_it_breaks(
            words in proptest::collection::vec((any::<u8>(), 1usize..2000), 0..40),
            noise in proptest::collection::vec(any::<u8>(), 0..20_000),
            noise_first in any::<bool>(),
            chunks in proptest::collection::vec(1usize..9000, 1..8),
            max_ratio in 1u32..12,
            max_bytes in 0u64..60_000,
        ) {
            let runs: Vec<u8> = words.iter().flat_map(|(b, n)| vec![*b; *n]).collect();
            let data = if noise_first { [noise, runs].concat() } else { [runs, noise].concat() };
            let input = gzip(&data);
            let limits = InflateLimits { max_ratio, max_bytes };
            let steps = (1..=input.len() / STEP).map(|i| i * STEP).chain([input.len()]);
            let within = steps.clone().all(|n| {
                expands_to(&input[..n]) <= (n as u64 * u64::from(max_ratio)).min(max_bytes)
            });
            let got = inflate(&input, limits, &chunks);
            match &got {
                Ok(out) => {
                    prop_assert!(within);
                    prop_assert_eq!(out, &data);
                }
                Err(BodyFault::Ratio { .. }) => prop_assert!(!within),
                Err(BodyFault::Expanded { .. }) => prop_assert!(data.len() as u64 > max_bytes),
                Err(other) => prop_assert!(false, "{other}"),
            }
            prop_assert_eq!(got, inflate(&input, limits, &[1 << 20]));
            prop_assert_eq!(inflate(&input, WIDE, &chunks), Ok(data));
        }

        #[test]
        fn what_is_not_gzip_is_corrupt_and_never_a_panic(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            cut in 0usize..3000,
            flip in 0usize..3000,
        ) {
            let whole = gzip(&data);
            let cut = &whole[..cut % whole.len()];
            prop_assert_eq!(inflate(cut, WIDE, &[100]), Err(BodyFault::Corrupt));
            let mut flipped = whole.clone();
            let at = flip % whole.len();
            flipped[at] ^= 0x10;
            // A few bits mean nothing (time, system, padding); the rest are covered by the checksum.
            if let Ok(out) = inflate(&flipped, WIDE, &[100]) {
                prop_assert_eq!(out, data.clone());
            }
            for trailer in whole.len() - 8..whole.len() {
                let mut flipped = whole.clone();
                flipped[trailer] ^= 1;
                prop_assert_eq!(inflate(&flipped, WIDE, &[100]), Err(BodyFault::Corrupt));
            }
            if data.len() > 2 && data[..2] != [0x1f, 0x8b] {
                prop_assert_eq!(inflate(&data, WIDE, &[100]), Err(BodyFault::Corrupt));
            }
        }
    }

    // proves: EDG-5.1, KMS-7.1
    #[test]
    fn a_bomb_is_defused_before_it_fills_memory() {
        let limits = InflateLimits {
            max_ratio: 10,
            max_bytes: 10 << 20,
        };
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut inflater = Inflater::new(limits);
        assert_eq!(inflater.push(&bomb), Err(BodyFault::Ratio { ratio: 10 }));
        assert!(inflater.decoder.get_ref().out.len() <= 10 * STEP);
        let absolute = InflateLimits {
            max_ratio: u32::MAX,
            ..limits
        };
        let expanded = Err(BodyFault::Expanded { cap: 10 << 20 });
        assert_eq!(inflate(&bomb, absolute, &[100_000]), expanded);
    }

    #[test]
    fn members_may_follow_each_other_and_nothing_else_may() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(inflate(&two, WIDE, &[5]).unwrap(), b"one two");
        let trailing = [gzip(b"one"), b"tail".to_vec()].concat();
        assert_eq!(inflate(&trailing, WIDE, &[5]), Err(BodyFault::Corrupt));
    }
}
