//! Signed records: small values and who provides what.
//!
//! A record is `[kind, key, publisher, seq, created_ms, ttl_ms, body, signature]` in deterministic CBOR. Always: the
//! signature covers everything before it; a value lies where its publisher and name say, so nobody can write over
//! another's; a provider record names the publisher itself. To check the form is cheap, to check the signature is not:
//! they are two calls, and only a record that passed both is given to anybody.

use crate::{
    contact::Contact,
    id::Id,
    identity::{Identity, PublicKey, Signature, verify},
    wire::{
        cbor::{CborError, Reader, put_array, put_bytes, put_uint},
        message::RefusalCode,
    },
};

/// The most bytes of a value.
pub const MAX_VALUE_BYTES: usize = 16 * 1024;
/// The most bytes of a value's name.
pub const MAX_NAME_BYTES: usize = 255;

const LABEL: &str = "ron svc-dht record v1";
const ITEMS: usize = 8;

/// A record as it is stored and sent. Only one whose signature and time were checked is given to anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: RecordKind,
    pub key: Id,
    /// The Ed25519 key that signed it.
    pub publisher: PublicKey,
    /// Of two records of one publisher and key the higher wins.
    pub seq: u64,
    pub created_ms: u64,
    pub ttl_ms: u64,
    /// The value with its name, or the provider's contact.
    pub body: Vec<u8>,
    pub signature: Signature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    Value = 1,
    Provider = 2,
}

/// What a record must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// The most bytes of a value, its name aside.
    pub max_value_bytes: usize,
    /// The longest that a record may live.
    pub max_ttl_ms: u64,
    /// How far the clocks of two nodes may be apart.
    pub clock_skew_ms: u64,
}

impl Default for RecordLimits {
    fn default() -> Self {
        RecordLimits {
            max_value_bytes: MAX_VALUE_BYTES,
            max_ttl_ms: 24 * 60 * 60 * 1000,
            clock_skew_ms: 60 * 1000,
        }
    }
}

/// Why a record counts for nothing, its signature aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("its value is longer than {MAX_VALUE_BYTES} bytes or its name than {MAX_NAME_BYTES}")]
    TooLarge,
    #[error("its body is not what its kind demands")]
    BadBody,
    #[error("its key is not that of its publisher and name")]
    WrongKey,
    #[error("it names somebody else than its publisher as provider")]
    WrongProvider,
    #[error("its time to live is nothing or too long")]
    BadTtl,
    #[error("its time is over")]
    Expired,
    #[error("its time has not come yet")]
    Early,
}

impl RecordError {
    /// The label of `records_rejected_total`.
    pub fn code(&self) -> &'static str {
        match self {
            RecordError::TooLarge => "too_large",
            RecordError::BadBody => "bad_body",
            RecordError::WrongKey => "wrong_key",
            RecordError::WrongProvider => "wrong_provider",
            RecordError::BadTtl => "bad_ttl",
            RecordError::Expired => "expired",
            RecordError::Early => "early",
        }
    }

    /// What the sender is told.
    pub fn refusal(&self) -> RefusalCode {
        match self {
            RecordError::TooLarge => RefusalCode::TooLarge,
            RecordError::Expired | RecordError::Early => RefusalCode::Expired,
            RecordError::BadBody
            | RecordError::WrongKey
            | RecordError::WrongProvider
            | RecordError::BadTtl => RefusalCode::BadRequest,
        }
    }
}

impl Record {
    /// The publisher's value of this name.
    pub fn sign_value(
        publisher: &Identity,
        name: &[u8],
        value: &[u8],
        seq: u64,
        created_ms: u64,
        ttl_ms: u64,
    ) -> Record {
        let mut body = Vec::with_capacity(name.len() + value.len() + 8);
        put_array(&mut body, 2);
        put_bytes(&mut body, name);
        put_bytes(&mut body, value);
        let key = Id::of_value(publisher.public(), name);
        Record::sign(
            publisher,
            RecordKind::Value,
            key,
            seq,
            created_ms,
            ttl_ms,
            body,
        )
    }

    /// The publisher provides what `key` stands for, and is reached at `contact`, which must be its own.
    pub fn sign_provider(
        publisher: &Identity,
        key: Id,
        contact: &Contact,
        seq: u64,
        created_ms: u64,
        ttl_ms: u64,
    ) -> Record {
        let mut body = Vec::with_capacity(contact.encoded_len());
        contact.put(&mut body);
        Record::sign(
            publisher,
            RecordKind::Provider,
            key,
            seq,
            created_ms,
            ttl_ms,
            body,
        )
    }

    /// The same record, made anew: as its publisher sends it again before its time ends.
    pub fn renewed(&self, publisher: &Identity, created_ms: u64) -> Record {
        let body = self.body.clone();
        Record::sign(
            publisher,
            self.kind,
            self.key,
            self.seq,
            created_ms,
            self.ttl_ms,
            body,
        )
    }

    fn sign(
        publisher: &Identity,
        kind: RecordKind,
        key: Id,
        seq: u64,
        created_ms: u64,
        ttl_ms: u64,
        body: Vec<u8>,
    ) -> Record {
        let mut record = Record {
            kind,
            key,
            publisher: *publisher.public(),
            seq,
            created_ms,
            ttl_ms,
            body,
            signature: [0; 64],
        };
        record.signature = record.signed_parts(|parts| publisher.sign(LABEL, parts));
        record
    }

