//! The checkpoint: a signed statement of the log's size and root, as C2SP tlog-checkpoint has it.
//!
//! Signed twice: an Ed25519 line over the text and an ML-DSA-44 cosignature over the tree head and the
//! time (C2SP tlog-cosignature). A verifier names the keys it trusts, and each must have signed: a note
//! from which one line was stripped is refused.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair, ML_DSA_44_SIGNING, PqdsaKeyPair};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    merkle::Hash,
    note::{KeyKind, Note, NoteError, SignatureLine, VerifierKey, sign_ed25519},
};

/// The label that keeps these messages apart from any other the key might sign.
const LABEL: &[u8; 12] = b"subtree/v1\n\0";
/// Names travel behind one byte of length.
const MAX_NAME: usize = 255;
/// A time must fit a signed 64-bit number.
const MAX_TIME_S: u64 = i64::MAX as u64;

/// Size and root of a log that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("not a checkpoint: origin, size and root hash, a line each, are needed")]
    Text,
    #[error("\"{0}\" cannot be an origin: one line of 1 to 255 bytes is allowed")]
    Origin(String),
    #[error("the checkpoint is of \"{got}\", expected \"{expected}\"")]
    OtherLog { got: String, expected: String },
    #[error("a verifier needs at least one key")]
    NoKeys,
    #[error("a time of {0} s cannot be signed")]
    Time(u64),
    #[error("the key cannot sign")]
    Signing,
}

impl Checkpoint {
    /// The note's text.
    pub fn text(&self) -> String {
        let root = STANDARD.encode(self.root);
        format!("{}\n{}\n{root}\n", self.origin, self.size)
    }

    /// Reads a note's text. Extension lines are allowed and mean nothing here.
    pub fn parse(text: &str) -> Result<Checkpoint, CheckpointError> {
        let body = text.strip_suffix('\n').ok_or(CheckpointError::Text)?;
        let lines: Vec<&str> = body.split('\n').collect();
        let [origin, size, root, extensions @ ..] = &lines[..] else {
            return Err(CheckpointError::Text);
        };
        if extensions.iter().any(|line| line.is_empty()) {
            return Err(CheckpointError::Text);
        }
        check_origin(origin)?;
        let root = STANDARD.decode(root).map_err(|_| CheckpointError::Text)?;
        Ok(Checkpoint {
            origin: (*origin).to_owned(),
            size: plain_decimal(size).ok_or(CheckpointError::Text)?,
            root: root.try_into().map_err(|_| CheckpointError::Text)?,
        })
    }

    /// Signs with both keys of the log, under its origin as their name.
    pub fn sign(&self, keys: &SigningKeys, time_s: u64) -> Result<Note, CheckpointError> {
        check_origin(&self.origin)?;
        let text = self.text();
        let ed25519 = sign_ed25519(&self.origin, keys.ed25519, &text)?;
        let ml_dsa = cosign_ml_dsa_44(&self.origin, keys.ml_dsa_44, self, time_s)?;
        Ok(Note {
            text,
            signatures: vec![ed25519, ml_dsa],
        })
    }
}

/// What a log signs its checkpoints with.
pub struct SigningKeys<'a> {
    pub ed25519: &'a Ed25519KeyPair,
    pub ml_dsa_44: &'a PqdsaKeyPair,
}

impl SigningKeys<'_> {
    /// The keys that verifiers of this log need.
    pub fn verifiers(&self, origin: &str) -> Result<Vec<VerifierKey>, NoteError> {
        let ed25519 = self.ed25519.public_key().as_ref();
        let ml_dsa = self.ml_dsa_44.public_key().as_ref();
        Ok(vec![
            VerifierKey::new(origin, KeyKind::Ed25519, ed25519)?,
            VerifierKey::new(origin, KeyKind::MlDsa44, ml_dsa)?,
        ])
    }
}

/// Whom a verifier trusts: a log by its origin, and the keys that must all have signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    pub origin: String,
    pub keys: Vec<VerifierKey>,
}

/// A checkpoint that was verified, and the times its cosigners gave, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub checkpoint: Checkpoint,
    pub times_s: Vec<u64>,
}

impl Trust {
    /// Lines of other keys are ignored; of these keys every line must verify, and each has one.
    pub fn verify(&self, bytes: &[u8]) -> Result<Verified, CheckpointError> {
        let note = Note::parse(bytes)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        if checkpoint.origin != self.origin {
            return Err(CheckpointError::OtherLog {
                got: checkpoint.origin,
                expected: self.origin.clone(),
            });
        }
        if self.keys.is_empty() {
            return Err(CheckpointError::NoKeys);
        }
        let mut times_s = Vec::new();
        for key in &self.keys {
            let (name, id) = (key.name().to_owned(), key.id());
            let mut signed = false;
            for line in note.lines_of(key) {
                let Some(time) = verify_line(key, line, &note.text, &checkpoint) else {
                    return Err(NoteError::BadSignature { name, id }.into());
                };
                times_s.extend(time.filter(|_| !signed));
                signed = true;
            }
            if !signed {
                return Err(NoteError::Unsigned { name, id }.into());
            }
        }
        Ok(Verified {
            checkpoint,
            times_s,
        })
    }
}

