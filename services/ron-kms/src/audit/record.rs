//! One entry of the audit log: what happened, as one canonical JSON line.
//!
//! The encoded bytes are the Merkle leaf, so they are deterministic and have one spelling: a line that
//! does not encode back to itself is refused. Digests of what was signed are in it; key material,
//! signatures and ciphertexts never are. The version comes first, and a newer one is refused by name.

use serde::{Deserialize, Serialize};

use super::{merkle::Hash, tiles::MAX_ENTRY};

/// The version of records that this code writes.
pub const VERSION: u32 = 1;
/// Digests in one record: a batch is one record, and a record must fit an entry bundle.
pub const MAX_DIGESTS: usize = 512;
/// Bytes of a name (tenant, kid, algorithm, actor, error code).
pub const MAX_NAME: usize = 256;

/// A record of one signature is about this long.
pub const USUAL_LEN: usize = 384;

/// The number of an operation, given once, whether or not its record is ever written.
pub type Seq = u64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its place in the log, from 0: the Merkle index.
    pub index: u64,
    /// Wall clock, Unix milliseconds. Evidence, not order: the index is the order.
    pub at_ms: u64,
    pub event: Event,
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A key is about to be used (strict policy only): written before the use.
    Intent { seq: Seq, operation: Operation },
    /// How the intent of this number ended (strict policy only): written before the answer.
    Outcome { seq: Seq, outcome: Outcome },
    /// A key was used (shed policy): what and how it ended, in one.
    Operation {
        seq: Seq,
        operation: Operation,
        outcome: Outcome,
    },
    /// A key or a version of it changed.
    Key {
        seq: Seq,
        tenant: String,
        kid: String,
        version: u32,
        actor: String,
        change: KeyChange,
    },
    /// Operations whose records are missing, exactly these: `first..first + count`.
    Gap {
        first: Seq,
        count: u64,
        reason: GapReason,
    },
    /// After an unclean end: at most `at_most` operations numbered in `first..end` are missing.
    RestartGap { first: Seq, end: Seq, at_most: u64 },
    /// Numbers below `end` may be given out from here on.
    Reserve { end: Seq },
    /// The log was closed in order: no number at or above `next` was given out.
    Closed { next: Seq },
    /// A checkpoint over the first `size` records was published.
    Checkpoint {
        size: u64,
        #[serde(with = "hex")]
        root: Hash,
    },
    /// Nonces below `next` may have been used with this version of the key.
    NonceMark {
        kid: String,
        version: u32,
        next: u64,
    },
}

/// A use of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub action: Action,
    pub tenant: String,
    pub kid: String,
    pub version: u32,
    pub alg: String,
    pub actor: String,
    /// SHA-256 of each message of the batch, in order.
    #[serde(with = "hex_list")]
    pub digests: Vec<Hash>,
    /// Set if the caller asked for a replayable result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
}

/// Digests of the caller's operation id and of the request it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpId {
    #[serde(with = "hex")]
    pub id: Hash,
    #[serde(with = "hex")]
    pub request: Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Sign,
    Verify,
    Wrap,
    Unwrap,
    DataKey,
    Attest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Done,
    /// With the problem's `code`.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyChange {
    Created { alg: String },
    Imported { alg: String },
    Rotated { from: u32 },
    Disabled,
    Enabled,
    DestroyScheduled { at_ms: u64 },
    DestroyCancelled,
    Destroyed,
    MinVersion { version: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The audit queue was full past its wait.
    QueueFull,
    /// The batch with the record could not be written in time, or at all.
    AppendFailed,
    /// Whoever carried the record ended before handing it over.
    Abandoned,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("not a record: one canonical JSON object is allowed")]
    Malformed,
    #[error("record version {found} is newer than {VERSION}: read this log with a newer ron-kms")]
    Newer { found: u32 },
    #[error("the record is longer than {MAX_ENTRY} bytes")]
    TooLong,
    #[error("a record holds at most {MAX_DIGESTS} digests and names of at most {MAX_NAME} bytes")]
    TooMuch,
}

