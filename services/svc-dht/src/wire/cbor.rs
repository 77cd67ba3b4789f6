//! The part of CBOR that the wire needs, in its one deterministic form: unsigned numbers, byte strings and arrays.
//!
//! RFC 8949, section 4.2. Always: a length is checked against what is there before anything is taken, and bytes that
//! a writer of ours would not have written are refused. So a message has one encoding, and a signature covers one.

use bytes::BufMut;

const UINT: u8 = 0;
const BYTES: u8 = 2;
const ARRAY: u8 = 4;

/// What is wrong with bytes that are no deterministic CBOR, or not the one that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    #[error("it ends too early")]
    Truncated,
    #[error("bytes follow its end")]
    Trailing,
    #[error("it is not in its deterministic form")]
    NotDeterministic,
    #[error("it holds something else than it should")]
    Unexpected,
}

pub fn put_uint(out: &mut impl BufMut, value: u64) {
    put_head(out, UINT, value);
}

pub fn put_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    put_head(out, BYTES, bytes.len() as u64);
    out.put_slice(bytes);
}

/// The head of a byte string whose bytes the caller writes.
pub fn put_bytes_head(out: &mut impl BufMut, len: usize) {
    put_head(out, BYTES, len as u64);
}

/// The head of an array whose items the caller writes.
pub fn put_array(out: &mut impl BufMut, len: usize) {
    put_head(out, ARRAY, len as u64);
}

/// How long the head of a byte string of this length is.
pub fn head_len(len: usize) -> usize {
    match len {
        0..24 => 1,
        24..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

fn put_head(out: &mut impl BufMut, major: u8, value: u64) {
    let major = major << 5;
    match value {
        0..24 => out.put_u8(major | value as u8),
        24..=0xff => out.put_slice(&[major | 24, value as u8]),
        0x100..=0xffff => {
            out.put_u8(major | 25);
            out.put_u16(value as u16);
        }
        0x1_0000..=0xffff_ffff => {
            out.put_u8(major | 26);
            out.put_u32(value as u32);
        }
        _ => {
            out.put_u8(major | 27);
            out.put_u64(value);
        }
    }
}

/// Takes items off the front of bytes. What it gives borrows from them; it allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn uint(&mut self) -> Result<u64, CborError> {
        self.head(UINT)
    }

    /// A number that fits what the caller keeps it in.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, CborError> {
        T::try_from(self.uint()?).map_err(|_| CborError::Unexpected)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], CborError> {
        let len = usize::try_from(self.head(BYTES)?).map_err(|_| CborError::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(CborError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A byte string of exactly this length.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], CborError> {
        self.bytes()?.try_into().map_err(|_| CborError::Unexpected)
    }

    /// How many items follow; no more than bytes are left.
    pub fn array(&mut self) -> Result<usize, CborError> {
        let len = self.head(ARRAY)?;
        match usize::try_from(len) {
            Ok(len) if len <= self.rest.len() => Ok(len),
            _ => Err(CborError::Truncated),
        }
    }

    /// An array of exactly so many items.
    pub fn array_of(&mut self, len: usize) -> Result<(), CborError> {
        match self.array()? == len {
            true => Ok(()),
            false => Err(CborError::Unexpected),
        }
    }

    pub fn end(self) -> Result<(), CborError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(CborError::Trailing),
        }
    }

    fn head(&mut self, major: u8) -> Result<u64, CborError> {
        let (&first, rest) = self.rest.split_first().ok_or(CborError::Truncated)?;
        if first >> 5 != major {
            return Err(CborError::Unexpected);
        }
        let (value, least, rest) = match first & 31 {
            small @ 0..24 => (u64::from(small), 0, rest),
            24 => take(rest, |[a]: [u8; 1]| u64::from(a), 24)?,
            25 => take(rest, |b| u64::from(u16::from_be_bytes(b)), 0x100)?,
            26 => take(rest, |b| u64::from(u32::from_be_bytes(b)), 0x1_0000)?,
            27 => take(rest, u64::from_be_bytes, 0x1_0000_0000)?,
            // 31 is an indefinite length; the others mean nothing.
            _ => return Err(CborError::NotDeterministic),
        };
        if value < least {
            return Err(CborError::NotDeterministic);
        }
        self.rest = rest;
        Ok(value)
    }
}