    /// Everything but the signature: size, time to live, time, and that it lies where it may. Cheap.
    pub fn check_shape(&self, limits: &RecordLimits, now_wall_ms: u64) -> Result<(), RecordError> {
        match self.kind {
            RecordKind::Value => self.check_value(limits)?,
            RecordKind::Provider => {
                let contact = self.provider_contact().ok_or(RecordError::BadBody)?;
                if contact.id != Id::of_node(&self.publisher) {
                    return Err(RecordError::WrongProvider);
                }
                if !contact.addr.is_usable() {
                    return Err(RecordError::BadBody);
                }
            }
        }
        if self.ttl_ms == 0 || self.ttl_ms > limits.max_ttl_ms {
            return Err(RecordError::BadTtl);
        }
        self.check_time(limits.clock_skew_ms, now_wall_ms)
    }

    fn check_value(&self, limits: &RecordLimits) -> Result<(), RecordError> {
        let (name, value) = self.value().ok_or(RecordError::BadBody)?;
        if value.len() > limits.max_value_bytes || name.len() > MAX_NAME_BYTES {
            return Err(RecordError::TooLarge);
        }
        match self.key == Id::of_value(&self.publisher, name) {
            true => Ok(()),
            false => Err(RecordError::WrongKey),
        }
    }

    /// Whether it counts now, by a clock that may differ by `skew_ms` from the publisher's.
    pub fn check_time(&self, skew_ms: u64, now_wall_ms: u64) -> Result<(), RecordError> {
        if now_wall_ms >= self.ends_ms().saturating_add(skew_ms) {
            Err(RecordError::Expired)
        } else if now_wall_ms < self.created_ms.saturating_sub(skew_ms) {
            Err(RecordError::Early)
        } else {
            Ok(())
        }
    }

    /// When its time is over, by its publisher's clock.
    pub fn ends_ms(&self) -> u64 {
        self.created_ms.saturating_add(self.ttl_ms)
    }

    /// Whether its publisher signed it. Costs CPU time: not for a task that has a connection to serve.
    pub fn check_signature(&self) -> bool {
        self.signed_parts(|parts| verify(&self.publisher, LABEL, parts, &self.signature))
    }

    /// Whether it replaces `other`, a record of the same kind, key and publisher. Of two with one sequence the one that
    /// was made later does, and where a publisher made two at once the order is arbitrary but the same everywhere.
    pub fn supersedes(&self, other: &Record) -> bool {
        let rank = |r: &Record| (r.seq, r.created_ms, r.ttl_ms);
        (rank(self), &self.body, &self.signature) > (rank(other), &other.body, &other.signature)
    }

    /// Where the provider is; none in a value.
    pub fn provider_contact(&self) -> Option<Contact> {
        match self.kind {
            RecordKind::Provider => Contact::from_bytes(&self.body),
            RecordKind::Value => None,
        }
    }

    /// The value's name and its bytes; none in a provider record.
    pub fn value(&self) -> Option<(&[u8], &[u8])> {
        if self.kind != RecordKind::Value {
            return None;
        }
        let mut reader = Reader::new(&self.body);
        reader.array_of(2).ok()?;
        let parts = (reader.bytes().ok()?, reader.bytes().ok()?);
        reader.end().ok()?;
        Some(parts)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 176);
        self.put(&mut out);
        out
    }

    /// Takes any bytes for a body, however long or wrong: [`check_shape`](Self::check_shape) says what it is worth.
    pub fn decode(bytes: &[u8]) -> Result<Record, CborError> {
        let mut reader = Reader::new(bytes);
        let record = Record::take(&mut reader)?;
        reader.end()?;
        Ok(record)
    }

    pub fn put(&self, out: &mut impl bytes::BufMut) {
        put_array(out, ITEMS);
        put_uint(out, self.kind as u64);
        put_bytes(out, &self.key.0);
        put_bytes(out, &self.publisher);
        put_uint(out, self.seq);
        put_uint(out, self.created_ms);
        put_uint(out, self.ttl_ms);
        put_bytes(out, &self.body);
        put_bytes(out, &self.signature);
    }

    pub fn take(reader: &mut Reader<'_>) -> Result<Record, CborError> {
        reader.array_of(ITEMS)?;
        Ok(Record {
            kind: RecordKind::of(reader.uint()?).ok_or(CborError::Unexpected)?,
            key: Id(reader.fixed()?),
            publisher: reader.fixed()?,
            seq: reader.uint()?,
            created_ms: reader.uint()?,
            ttl_ms: reader.uint()?,
            body: reader.bytes()?.to_vec(),
            signature: reader.fixed()?,
        })
    }

    fn signed_parts<T>(&self, with: impl FnOnce(&[&[u8]]) -> T) -> T {
        with(&[
            &[self.kind as u8],
            &self.key.0,
            &self.publisher,
            &self.seq.to_be_bytes(),
            &self.created_ms.to_be_bytes(),
            &self.ttl_ms.to_be_bytes(),
            &self.body,
        ])
    }
}

impl RecordKind {
    /// The kind with this number.
    pub fn of(number: u64) -> Option<RecordKind> {
        [RecordKind::Value, RecordKind::Provider]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }

    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Value => "value",
            RecordKind::Provider => "provider",
        }
    }
}

#[cfg(test)]
mod tests;