/// The ML-DSA-44 cosignature of a checkpoint: the time, then the signature.
pub fn cosign_ml_dsa_44(
    name: &str,
    key: &PqdsaKeyPair,
    checkpoint: &Checkpoint,
    time_s: u64,
) -> Result<SignatureLine, CheckpointError> {
    let verifier = VerifierKey::new(name, KeyKind::MlDsa44, key.public_key().as_ref())?;
    if time_s > MAX_TIME_S {
        return Err(CheckpointError::Time(time_s));
    }
    let message = cosigned_message(name, checkpoint, time_s)?;
    let mut signature = vec![0; ML_DSA_44_SIGNING.signature_len()];
    key.sign(&message, &mut signature)
        .map_err(|_| CheckpointError::Signing)?;
    Ok(SignatureLine {
        name: name.to_owned(),
        id: verifier.id(),
        signature: [&time_s.to_be_bytes()[..], &signature].concat(),
    })
}

/// What an ML-DSA-44 cosigner signs: label, its name, time, origin, the range of entries, their root.
fn cosigned_message(
    name: &str,
    checkpoint: &Checkpoint,
    time_s: u64,
) -> Result<Vec<u8>, CheckpointError> {
    check_origin(name)?;
    check_origin(&checkpoint.origin)?;
    let mut message = LABEL.to_vec();
    message.push(name.len() as u8);
    message.extend(name.as_bytes());
    message.extend(time_s.to_be_bytes());
    message.push(checkpoint.origin.len() as u8);
    message.extend(checkpoint.origin.as_bytes());
    message.extend(0_u64.to_be_bytes());
    message.extend(checkpoint.size.to_be_bytes());
    message.extend(checkpoint.root);
    Ok(message)
}

/// `None` if the line does not verify; its time if its kind has one.
fn verify_line(
    key: &VerifierKey,
    line: &SignatureLine,
    text: &str,
    checkpoint: &Checkpoint,
) -> Option<Option<u64>> {
    match key.kind() {
        KeyKind::Ed25519 => key
            .verifies(text.as_bytes(), &line.signature)
            .then_some(None),
        KeyKind::MlDsa44 => {
            let (time, signature) = line.signature.split_first_chunk()?;
            let time = u64::from_be_bytes(*time);
            let message = cosigned_message(key.name(), checkpoint, time).ok()?;
            let valid = time <= MAX_TIME_S && key.verifies(&message, signature);
            valid.then_some(Some(time))
        }
    }
}

fn check_origin(origin: &str) -> Result<(), CheckpointError> {
    let fits = (1..=MAX_NAME).contains(&origin.len());
    match fits && !origin.contains(char::is_control) {
        true => Ok(()),
        false => Err(CheckpointError::Origin(origin.to_owned())),
    }
}