/// The number in the next N bytes, the least that needs so many, and what follows.
fn take<const N: usize>(
    rest: &[u8],
    number: impl FnOnce([u8; N]) -> u64,
    least: u64,
) -> Result<(u64, u64, &[u8]), CborError> {
    let (bytes, rest) = rest.split_first_chunk().ok_or(CborError::Truncated)?;
    Ok((number(*bytes), least, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uint(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_uint(&mut out, value);
        out
    }

    /// Numbers of every length, the first and last of each among them.
    fn numbers() -> impl Strategy<Value = u64> {
        let edges = [
            0,
            23,
            24,
            0xff,
            0x100,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            0x1_0000_0000,
            u64::MAX,
        ];
        prop_oneof![
            proptest::sample::select(edges.to_vec()),
            any::<u64>(),
            0..70_000_u64
        ]
    }

    #[test]
    fn a_longer_form_of_a_number_is_refused() {
        for longer in [
            &[0x18, 23][..],
            &[0x19, 0, 0xff],
            &[0x1a, 0, 0, 0xff, 0xff],
            &[0x1b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        ] {
            let refused = Reader::new(longer).uint();
            assert_eq!(refused, Err(CborError::NotDeterministic), "{longer:x?}");
        }
    }

    #[test]
    fn an_indefinite_length_is_refused() {
        let bytes = Reader::new(&[0x5f, 0x41, 1, 0xff]).bytes();
        assert_eq!(bytes, Err(CborError::NotDeterministic));
        let array = Reader::new(&[0x9f, 1, 0xff]).array();
        assert_eq!(array, Err(CborError::NotDeterministic));
    }

    #[test]
    fn a_length_of_more_than_there_is_takes_nothing() {
        let huge = [0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Reader::new(&huge).bytes(), Err(CborError::Truncated));
        let mut many = huge;
        many[0] = 0x9b;
        assert_eq!(Reader::new(&many).array(), Err(CborError::Truncated));
    }

    #[test]
    fn an_item_of_another_kind_is_refused() {
        for item in [0x20, 0x60, 0xa0, 0xc0, 0xe0, 0xf4, 0xf6, 0xff] {
            assert_eq!(Reader::new(&[item]).uint(), Err(CborError::Unexpected));
            assert_eq!(Reader::new(&[item]).bytes(), Err(CborError::Unexpected));
            assert_eq!(Reader::new(&[item]).array(), Err(CborError::Unexpected));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_is_what_another_library_writes(value in numbers(), bytes: Vec<u8>) {
            let mut out = Vec::new();
            put_array(&mut out, 2);
            put_uint(&mut out, value);
            put_bytes(&mut out, &bytes);
            let mut other = minicbor::Encoder::new(Vec::new());
            other.array(2).unwrap().u64(value).unwrap().bytes(&bytes).unwrap();
            prop_assert_eq!(&out, other.writer());

            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.array(), Ok(2));
            prop_assert_eq!(reader.uint(), Ok(value));
            prop_assert_eq!(reader.bytes(), Ok(&bytes[..]));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn what_is_read_is_what_a_writer_would_have_written(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.uint() {
                let used = bytes.len() - reader.rest.len();
                prop_assert_eq!(&bytes[..used], uint(value));
            }
            let mut reader = Reader::new(&bytes);
            if let Ok(inner) = reader.bytes() {
                let used = bytes.len() - reader.rest.len();
                prop_assert_eq!(used, head_len(inner.len()) + inner.len());
            }
        }

        #[test]
        fn a_cut_item_is_truncated(value in numbers(), cut in 0..9_usize) {
            let whole = uint(value);
            let cut = cut.min(whole.len() - 1);
            prop_assert_eq!(Reader::new(&whole[..cut]).uint(), Err(CborError::Truncated));
        }
    }
}