impl Record {
    /// The leaf bytes.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let mut bytes = Vec::with_capacity(USUAL_LEN);
        self.encode_to(&mut bytes)?;
        Ok(bytes)
    }

    /// The leaf bytes, behind what is there; after an error some of them may be.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) -> Result<(), RecordError> {
        self.event.check()?;
        let before = bytes.len();
        let line = Line {
            v: VERSION,
            index: self.index,
            at_ms: self.at_ms,
            event: &self.event,
        };
        serde_json::to_writer(&mut *bytes, &line).map_err(|_| RecordError::Malformed)?;
        match bytes.len() - before <= MAX_ENTRY {
            true => Ok(()),
            false => Err(RecordError::TooLong),
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        if bytes.len() > MAX_ENTRY {
            return Err(RecordError::TooLong);
        }
        match version(bytes) {
            Some(VERSION) => {}
            Some(found) if found > VERSION => return Err(RecordError::Newer { found }),
            _ => return Err(RecordError::Malformed),
        }
        let line: Line<Event> =
            serde_json::from_slice(bytes).map_err(|_| RecordError::Malformed)?;
        let record = Record {
            index: line.index,
            at_ms: line.at_ms,
            event: line.event,
        };
        match record.encode()? == bytes {
            true => Ok(record),
            false => Err(RecordError::Malformed),
        }
    }
}

impl Event {
    /// The operation this accounts for, if any.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Event::Intent { seq, .. }
            | Event::Outcome { seq, .. }
            | Event::Operation { seq, .. }
            | Event::Key { seq, .. } => Some(*seq),
            _ => None,
        }
    }

    /// The same event under the number it was given.
    pub fn numbered(mut self, number: Seq) -> Event {
        if let Event::Intent { seq, .. }
        | Event::Outcome { seq, .. }
        | Event::Operation { seq, .. }
        | Event::Key { seq, .. } = &mut self
        {
            *seq = number;
        }
        self
    }

    /// May be dropped under pressure, leaving a gap record. Nothing but a plain use of a key may: changes
    /// of keys, nonce marks and results that a caller may replay are always written before the answer.
    pub fn may_be_shed(&self) -> bool {
        matches!(self, Event::Operation { operation, .. } if operation.op_id.is_none())
    }

    /// What keeps every record within an entry bundle.
    pub fn check(&self) -> Result<(), RecordError> {
        let fits = match self {
            Event::Intent { operation, .. } => operation.fits(),
            Event::Operation {
                operation, outcome, ..
            } => operation.fits() && outcome.fits(),
            Event::Outcome { outcome, .. } => outcome.fits(),
            Event::Key {
                tenant,
                kid,
                actor,
                change,
                ..
            } => [tenant, kid, actor].into_iter().all(|name| is_name(name)) && change.fits(),
            Event::NonceMark { kid, .. } => is_name(kid),
            _ => true,
        };
        match fits {
            true => Ok(()),
            false => Err(RecordError::TooMuch),
        }
    }
}

impl Operation {
    fn fits(&self) -> bool {
        let names = [&self.tenant, &self.kid, &self.alg, &self.actor];
        self.digests.len() <= MAX_DIGESTS && names.into_iter().all(|name| is_name(name))
    }
}

impl Outcome {
    fn fits(&self) -> bool {
        match self {
            Outcome::Done => true,
            Outcome::Failed(code) => is_name(code),
        }
    }
}

impl KeyChange {
    fn fits(&self) -> bool {
        match self {
            KeyChange::Created { alg } | KeyChange::Imported { alg } => is_name(alg),
            _ => true,
        }
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
}

/// The line as it is written: fields in this order, no spaces.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<E> {
    v: u32,
    index: u64,
    at_ms: u64,
    event: E,
}