/// Digits without a leading zero.
pub(super) fn plain_decimal(text: &str) -> Option<u64> {
    let value: u64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: &str = "example.com/kms";

    struct Keys {
        ed25519: Ed25519KeyPair,
        ml_dsa_44: PqdsaKeyPair,
    }

    impl Keys {
        fn new(seed: u8) -> Keys {
            Keys {
                ed25519: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(),
                ml_dsa_44: PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, &[seed; 32]).unwrap(),
            }
        }

        fn signing(&self) -> SigningKeys<'_> {
            SigningKeys {
                ed25519: &self.ed25519,
                ml_dsa_44: &self.ml_dsa_44,
            }
        }

        fn trust(&self) -> Trust {
            Trust {
                origin: ORIGIN.into(),
                keys: self.signing().verifiers(ORIGIN).unwrap(),
            }
        }
    }

    fn head() -> Checkpoint {
        Checkpoint {
            origin: ORIGIN.into(),
            size: 20_852_163,
            root: [0xab; 32],
        }
    }

    #[test]
    fn a_signed_checkpoint_verifies_and_tells_its_time() {
        let keys = Keys::new(1);
        let note = head().sign(&keys.signing(), 1_679_315_147).unwrap();
        let lines: Vec<usize> = note.signatures.iter().map(|s| s.signature.len()).collect();
        assert_eq!(lines, [64, 8 + 2420]);
        let verified = keys.trust().verify(note.encode().as_bytes()).unwrap();
        assert_eq!(verified.checkpoint, head());
        assert_eq!(verified.times_s, [1_679_315_147]);
    }

    /// Laid out by hand after the specification's structure.
    #[test]
    fn the_cosigned_message_is_laid_out_as_specified() {
        let checkpoint = Checkpoint {
            origin: "log".into(),
            size: 0x0102,
            root: [9; 32],
        };
        let mut expected = b"subtree/v1\n\0".to_vec();
        expected.extend(b"\x03wit");
        expected.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        expected.extend(b"\x03log");
        expected.extend([0; 8]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        expected.extend([9; 32]);
        assert_eq!(cosigned_message("wit", &checkpoint, 5), Ok(expected));
    }

    #[test]
    fn every_flipped_byte_of_a_checkpoint_is_caught() {
        let keys = Keys::new(1);
        let good = head()
            .sign(&keys.signing(), 7)
            .unwrap()
            .encode()
            .into_bytes();
        let trust = keys.trust();
        assert!(trust.verify(&good).is_ok());
        // All of the text and the Ed25519 line, and a sample of the long one.
        let places = (0..250).chain((250..good.len()).step_by(53));
        for at in places {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(trust.verify(&bad).is_err(), "a flip at {at} went unnoticed");
        }
    }

    #[test]
    fn a_stripped_foreign_or_unnamed_signature_is_refused() {
        let keys = Keys::new(1);
        let note = head().sign(&keys.signing(), 7).unwrap();
        for missing in 0..2 {
            let mut stripped = note.clone();
            stripped.signatures.remove(missing);
            let error = keys.trust().verify(stripped.encode().as_bytes());
            let unsigned = matches!(
                error,
                Err(CheckpointError::Note(NoteError::Unsigned { .. }))
            );
            assert!(unsigned, "{error:?}");
        }
        let stranger = Keys::new(2).trust();
        assert!(stranger.verify(note.encode().as_bytes()).is_err());
        let trust_nobody = Trust {
            keys: Vec::new(),
            ..keys.trust()
        };
        let error = trust_nobody.verify(note.encode().as_bytes());
        assert_eq!(error, Err(CheckpointError::NoKeys));
        let elsewhere = Trust {
            origin: "example.net".into(),
            ..keys.trust()
        };
        let error = elsewhere.verify(note.encode().as_bytes()).unwrap_err();
        assert!(matches!(error, CheckpointError::OtherLog { .. }));
    }

    #[test]
    fn unknown_lines_are_ignored_and_a_second_bad_line_of_a_known_key_is_not() {
        let keys = Keys::new(1);
        let mut note = head().sign(&keys.signing(), 7).unwrap();
        let mut unknown = note.signatures[0].clone();
        unknown.id ^= 1;
        note.signatures.insert(0, unknown);
        assert!(keys.trust().verify(note.encode().as_bytes()).is_ok());
        let mut second = note.signatures[1].clone();
        second.signature[0] ^= 1;
        note.signatures.push(second);
        assert!(keys.trust().verify(note.encode().as_bytes()).is_err());
    }

    #[test]
    fn malformed_texts_are_refused() {
        let root = STANDARD.encode([1; 32]);
        let good = format!("log\n5\n{root}\n");
        assert!(Checkpoint::parse(&good).is_ok());
        assert!(Checkpoint::parse(&format!("{good}extension\n")).is_ok());
        assert!(Checkpoint::parse(&format!("log\n0\n{root}\n")).is_ok());
        let short = STANDARD.encode([1; 31]);
        for bad in [
            String::new(),
            "log\n".into(),
            "log\n5\n".into(),
            format!("log\n5\n{root}"),
            format!("\n5\n{root}\n"),
            format!("log\n05\n{root}\n"),
            format!("log\n+5\n{root}\n"),
            format!("log\n-5\n{root}\n"),
            format!("log\n18446744073709551616\n{root}\n"),
            format!("log\n5\n{short}\n"),
            format!("log\n5\n{root}\n\nextension\n"),
            format!("{}\n5\n{root}\n", "a".repeat(256)),
        ] {
            assert!(Checkpoint::parse(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_cannot_be_signed_is_an_error() {
        let keys = Keys::new(1);
        let too_late = head().sign(&keys.signing(), MAX_TIME_S + 1);
        assert_eq!(too_late, Err(CheckpointError::Time(MAX_TIME_S + 1)));
        let long = Checkpoint {
            origin: "a".repeat(256),
            ..head()
        };
        assert!(matches!(
            long.sign(&keys.signing(), 1),
            Err(CheckpointError::Origin(_))
        ));
        let spaced = Checkpoint {
            origin: "a b".into(),
            ..head()
        };
        assert!(matches!(
            spaced.sign(&keys.signing(), 1),
            Err(CheckpointError::Note(_))
        ));
    }

    proptest! {
        #[test]
        fn a_text_reads_back(origin in "[a-z./]{1,40}", size: u64, root: [u8; 32]) {
            let checkpoint = Checkpoint { origin, size, root };
            prop_assert_eq!(Checkpoint::parse(&checkpoint.text()), Ok(checkpoint));
        }
    }
}