/// The version alone, so that a newer record is told from a broken one whatever else it holds.
fn version(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(br#"{"v":"#)?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Hash;

    pub fn encode(hash: &Hash) -> String {
        let mut text = String::with_capacity(2 * hash.len());
        for byte in hash {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    pub fn decode(text: &str) -> Option<Hash> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut hash = Hash::default();
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(pairs) {
            let digit = |c: u8| (c as char).to_digit(16);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(hash)
    }

    pub fn serialize<S: Serializer>(hash: &Hash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(hash))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(from)?;
        decode(&text).ok_or_else(|| D::Error::custom("64 hex digits are allowed"))
    }
}

mod hex_list {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{Hash, hex};

    pub fn serialize<S: Serializer>(hashes: &[Hash], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(hashes.iter().map(hex::encode))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Hash>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let hashes: Option<_> = texts.iter().map(|text| hex::decode(text)).collect();
        hashes.ok_or_else(|| D::Error::custom("64 hex digits are allowed"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn operation(digests: usize) -> Operation {
        Operation {
            action: Action::Sign,
            tenant: "acme".into(),
            kid: "k1".into(),
            version: 3,
            alg: "ed25519".into(),
            actor: "alice".into(),
            digests: vec![[0xab; 32]; digests],
            op_id: None,
        }
    }

    fn key(change: KeyChange) -> Event {
        Event::Key {
            seq: 9,
            tenant: "acme".into(),
            kid: "k1".into(),
            version: 4,
            actor: "alice".into(),
            change,
        }
    }

    pub fn each_event() -> Vec<Event> {
        let with_id = Operation {
            op_id: Some(OpId {
                id: [1; 32],
                request: [2; 32],
            }),
            ..operation(2)
        };
        let alg = || "ml-dsa-65".to_owned();
        vec![
            Event::Intent {
                seq: 1,
                operation: operation(1),
            },
            Event::Outcome {
                seq: 1,
                outcome: Outcome::Failed("timeout".into()),
            },
            Event::Operation {
                seq: 2,
                operation: operation(0),
                outcome: Outcome::Done,
            },
            Event::Operation {
                seq: 3,
                operation: with_id,
                outcome: Outcome::Done,
            },
            key(KeyChange::Created { alg: alg() }),
            key(KeyChange::Imported { alg: alg() }),
            key(KeyChange::Rotated { from: 3 }),
            key(KeyChange::Disabled),
            key(KeyChange::Enabled),
            key(KeyChange::DestroyScheduled { at_ms: 5 }),
            key(KeyChange::DestroyCancelled),
            key(KeyChange::Destroyed),
            key(KeyChange::MinVersion { version: 2 }),
            Event::Gap {
                first: 4,
                count: 2,
                reason: GapReason::QueueFull,
            },
            Event::Gap {
                first: 7,
                count: 1,
                reason: GapReason::AppendFailed,
            },
            Event::Gap {
                first: 8,
                count: 1,
                reason: GapReason::Abandoned,
            },
            Event::RestartGap {
                first: 10,
                end: 99,
                at_most: 80,
            },
            Event::Reserve { end: 99 },
            Event::Closed { next: 12 },
            Event::Checkpoint {
                size: 5,
                root: [0x1f; 32],
            },
            Event::NonceMark {
                kid: "k1".into(),
                version: 3,
                next: 4096,
            },
        ]
    }

    #[test]
    fn every_event_reads_back_from_its_leaf() {
        for (index, event) in (0..).zip(each_event()) {
            let record = Record {
                index,
                at_ms: 1_700_000_000_123,
                event,
            };
            let leaf = record.encode().unwrap();
            assert_eq!(Record::decode(&leaf), Ok(record));
        }
    }

    /// These bytes are hashed into logs that exist: they may never change.
    #[test]
    fn the_leaf_of_a_signature_is_these_bytes() {
        let event = Event::Operation {
            seq: 7,
            operation: operation(1),
            outcome: Outcome::Done,
        };
        let record = Record {
            index: 5,
            at_ms: 1_700_000_000_123,
            event,
        };
        let expected = format!(
            "{{\"v\":1,\"index\":5,\"at_ms\":1700000000123,\"event\":{{\"operation\":{{\"seq\":7,\
             \"operation\":{{\"action\":\"sign\",\"tenant\":\"acme\",\"kid\":\"k1\",\"version\":3,\
             \"alg\":\"ed25519\",\"actor\":\"alice\",\"digests\":[\"{}\"]}},\"outcome\":\"done\"}}}}}}",
            "ab".repeat(32)
        );
        assert_eq!(
            String::from_utf8(record.encode().unwrap()).unwrap(),
            expected
        );
    }

    #[test]
    fn a_newer_record_is_refused_with_its_remedy() {
        let newer = br#"{"v":2,"entirely":["new"]}"#;
        let error = Record::decode(newer).unwrap_err();
        assert_eq!(error, RecordError::Newer { found: 2 });
        assert!(
            error.to_string().contains("with a newer ron-kms"),
            "{error}"
        );
    }

    #[test]
    fn any_other_spelling_of_a_record_is_refused() {
        let record = Record {
            index: 1,
            at_ms: 2,
            event: Event::Reserve { end: 3 },
        };
        let good = String::from_utf8(record.encode().unwrap()).unwrap();
        assert_eq!(
            good,
            r#"{"v":1,"index":1,"at_ms":2,"event":{"reserve":{"end":3}}}"#
        );
        for bad in [
            "",
            "{}",
            r#"{"v":0,"index":1,"at_ms":2,"event":{"reserve":{"end":3}}}"#,
            r#"{"v":01,"index":1,"at_ms":2,"event":{"reserve":{"end":3}}}"#,
            r#"{"v":1, "index":1,"at_ms":2,"event":{"reserve":{"end":3}}}"#,
            r#"{"v":1,"at_ms":2,"index":1,"event":{"reserve":{"end":3}}}"#,
            r#"{"v":1,"index":1,"at_ms":2,"event":{"reserve":{"end":3}},"more":1}"#,
            r#"{"v":1,"index":1,"at_ms":2,"event":{"reserve":{"end":3,"more":1}}}"#,
            r#"{"v":1,"index":1,"at_ms":2,"event":{"unknown":{"end":3}}}"#,
            r#"{"v":1,"index":-1,"at_ms":2,"event":{"reserve":{"end":3}}}"#,
            r#"{"v":1,"index":1,"at_ms":2,"event":{"reserve":{"end":3}}} "#,
        ] {
            assert_eq!(
                Record::decode(bad.as_bytes()),
                Err(RecordError::Malformed),
                "{bad}"
            );
        }
        let hash = |hex: &str| {
            format!(
                r#"{{"v":1,"index":1,"at_ms":2,"event":{{"checkpoint":{{"size":1,"root":"{hex}"}}}}}}"#
            )
        };
        assert!(Record::decode(hash(&"0f".repeat(32)).as_bytes()).is_ok());
        for hex in [
            "0F".repeat(32),
            "0f".repeat(31),
            "0g".repeat(32),
            "+1".repeat(32),
        ] {
            assert_eq!(
                Record::decode(hash(&hex).as_bytes()),
                Err(RecordError::Malformed)
            );
        }
    }

    #[test]
    fn the_largest_record_fits_an_entry_bundle() {
        let name = "\u{1}".repeat(MAX_NAME);
        let operation = Operation {
            tenant: name.clone(),
            kid: name.clone(),
            alg: name.clone(),
            actor: name.clone(),
            op_id: Some(OpId {
                id: [1; 32],
                request: [1; 32],
            }),
            ..operation(MAX_DIGESTS)
        };
        let event = Event::Operation {
            seq: u64::MAX,
            operation,
            outcome: Outcome::Failed(name),
        };
        let record = Record {
            index: u64::MAX,
            at_ms: u64::MAX,
            event,
        };
        assert!(record.encode().unwrap().len() <= MAX_ENTRY);
        let event = Event::Intent {
            seq: 1,
            operation: self::operation(MAX_DIGESTS + 1),
        };
        assert_eq!(event.check(), Err(RecordError::TooMuch));
        let mut long = self::operation(1);
        long.tenant = "a".repeat(MAX_NAME + 1);
        let record = Record {
            index: 0,
            at_ms: 0,
            event: Event::Intent {
                seq: 1,
                operation: long,
            },
        };
        assert_eq!(record.encode(), Err(RecordError::TooMuch));
        assert_eq!(
            Record::decode(&vec![b'['; MAX_ENTRY + 1]),
            Err(RecordError::TooLong)
        );
    }

    #[test]
    fn every_name_of_every_event_is_bounded() {
        // Each name in turn, made too long in the encoded line.
        for event in each_event() {
            let record = Record {
                index: 0,
                at_ms: 0,
                event,
            };
            let line = String::from_utf8(record.encode().unwrap()).unwrap();
            for name in ["acme", "k1", "ed25519", "ml-dsa-65", "alice", "timeout"] {
                let (short, long) = (format!(":\"{name}\""), "a".repeat(MAX_NAME + 1));
                let longer = line.replace(&short, &format!(":\"{long}\""));
                if longer != line {
                    let refused = Record::decode(longer.as_bytes());
                    assert_eq!(refused, Err(RecordError::TooMuch), "{short} in {line}");
                }
            }
        }
    }

    #[test]
    fn only_a_plain_use_of_a_key_may_be_shed() {
        let shed: Vec<Event> = each_event()
            .into_iter()
            .filter(Event::may_be_shed)
            .collect();
        assert_eq!(shed.len(), 1);
        assert_eq!(shed[0].seq(), Some(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes);
            let _ = Record::decode(&[&br#"{"v":1,"index":1,"#[..], &bytes].concat());
        }

        #[test]
        fn names_of_any_text_read_back(tenant in ".{0,40}", code in ".{0,40}", seq: u64, at_ms: u64) {
            let operation = Operation { tenant, ..operation(1) };
            let event = Event::Operation { seq, operation, outcome: Outcome::Failed(code) };
            let record = Record { index: 3, at_ms, event };
            prop_assert_eq!(Record::decode(&record.encode().unwrap()), Ok(record));
        }
    }
}
